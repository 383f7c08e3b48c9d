//! `--show-config`: the pairs as uWSGI prints them, in the order in which they were read.

use std::fmt::Write;

use crate::pair::Pair;

/// uWSGI's own form, its frame included, so that the two can be compared.
pub fn as_uwsgi(pairs: &[Pair]) -> String {
    let mut text = "\n;uWSGI instance configuration\n[uwsgi]\n".to_owned();
    for pair in pairs {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} = {}", pair.key, pair.value.as_deref().unwrap_or("true"));
    }
    text.push_str(";end of configuration\n\n");
    text
}
