//! From gunicorn's settings to options: each by its row, and then those that decide something together.

use super::hooks::{CALLED, NOT_CALLED};
use super::table::{Fate, SETTINGS};
use super::{AskedSetting, Carried, SettingKind, together};
use crate::suggest;

/// What gunicorn's settings are here. `variable` tells variables of the environment, from which gunicorn has some defaults.
pub fn carried(asked: &[AskedSetting], variable: impl Fn(&str) -> Option<String>) -> Carried {
    let mut carried = Carried::default();
    for one in asked {
        match SETTINGS.iter().find(|row| row.name == one.name) {
            Some(row) => of_row(row.fate, one, &mut carried),
            None => of_no_row(one, &mut carried),
        }
    }
    together::decide(asked, variable, &mut carried);
    carried.options.sort_by_key(|made| made.line);
    carried.remarks.sort_by_key(|remark| remark.line);
    carried
}

fn of_row(fate: Fate, asked: &AskedSetting, carried: &mut Carried) {
    if asked.kind == SettingKind::Other {
        let shown = asked.word().unwrap_or_default();
        return carried.warn(
            asked,
            format!("its value, {shown}, is neither a text nor a number nor a list of them: it is not carried over"),
        );
    }
    match fate {
        Fate::Option(key) => {
            if let Some(word) = asked.word() {
                carried.option(asked, key, word);
            }
        }
        Fate::Switch(key) => {
            if asked.is_on() {
                carried.option(asked, key, "true");
            }
        }
        Fate::Own(carry) => carry(asked, carried),
        Fate::Together => {}
        Fate::Nothing(why) => carried.note(asked, format!("nothing to do: {why}")),
        Fate::Missing(instead) => {
            let is_on = if asked.kind == SettingKind::Value {
                asked.word().is_some_and(|word| word != "false" && word != "0")
            } else {
                true
            };
            if is_on {
                carried.warn(asked, format!("not carried over: {instead}"));
            }
        }
        Fate::Prototype => {
            if asked.is_on() {
                carried.has_hooks = true;
                carried.note(asked, "it sets up Python's `logging` before the application is loaded; the server's own lines and those of requests go where `logger` and `req-logger` say");
            }
        }
    }
}

/// A hook, something of the file's own, or a slip.
fn of_no_row(asked: &AskedSetting, carried: &mut Carried) {
    if let Some((_, instead)) = NOT_CALLED.iter().find(|(name, _)| *name == asked.name) {
        carried.warn(asked, format!("this hook is not called: {instead}"));
    } else if CALLED.contains(&asked.name.as_str()) {
        carried.has_hooks = true;
    } else if asked.kind == SettingKind::Value {
        let names: Vec<&'static str> = SETTINGS.iter().map(|row| row.name).collect();
        if let Some(nearest) = suggest::nearest_of(&asked.name, &names) {
            carried.warn(
                asked,
                format!("no setting of gunicorn's has this name, and gunicorn passes over it; did you mean `{nearest}`?"),
            );
        }
    }
}
