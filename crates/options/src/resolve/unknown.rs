//! Keys that are no options: placeholders, slips of the pen, and what only looks like an option. Says what was probably meant.

use super::Draft;
use crate::catalogue::catalogue;
use crate::catalogue::row::{Row, Status};
use crate::catalogue::setting::Setting;
use crate::finding::Finding;
use crate::reader::{Configuration, Pair};

/// Keys that others set for their own use: Debian's init script for its default configuration, OpenStack's devstack to be read
/// by the application.
const NOT_OURS: &[&str] = &["deb-confname", "deb-confnamespace", "start-time"];

impl Draft<'_> {
    pub(super) fn unknown(&mut self, pair: &Pair, read: &Configuration) {
        if let Some(slip) = Slip::of(pair) {
            self.slip(&slip, pair);
            return;
        }
        let is_placeholder = pair.placeholder || read.uses(pair);
        // What an XML element `<app>` stands for is a pair of its own, before this one.
        let is_app_element = pair.key == "app" && pair.value.as_deref() == Some("");
        let finding = match (&read.strict, is_placeholder || is_app_element || NOT_OURS.contains(&pair.key.as_str())) {
            (None, true) => return,
            (Some(_), true) => Finding::error(Some(&pair.place), format!("`{}` is not an option, and `strict` is set", pair.key))
                .advise(format!("write `set-placeholder = {}=…` for a placeholder", pair.key)),
            (Some(_), false) => Finding::error(Some(&pair.place), format!("unknown option `{}`", pair.key)),
            (None, false) => Finding::warning(Some(&pair.place), format!("unknown option `{}`: it has no effect", pair.key)),
        };
        self.findings.push(match crate::suggest::nearest(&pair.key) {
            Some(nearest) if !is_placeholder => finding.advise(format!("did you mean `{nearest}`?")),
            _ => finding,
        });
    }

    /// `option value` or `option: value` in a line without `=`. uWSGI takes no notice of it.
    fn slip(&mut self, slip: &Slip, pair: &Pair) {
        let message = format!("`{}` has no `=`: it has no effect", pair.key);
        let finding = match self.strict {
            true => Finding::error(Some(&pair.place), message),
            false => Finding::warning(Some(&pair.place), message),
        };
        self.findings.push(finding.advise(format!("write `{} = {}`", slip.row.name(), slip.value)));
        if slip.has_colon && matches!(slip.row.status, Status::Supported(Setting::Callable)) && !self.strict {
            self.colon_callable = Some((slip.value.clone(), pair.place.clone()));
        }
    }
}

/// The name of an option, and what was probably meant as its value.
struct Slip {
    row: &'static Row,
    value: String,
    has_colon: bool,
}

impl Slip {
    fn of(pair: &Pair) -> Option<Slip> {
        if pair.value.as_deref().is_some_and(|value| !value.is_empty()) {
            return None;
        }
        let end = pair.key.find([' ', '\t', ':'])?;
        let (name, rest) = pair.key.split_at(end);
        let row = catalogue().get(name)?;
        let value = rest.trim_start_matches([' ', '\t', ':']).to_owned();
        (!value.is_empty()).then(|| Slip { row, value, has_colon: rest.trim_start().starts_with(':') })
    }
}
