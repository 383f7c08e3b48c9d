// Invariant: the parts of a target join to the target again, and its decoded path has no NUL, is never longer, and equals the
// result of a plain decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::target_decode::TARGET.assert_holds(input));
