// Invariant: the result for a WebSocket's bytes does not depend on how they are split or on what was inflated before, no event
// exceeds a limit, and without compression tungstenite's own reader agrees.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::websocket::TARGET.assert_holds(input));
