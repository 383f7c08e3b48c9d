// Invariant: a WebSocket's bytes are judged the same however they are split and whatever was inflated before, no event breaks a limit, and without compression tungstenite's own reader tells the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::websocket::TARGET.assert_holds(input));
