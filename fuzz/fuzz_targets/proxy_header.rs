// Invariant: what a header is depends on its own bytes only, none of them can be missing, and all it names lies within it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::proxy_header::TARGET.assert_holds(input));
