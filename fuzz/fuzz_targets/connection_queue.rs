// Invariant: a packet of a moved connection is either refused, or encoded to the same bytes again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::connection_queue::TARGET.assert_holds(input));
