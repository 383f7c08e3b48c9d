// Invariant: a job is, byte for byte, the encoding of its variables and its body; no prefix of its packet is a job, and bytes
// after the packet change only the body.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::spool_job::TARGET.assert_holds(input));
