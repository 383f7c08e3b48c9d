//! Translates gunicorn's settings to options: each by its row, and gunicorn's defaults where Bolide's have a different effect.

use bolide_configuration::diagnostic::Severity;
use bolide_configuration::suggest;
use bolide_options::row::Argument;
use bolide_options::server::Server;
use bolide_options::topics::gunicorn_hooks::{CALLED, NOT_CALLED};
use serde_json::Value;

use super::{RawSetting, SettingKind, TranslatedSettings};
use crate::row::{Meaning, ServerSetting};
use crate::translate::Refusal;
use crate::translation::{SettingPlace, SettingRemark, Subject, Translation};
use crate::{access_format, flags, setting};

/// gunicorn's default address.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8000";
/// Header fields of a trusted reverse proxy that gunicorn and uvicorn's workers use.
const TRUSTED_HEADERS: &str = "x-forwarded-for, x-forwarded-proto";
const FORWARDED: &str = "forwarded_allow_ips";
/// Settings with which the file configures Python's `logging`; the prototype applies them.
const PYTHON_LOGGING: &str = "logconfig";

/// Translates gunicorn's settings. `variable` returns variables of the environment, from which gunicorn takes some defaults.
pub fn translated(asked: &[RawSetting], variable: impl Fn(&str) -> Option<String>) -> TranslatedSettings {
    let mut translated = TranslatedSettings::default();
    let mut translation = Translation::new(Some(Server::Gunicorn));
    let forwarded = variable("FORWARDED_ALLOW_IPS").map(|list| RawSetting::text(FORWARDED, &list));
    let forwarded = forwarded.filter(|_| !asked.iter().any(|one| one.name == FORWARDED));
    let is_forwarded = forwarded.is_some() || asked.iter().any(|one| one.name == FORWARDED);
    for one in asked.iter().chain(&forwarded) {
        match setting(&one.name) {
            // The file on the command line is read, even if it refers to another one.
            Some(_) if one.name == "config" => {}
            // gunicorn's setting is about the PROXY header. Here one list serves both, and the other setting takes precedence.
            Some(_) if one.name == "proxy_allow_ips" && is_forwarded => {}
            Some(row) => take(row, one, &mut translation, &mut translated),
            None => take_other(one, &mut translation, &mut translated),
        }
    }
    fill_in(asked, variable, &mut translation);
    match translation.finish(None) {
        Ok((options, remarks)) => {
            translated.options = options;
            translated.remarks.extend(remarks);
        }
        Err(refusal) => translated.refuse("bind", 0, &refusal),
    }
    translated.options.sort_by_key(|made| made.line);
    translated.remarks.sort_by_key(|remark| remark.line);
    translated
}

/// Translates one setting.
fn take(row: &ServerSetting, asked: &RawSetting, to: &mut Translation, translated: &mut TranslatedSettings) {
    let place = SettingPlace { name: asked.name.clone(), line: asked.line };
    if asked.kind == SettingKind::Other {
        let shown = asked.word().unwrap_or_default();
        to.place = place;
        return to.warn(format!("its value, {shown}, is not a text, a number or a list of them: it is not carried over"));
    }
    let row = ServerSetting { meaning: row.in_file.unwrap_or(row.meaning), ..*row };
    for value in values_of(&row, asked) {
        translated.has_hooks |= asked.name.starts_with(PYTHON_LOGGING);
        if let Err(refusal) = to.translate_at(&row, &value, place.clone()) {
            translated.refuse(&asked.name, asked.line, &refusal);
        }
    }
}

/// The values of a setting in the form of flags: none if it is off.
fn values_of(row: &ServerSetting, asked: &RawSetting) -> Vec<String> {
    let is_switch = row.argument == Argument::None;
    // Settings without an effect, and refused ones, are reported if they are on.
    let is_reported = matches!(row.meaning, Meaning::Nothing(_) | Meaning::Refused(_)) || asked.name.starts_with(PYTHON_LOGGING);
    let is_plain = asked.kind == SettingKind::Value;
    let word = asked.word().unwrap_or_default();
    let values = match &asked.value {
        Value::Null if is_plain => Vec::new(),
        _ if is_switch && asked.is_on() == row.is_negated => Vec::new(),
        _ if is_switch => return vec![String::new()],
        _ if is_reported && is_plain && !asked.is_set() => Vec::new(),
        _ if is_reported => return vec![word],
        Value::Array(list) => {
            let words = list.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
            match row.meaning {
                Meaning::Same | Meaning::Listed(_) | Meaning::Option(_) | Meaning::Kept(Subject::DirtyApps, ..) => {
                    words.collect()
                }
                _ => vec![words.collect::<Vec<_>>().join(",")],
            }
        }
        // Peers are not trusted at all.
        Value::String(text) if text.is_empty() && asked.name == FORWARDED => vec!["none".to_owned()],
        _ => vec![word],
    };
    values.into_iter().filter(|value| !value.is_empty()).collect()
}

