// Invariant: with any bytes instead of TLS or within it, the connection ends, the server answers in records, and no unencrypted
// byte reaches an application.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::tls::TARGET.assert_holds(input));
