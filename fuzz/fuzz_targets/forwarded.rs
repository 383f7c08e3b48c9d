// Invariant: the last entry of a trusted peer decides the client's address, hosts and prefixes are safe to use, and fields that
// do not count have no effect.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::forwarded::TARGET.assert_holds(input));
