//! hypercorn's configuration in TOML: each setting becomes options by the row of its flag. It opens nothing, and must not know
//! the effect of an option. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::Severity;
use bolide_options::row::Argument;
use bolide_options::server::Server;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::row::Meaning;
use super::translation::{SettingPlace, SettingRemark, Subject, Translation};
use super::{MadeOption, long};

/// Settings whose flags have other names, with dashes.
const NAMES: &[(&str, &str)] = &[
    ("access_log_format", "access-logformat"),
    ("accesslog", "access-logfile"),
    ("errorlog", "error-logfile"),
    ("keep_alive_timeout", "keep-alive"),
    ("logconfig", "log-config"),
    ("loglevel", "log-level"),
    ("pid_path", "pid"),
    ("server_names", "server-name"),
    ("use_reloader", "reload"),
];
/// Settings without a flag, with their options if the value is not hypercorn's default.
const SWITCHES: &[(&str, &str, &str)] =
    &[("include_date_header", "del-header", "Date"), ("include_server_header", "del-header", "Server")];
/// Settings without an equivalent.
const NO_EFFECT: &[&str] = &[
    "alpn_protocols",
    "alt_svc_headers",
    "dogstatsd_tags",
    "h11_max_incomplete_size",
    "h11_pass_raw_headers",
    "h2_max_concurrent_streams",
    "h2_max_header_list_size",
    "h2_max_inbound_frame_size",
    "keep_alive_max_requests",
    "logconfig_dict",
    "logger_class",
    "max_app_queue_size",
    "shutdown_timeout",
    "ssl_handshake_timeout",
    "startup_timeout",
    "verify_flags",
    "websocket_max_message_size",
    "wsgi_max_body_size",
];
const APPLICATION: &str = "application_path";
/// The default address.
const ADDRESS: &str = "127.0.0.1:8000";

/// Returns whether a text is such a configuration: one of its settings is at the top, and no table is Bolide's.
pub fn is_configuration(text: &str) -> bool {
    let Ok(top) = DeTable::parse(text) else { return false };
    let is_plain = |value: &DeValue<'_>| !matches!(value, DeValue::Table(_));
    top.get_ref().iter().any(|(name, value)| is_plain(value.get_ref()) && is_setting(name.get_ref()))
        && !top.get_ref().contains_key("uwsgi")
}

/// Translates the settings of a text, with `line_at` for the line of an offset.
pub fn translated(text: &str, line_at: impl Fn(usize) -> u32) -> (Vec<MadeOption>, Vec<SettingRemark>) {
    let mut translation = Translation::new(Some(Server::Hypercorn));
    let Ok(top) = DeTable::parse(text) else { return Default::default() };
    let mut settings: Vec<_> = top.get_ref().iter().collect();
    settings.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in settings {
        let place = SettingPlace { name: name.get_ref().to_string(), line: line_at(name.span().start) };
        take(&mut translation, place, &texts(value, text));
    }
    if !translation.has(Subject::Bind) {
        translation.place = SettingPlace { name: "bind".to_owned(), line: 0 };
        translation.keep(Subject::Bind, ADDRESS);
    }
    let mut remarks = std::mem::take(&mut translation.remarks);
    match translation.finish(None) {
        Ok((options, more)) => {
            remarks.extend(more);
            (options, remarks)
        }
        Err(refusal) => {
            let message = format!("{}: {}", refusal.message, refusal.advice);
            remarks.push(SettingRemark { name: "bind".to_owned(), line: 0, severity: Severity::Error, message });
            (Vec::new(), remarks)
        }
    }
}

fn is_setting(name: &str) -> bool {
    name == APPLICATION
        || NO_EFFECT.contains(&name)
        || SWITCHES.iter().any(|(known, ..)| *known == name)
        || row_name(name).is_some()
}

/// The name of the flag of a setting, if it has one.
fn row_name(name: &str) -> Option<String> {
    let own = NAMES.iter().find(|(setting, _)| *setting == name).map(|(_, flag)| (*flag).to_owned());
    let flag = own.unwrap_or_else(|| name.replace('_', "-"));
    long(Some(Server::Hypercorn), &flag).map(|_| flag)
}

