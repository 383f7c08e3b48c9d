// Invariant: a connection of HTTP/2 means the same however its bytes are cut, its heads are what HTTP/1 reads in them, and its windows sum up.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http2::TARGET.assert_holds(input));
