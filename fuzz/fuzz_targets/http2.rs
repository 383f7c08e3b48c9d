// Invariant: an HTTP/2 connection means the same however its bytes are split, an HTTP/1 parser reads the same heads, and the flow
// control windows add up.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http2::TARGET.assert_holds(input));
