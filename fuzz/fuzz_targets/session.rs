// Invariant: a connection means the same however its bytes are split, and no event refers to bytes that do not exist.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::session::TARGET.assert_holds(input));
