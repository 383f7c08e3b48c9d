// Invariant: no text breaks a parser of configurations, every line that it names is one of the text, an ini text says the same when written plainly, and filling in placeholders ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::options_parsers::TARGET.assert_holds(input));
