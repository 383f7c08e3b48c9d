//! `--show-config`: prints the pairs as uWSGI does, in the order in which they were read.

use std::fmt::Write;

use crate::pair::Pair;

/// Formats the pairs in uWSGI's own form, frame included, so that the two can be compared.
pub fn as_uwsgi(pairs: &[Pair]) -> String {
    let mut text = "\n;uWSGI instance configuration\n[uwsgi]\n".to_owned();
    for pair in pairs {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} = {}", pair.key, pair.value.as_deref().unwrap_or("true"));
    }
    text.push_str(";end of configuration\n\n");
    text
}
