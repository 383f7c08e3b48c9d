// Invariant: the first acceptable offer is answered with no more than it contains, whatever stands before and after it, and the
// answer, sent as an offer, is answered with itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::websocket_offer::TARGET.assert_holds(input));
