// Invariant: a head is judged the same however it is split and whatever follows it, and what is accepted means one thing only: `httparse` and a plain count of its lengths agree.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::http1_head::TARGET.assert_holds(input));
