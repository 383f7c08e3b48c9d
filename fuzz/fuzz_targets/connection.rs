// Invariant: for any input, cut in any way, a connection is answered or closed, each request is called once, and nothing of it
// remains.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::connection::TARGET.assert_holds(input));
