// Invariant: the parts of a target make the target again, and its decoded path has no NUL, is never longer, and is what a plain decoder makes of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::target_decode::TARGET.assert_holds(input));
