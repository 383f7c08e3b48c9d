// Invariant: a connection means the same however its bytes are cut, and no event speaks of bytes that are not there.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::session::TARGET.assert_holds(input));
