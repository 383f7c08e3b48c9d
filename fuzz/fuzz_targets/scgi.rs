// Invariant: an accepted head is, byte for byte, the encoding of its variables, no prefix of it is accepted, and the bytes after
// it change nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::scgi::TARGET.assert_holds(input));
