// Invariant: a head that is accepted is, byte for byte, what its variables are written as, no part of it is, and what follows it changes nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::scgi::TARGET.assert_holds(input));
