// Invariant: the result for a head does not depend on how it is split or on the bytes after it, and an accepted head is
// unambiguous: `httparse` and a plain count of its lengths agree.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http1_head::TARGET.assert_holds(input));
