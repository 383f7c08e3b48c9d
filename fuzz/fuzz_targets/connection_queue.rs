// Invariant: a packet of a connection that moves is either refused, or written as the same bytes again.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::connection_queue::TARGET.assert_holds(input));
