// Invariant: an accepted packet is, byte for byte, the encoding of its variables, and its facts are those of its variables.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::uwsgi_packet::TARGET.assert_holds(input));
