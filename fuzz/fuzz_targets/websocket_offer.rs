// Invariant: the first offer that can be kept is answered with no more than it has, whatever stands before and behind it, and the answer, offered, is answered by itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::websocket_offer::TARGET.assert_holds(input));
