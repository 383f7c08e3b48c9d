// Invariant: the result for a chunked body does not depend on how it is split, and an accepted body is the one that a plain
// reader of the whole finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http1_chunked::TARGET.assert_holds(input));
