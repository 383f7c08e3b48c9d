//! An option as it was written: its key, its value and its location; and the listing of `--show-config`. It must not know the
//! meaning of an option. Runs in the process that reads a configuration.

use std::fmt::Write;

use crate::diagnostic::Location;

/// A key, its value (`None` if the command line has none), and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: Option<String>,
    pub location: Location,
    /// It has already taken effect: placeholders in it are not filled in, and `resolve` does not see it again.
    pub acted: bool,
    /// Set by `set-placeholder`: not an option, whatever its name.
    pub placeholder: bool,
}

/// Formats the pairs for `--show-config`, in the order in which they were read. The form is uWSGI's, frame included, so that the
/// two listings can be compared.
pub fn as_uwsgi(pairs: &[Pair]) -> String {
    let mut text = "\n;uWSGI instance configuration\n[uwsgi]\n".to_owned();
    for pair in pairs {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} = {}", pair.key, pair.value.as_deref().unwrap_or("true"));
    }
    text.push_str(";end of configuration\n\n");
    text
}
