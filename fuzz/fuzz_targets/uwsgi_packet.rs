// Invariant: a packet that is accepted is, byte for byte, what its variables are written as, and its facts are those of its variables.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::uwsgi_packet::TARGET.assert_holds(input));
