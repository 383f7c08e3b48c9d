// Invariant: the parts of an answer do not depend on how it is split, no part lies outside its input, and a fault is the last
// word.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http1_response::TARGET.assert_holds(input));
