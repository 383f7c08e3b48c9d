//! `bolide_app.h` says what the types of this crate say.

use std::path::Path;

/// The comment at the top of the header.
const INTRODUCTION: &str = "\
/* The interface between Bolide and the adapter of a language: two tables of functions. An adapter is a library that exports
 * bolide_adapter_v1. docs/write-a-plugin.md shows a small one.
 *
 * Made from crates/abi/src/lib.rs. Nothing unwinds over these calls, and no memory changes hands. */";

/// A value that C spells by a macro of its own.
const GONE: &str = "
// `push` and `write` return this if the client is gone. The adapter ends its work for the request and returns
// `BOLIDE_FINISHED`.
#define BOLIDE_GONE SIZE_MAX
";

/// The declaration of the exported symbol, which no Rust type can carry.
const SYMBOL: &str = "
#ifdef __cplusplus
extern \"C\"
#endif
const bolide_adapter *bolide_adapter_v1(const bolide_host *host);
";

#[test]
fn the_header_is_made_from_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(INTRODUCTION.to_owned()),
        include_guard: Some("BOLIDE_APP_H".to_owned()),
        includes: Vec::new(),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        after_includes: Some(GONE.to_owned()),
        usize_is_size_t: true,
        style: cbindgen::Style::Type,
        documentation_style: cbindgen::DocumentationStyle::C99,
        line_length: 120,
        trailer: Some(SYMBOL.to_owned()),
        ..Default::default()
    };
    let types = ["host", "adapter", "instance", "body", "pair", "text", "request", "answer", "stream", "loop", "exchange"];
    config.export.include = types.iter().map(|name| format!("bolide_{name}")).collect();
    config.export.exclude = vec!["bolide_adapter_v1_function".to_owned()];
    let bindings = cbindgen::Builder::new().with_src(directory.join("src/lib.rs")).with_config(config).generate();
    let mut made = Vec::new();
    bindings.expect("made").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let file = directory.join("bolide_app.h");
    if std::env::var_os("BOLIDE_WRITE_REFERENCE").is_some() {
        std::fs::write(&file, &made).expect("written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == made, "bolide_app.h is outdated: BOLIDE_WRITE_REFERENCE=1 cargo test -p bolide-abi writes it");
}
