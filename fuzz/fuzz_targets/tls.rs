// Invariant: whatever comes in place of TLS or within it, the connection ends, the server answers in records, and nothing reaches an application that was not encrypted.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::tls::TARGET.assert_holds(input));
