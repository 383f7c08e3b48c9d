//! Keys that are not options: placeholders, typing errors, and lines that only look like an option. It suggests what was probably
//! meant. Runs in the process that reads the configuration.

use super::draft::Draft;
use crate::catalogue::row::OptionRow;
use crate::catalogue::{catalogue, nearest};
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

/// Keys that others use for their own purposes: Debian's init script in its default configuration, and OpenStack's devstack for
/// the application.
const FOREIGN_KEYS: &[&str] = &["deb-confname", "deb-confnamespace", "start-time"];

pub fn report_unknown(draft: &mut Draft, pair: &Pair, read: &Configuration) {
    if let Some(typo) = Typo::of(pair) {
        report_typo(draft, &typo, pair);
        return;
    }
    let is_placeholder = pair.placeholder || read.uses(pair);
    // An XML element `<app>` stands for a separate pair before this one.
    let is_app_element = pair.key == "app" && pair.value.as_deref() == Some("");
    let diagnostic = match (&read.strict, is_placeholder || is_app_element || FOREIGN_KEYS.contains(&pair.key.as_str())) {
        (None, true) => return,
        (Some(_), true) => {
            Diagnostic::error(Some(&pair.location), format!("`{}` is not an option, and `strict` is set", pair.key))
                .advise(format!("write `set-placeholder = {}=…` for a placeholder", pair.key))
        }
        (Some(_), false) => Diagnostic::error(Some(&pair.location), format!("unknown option `{}`", pair.key)),
        (None, false) => Diagnostic::warning(Some(&pair.location), format!("unknown option `{}`: it has no effect", pair.key)),
    };
    draft.diagnostics.push(match nearest(&pair.key) {
        Some(nearest) if !is_placeholder => diagnostic.advise(format!("did you mean `{nearest}`?")),
        _ => diagnostic,
    });
}

/// `option value` or `option: value` in a line without `=`, which uWSGI ignores.
fn report_typo(draft: &mut Draft, typo: &Typo, pair: &Pair) {
    let message = format!("`{}` has no `=`: it has no effect", pair.key);
    let diagnostic = match draft.strict {
        true => Diagnostic::error(Some(&pair.location), message),
        false => Diagnostic::warning(Some(&pair.location), message),
    };
    draft.diagnostics.push(diagnostic.advise(format!("write `{} = {}`", typo.row.name(), typo.value)));
    if typo.has_colon && typo.row.name() == "callable" && !draft.strict {
        draft.applications.colon_callable = Some((typo.value.clone(), pair.location.clone()));
    }
}

/// The name of an option, and its probable value.
struct Typo {
    row: &'static OptionRow,
    value: String,
    has_colon: bool,
}

impl Typo {
    fn of(pair: &Pair) -> Option<Typo> {
        if pair.value.as_deref().is_some_and(|value| !value.is_empty()) {
            return None;
        }
        let end = pair.key.find([' ', '\t', ':'])?;
        let (name, rest) = pair.key.split_at(end);
        let row = catalogue().get(name)?;
        let value = rest.trim_start_matches([' ', '\t', ':']).to_owned();
        (!value.is_empty()).then(|| Typo { row, value, has_colon: rest.trim_start().starts_with(':') })
    }
}