/// Translates a name that is not a setting: a hook, a variable of the file's own, or a typing error.
fn take_other(asked: &RawSetting, to: &mut Translation, translated: &mut TranslatedSettings) {
    to.place = SettingPlace { name: asked.name.clone(), line: asked.line };
    if let Some((_, instead)) = NOT_CALLED.iter().find(|(name, _)| *name == asked.name) {
        to.warn(format!("this hook is not called: {instead}"));
    } else if CALLED.contains(&asked.name.as_str()) {
        translated.has_hooks = true;
    } else if asked.kind == SettingKind::Value {
        let names: Vec<&'static str> = flags().map(|row| row.setting).filter(|name| !name.is_empty()).collect();
        if let Some(nearest) = suggest::nearest_of(&asked.name, &names) {
            to.warn(format!("gunicorn has no setting of this name, and ignores it; did you mean `{nearest}`?"));
        }
    }
}

/// Adds gunicorn's defaults.
fn fill_in(asked: &[RawSetting], variable: impl Fn(&str) -> Option<String>, to: &mut Translation) {
    let line_of = |name: &str| asked.iter().rev().find(|one| one.name == name).map_or(0, |one| one.line);
    let has = |to: &Translation, key: &str| to.made.iter().any(|made| made.key == key);
    let add = |to: &mut Translation, of: &str, key: &str, value: &str| {
        to.place = SettingPlace { name: of.to_owned(), line: line_of(of) };
        to.add(key, value);
    };
    if !to.kept.iter().any(|kept| kept.subject == Subject::Bind && !kept.value.is_empty()) {
        let address = variable("PORT").map_or_else(|| DEFAULT_ADDRESS.to_owned(), |port| format!("0.0.0.0:{port}"));
        to.place = SettingPlace { name: "bind".to_owned(), line: line_of("bind") };
        to.keep(Subject::Bind, &address);
    }
    if !to.has(Subject::Umask) && to.kept.iter().any(|kept| kept.subject == Subject::Bind && kept.value.contains("unix:")) {
        // All users may connect to a UNIX socket of gunicorn.
        to.place = SettingPlace { name: "bind".to_owned(), line: line_of("bind") };
        to.keep(Subject::Umask, "0");
    }
    if let Some(count) = variable("WEB_CONCURRENCY").filter(|_| !has(to, "processes")) {
        add(to, "workers", "processes", &count);
    }
    let class = to.kept.iter().rev().find(|kept| kept.subject == Subject::WorkerClass).map(|kept| kept.value.clone());
    if class.is_some_and(|class| !matches!(class.as_str(), "sync" | "gthread" | "thread")) {
        to.made.retain(|made| made.key != "threads");
    }
    if let Some(threads) = to.made.iter().rev().find(|made| made.key == "threads").map(|made| made.value.clone()) {
        to.keep(Subject::Threads, &threads);
    }
    if !has(to, "master") {
        add(to, "preload_app", "lazy-apps", "true");
    }
    if !to.has(Subject::AccessLog) {
        add(to, "accesslog", "disable-logging", "true");
    } else if !has(to, "log-format") {
        // It contains only known variables.
        let _ = access_format::take(to, access_format::DEFAULT_FORMAT);
    }
    for made in to.made.iter_mut().filter(|made| made.key == "trusted-proxies" && !matches!(made.value.as_str(), "*" | "none")) {
        // gunicorn always trusts peers at UNIX sockets.
        let words: Vec<&str> = made.value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        made.value = if words.contains(&"*") { "*".to_owned() } else { format!("{}, unix", words.join(", ")) };
    }
    if to.made.iter().any(|made| made.key == "trusted-proxies" && made.value != "none") {
        add(to, FORWARDED, "trusted-headers", TRUSTED_HEADERS);
    }
}

impl TranslatedSettings {
    fn refuse(&mut self, name: &str, line: u32, refusal: &Refusal) {
        let message = format!("not carried over: {}", refusal.advice);
        self.remarks.push(SettingRemark { name: name.to_owned(), line, severity: Severity::Error, message });
    }
}
