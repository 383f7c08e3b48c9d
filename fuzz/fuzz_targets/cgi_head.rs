// Invariant: a header block is the same whole and byte by byte, the bytes after it change nothing, its fields are parts of it,
// and it is not longer than the bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bolide_fuzz::cgi_head::TARGET.assert_holds(input));
