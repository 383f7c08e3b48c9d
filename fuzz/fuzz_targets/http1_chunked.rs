// Invariant: a chunked body is judged the same however it is split, and a body that is accepted is the one that a plain reader of the whole finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http1_chunked::TARGET.assert_holds(input));
