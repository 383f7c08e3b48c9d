//! Options without an effect. Protective options that are not implemented yet, with `allow-missing`, which starts an instance
//! without them, and unknown keys, which are placeholders, typing errors, or lines that only look like an option. It suggests
//! what was probably meant. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;

use crate::catalog::{catalog, nearest};
use crate::draft::Draft;
use crate::reader::Configuration;
use crate::reader::other_servers::OtherServers;
use crate::row::{OptionRow, Setting, Status};
use crate::topics::application::ApplicationDraft;

/// Keys that others use for their own purposes: Debian's init script in its default configuration, and OpenStack's devstack for
/// the application.
const FOREIGN_KEYS: &[&str] = &["deb-confname", "deb-confnamespace", "start-time"];

/// `allow-missing` applies wherever it is written: it is evaluated before the options that it lists.
pub fn note_allowed(draft: &mut Draft, read: &Configuration) {
    let is_that =
        |pair: &&Pair| catalog().get(&pair.key).is_some_and(|row| matches!(row.status, Status::Supported(Setting::AllowMissing)));
    for pair in read.effects.iter().filter(is_that) {
        let names = pair.value.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        for name in names {
            match catalog().get(name) {
                Some(row) if matches!(row.status, Status::Protective(_)) => draft.allowed_missing.push(row.name()),
                Some(_) => draft.diagnostics.push(Diagnostic::note(
                    Some(&pair.location),
                    format!("`{}`: `{name}` needs no permission, because the option does not protect anything", pair.key),
                )),
                None => {
                    let diagnostic =
                        Diagnostic::error(Some(&pair.location), format!("`{}`: there is no option `{name}`", pair.key));
                    draft.diagnostics.push(match nearest(name) {
                        Some(nearest) => diagnostic.advise(format!("did you mean `{nearest}`?")),
                        None => diagnostic,
                    });
                }
            }
        }
    }
}

/// Reports a protective option that is not implemented.
pub fn protective(draft: &mut Draft, location: &Location, row: &OptionRow, key: &str, instead: &str) {
    let diagnostic = match draft.allowed_missing.contains(&row.name()) {
        true => Diagnostic::warning(
            Some(location),
            format!("`{key}` is not supported yet, and `allow-missing` permits that: its protection is missing"),
        ),
        false => Diagnostic::error(Some(location), format!("`{key}` is not supported yet: its protection would be missing"))
            .advise(format!("{instead}; `allow-missing = {}` starts without it", row.name())),
    };
    draft.diagnostics.push(diagnostic);
}

pub fn report_unknown(draft: &mut Draft, pair: &Pair, read: &Configuration, others: &dyn OtherServers) {
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
    let in_environment = pair.location.variable().and_then(|variable| instead_of_variable(variable, pair, others));
    draft.diagnostics.push(match in_environment.or_else(|| instead_of(&pair.key, others)) {
        Some(advice) if !is_placeholder => diagnostic.advise(advice),
        _ => diagnostic,
    });
}

/// What to write instead of a variable whose name is a flag of the command line alone.
fn instead_of_variable(variable: &str, pair: &Pair, others: &dyn OtherServers) -> Option<String> {
    let value = pair.value.as_deref().unwrap_or_default();
    let prefix = variable.split_once('_').map_or(variable, |(prefix, _)| prefix);
    match pair.key.as_str() {
        "port" => Some(format!("write `{prefix}_HTTP=127.0.0.1:{value}`")),
        "host" => Some(format!("write `{prefix}_HTTP={value}:8000`")),
        "bind" => Some(format!("write `{prefix}_HTTP={value}`")),
        key => {
            let option = others.option_for(key)?;
            Some(format!("write `{prefix}_{}`: {}", option.to_ascii_uppercase().replace('-', "_"), others.advice(key)?))
        }
    }
}

/// What to write instead of an unknown name: a word of another server has a known replacement, another one may be misspelt.
fn instead_of(name: &str, others: &dyn OtherServers) -> Option<String> {
    others.advice(name).or_else(|| nearest(name).map(|nearest| format!("did you mean `{nearest}`?")))
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
        draft.of::<ApplicationDraft>().colon_callable = Some((typo.value.clone(), pair.location.clone()));
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
        let row = catalog().get(name)?;
        let value = rest.trim_start_matches([' ', '\t', ':']).to_owned();
        (!value.is_empty()).then(|| Typo { row, value, has_colon: rest.trim_start().starts_with(':') })
    }
}