fn take(to: &mut Translation, place: SettingPlace, values: &[String]) {
    let name = place.name.clone();
    to.place = place.clone();
    if name == APPLICATION {
        return values.iter().for_each(|value| to.add("module", value));
    }
    if let Some((_, key, value)) = SWITCHES.iter().find(|(known, ..)| *known == name) {
        if values.iter().any(|value| value == "false") {
            to.add(key, value);
        }
        return;
    }
    if NO_EFFECT.contains(&name.as_str()) {
        return to.note("nothing to do: it has no equivalent here");
    }
    let Some(row) = row_name(&name).and_then(|flag| long(Some(Server::Hypercorn), &flag)) else {
        return to.warn("hypercorn has no setting of this name, and neither has Bolide: it has no effect");
    };
    let is_switch = row.argument == Argument::None;
    for value in values {
        if is_switch && value == "false" || value.is_empty() {
            continue;
        }
        let value = if is_switch { "" } else { value };
        if let Err(refusal) = to.translate_at(row, value, place.clone()) {
            let is_all = matches!(row.meaning, Meaning::Refused(_));
            let message = if is_all { refusal.advice } else { format!("{}: {}", refusal.message, refusal.advice) };
            to.remark(Severity::Error, format!("not carried over: {message}"));
        }
    }
}

/// The values of a setting as texts.
fn texts(value: &Spanned<DeValue<'_>>, text: &str) -> Vec<String> {
    match value.get_ref() {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Array(list) => list.iter().flat_map(|one| texts(one, text)).collect(),
        _ => vec![text.get(value.span()).unwrap_or_default().to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<String> {
        translated(text, |_| 1).0.iter().map(|made| format!("{}={}", made.key, made.value)).collect()
    }

    #[test]
    fn test_settings_of_hypercorn_become_options() {
        let text = "bind = [\"0.0.0.0:80\", \"unix:x.sock\"]\nworkers = 2\naccesslog = \"-\"\ngraceful_timeout = 20\n\
            include_server_header = false\nuse_reloader = false\nworker_class = \"uvloop\"\nh2_max_concurrent_streams = 9\n";
        assert!(is_configuration(text));
        let made = options(text);
        for wanted in [
            "http=0.0.0.0:80",
            "http-socket=unix:x.sock",
            "workers=2",
            "worker-reload-mercy=20",
            "del-header=Server",
            "loop=uvloop",
        ] {
            assert!(
                made.contains(&wanted.to_owned()) || made.contains(&wanted.replace("workers", "processes")),
                "{wanted}: {made:?}"
            );
        }
        assert!(!made.iter().any(|made| made.starts_with("develop")), "{made:?}");
        assert!(options("workers = 2\n").contains(&"http=127.0.0.1:8000".to_owned()));
        let secure = "bind = \"a:1\"\ninsecure_bind = \"a:2\"\ncertfile = \"c.pem\"\nkeyfile = \"k.pem\"\n";
        assert!(["https=a:1", "http=a:2"].iter().all(|wanted| options(secure).contains(&(*wanted).to_owned())));
    }

    #[test]
    fn test_a_configuration_of_another_program_is_none_of_hypercorns() {
        for text in ["[uwsgi]\nbind = 1\n", "[tool.x]\na = 1\n", "color = 1\n", "= 2", ""] {
            assert!(!is_configuration(text), "{text}");
        }
    }

    #[test]
    fn test_a_setting_without_an_equivalent_is_reported() {
        let (_, remarks) = translated("bind = \"a:1\"\nworker_class = \"trio\"\nshutdown_timeout = 3\nbindd = 1\n", |_| 1);
        let of = |severity| remarks.iter().filter(|remark| remark.severity == severity).count();
        assert_eq!((of(Severity::Error), of(Severity::Note), of(Severity::Warning)), (1, 1, 1), "{remarks:?}");
    }
}
