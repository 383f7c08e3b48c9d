// Invariant: an answer is the same whether its bytes come together or one by one, and no answer takes more than its bound; an
// address is shown as an address of the same place.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::redis_answer::TARGET.assert_holds(input));
