// Invariant: no text makes a configuration parser panic, every reported line exists in the text, an ini text means the same when
// it is written plainly, and the expansion of placeholders ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::options_parsers::TARGET.assert_holds(input));
