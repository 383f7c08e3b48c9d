// Invariant: invalid rules are reported; a walk ends, with the same result each time and whether expressions are matched together
// or one by one.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::routes::TARGET.assert_holds(input));
