// Invariant: a connection is answered or closed whatever comes and however it is cut, each request once, and nothing of it is left.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::connection::TARGET.assert_holds(input));
