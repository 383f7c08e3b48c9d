// Invariant: what a trusted peer has written last decides who the client is, hosts and prefixes are safe to use, and fields that do not count say nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::forwarded::TARGET.assert_holds(input));
