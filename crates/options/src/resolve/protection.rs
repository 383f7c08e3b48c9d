//! Protective options that are not implemented yet, and `allow-missing`, with which an instance starts without them. Runs in the
//! process that reads the configuration.

use super::draft::Draft;
use crate::catalogue::row::{OptionRow, Setting, Status};
use crate::catalogue::{catalogue, nearest};
use crate::diagnostic::{Diagnostic, Location};
use crate::pair::Pair;
use crate::reader::Configuration;

/// `allow-missing` applies wherever it is written: it is evaluated before the options that it names.
pub fn note_allowed(draft: &mut Draft, read: &Configuration) {
    let is_that = |pair: &&Pair| {
        catalogue().get(&pair.key).is_some_and(|row| matches!(row.status, Status::Supported(Setting::AllowMissing)))
    };
    for pair in read.effects.iter().filter(is_that) {
        let names = pair.value.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        for name in names {
            match catalogue().get(name) {
                Some(row) if matches!(row.status, Status::Protective(_)) => draft.allowed_missing.push(row.name()),
                Some(_) => draft.diagnostics.push(Diagnostic::note(
                    Some(&pair.location),
                    format!("`{}`: `{name}` needs no permission, it is not an option that protects and is missing", pair.key),
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
