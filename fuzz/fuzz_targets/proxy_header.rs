// Invariant: the result for a header depends on its own bytes only, on all of them, and every span lies within it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::proxy_header::TARGET.assert_holds(input));
