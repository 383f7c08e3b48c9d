// Invariant: however a connection's bytes are split, its events are those that a plain reader of whole records finds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::fastcgi::TARGET.assert_holds(input));
