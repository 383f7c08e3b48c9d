//! Rows of the program itself.

use crate::catalogue::row::{Entry, Value};
use crate::catalogue::setting::{Setting, Word};

pub const ENTRIES: &[Entry] = &[
    Entry::supported("help", Setting::Language(Word::Help), Value::Switch, "", "Prints a summary and ends."),
    Entry::supported("version", Setting::Language(Word::Version), Value::Switch, "", "Prints the version and ends."),
    Entry::refused(
        "build-plugin",
        Value::Path,
        "Builds a plugin of uWSGI.",
        "Bolide has no plugins in C; what it lacks is a wish for its issue tracker",
    ),
    Entry::refused(
        "cflags",
        Value::Switch,
        "Prints how uWSGI was compiled.",
        "there is nothing to compile against; use `--version`",
    ),
    Entry::refused("dot-h", Value::Switch, "Prints uWSGI's C header.", "there is nothing to compile against; use `--version`"),
    Entry::refused("config-py", Value::Switch, "Prints uWSGI's build script.", "there is nothing to build; use `--version`"),
    Entry::refused(
        "dlopen",
        Value::Path,
        "Loads any shared library into the server.",
        "load it from the application, with `ctypes`",
    ),
    Entry::refused(
        "binary-append-data",
        Value::Path,
        "Appends a file to uWSGI's program.",
        "keep the file beside the program, and name it",
    ),
];
