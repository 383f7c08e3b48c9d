//! Variables of the configuration: those that the master takes for itself, and the environment of a program that it starts. uWSGI
//! sets them in its own process, so everything that it starts and every time that it writes goes by them. The master takes only
//! those in [`OWN`]: the others choose code, and the master may be root. The master runs it.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

use bolide_contract::loyalty;
use bolide_contract::settings::ApplicationSettings;

use crate::sockets::{service_manager, socket_activation};
use crate::system;

/// The variables of the configuration that count for the master itself: the zone and the language of its lines and its clock.
const OWN: [&str; 2] = ["TZ", "LANG"];
/// Where the files of time zones are that the C library may read for a user's value.
const ZONES: [&str; 2] = ["/usr/share/zoneinfo/", "/etc/localtime"];

/// The values of [`OWN`] at startup.
static AT_START: OnceLock<[Option<OsString>; OWN.len()]> = OnceLock::new();

fn at_start() -> &'static [Option<OsString>; OWN.len()] {
    AT_START.get_or_init(|| OWN.map(std::env::var_os))
}

/// Sets [`OWN`] as these settings say, for this process and what it forks. `has_other_rights`: the application runs as another
/// user, who may have written the values. Returns a warning about a value that is not taken.
pub fn take(application: &ApplicationSettings, has_other_rights: bool) -> Option<String> {
    let mut warning = None;
    for (name, before) in OWN.into_iter().zip(at_start()) {
        let mut value = wanted(name, application, before.as_ref());
        if let Some(text) = value.as_ref().filter(|text| has_other_rights && Some(*text) != before.as_ref())
            && !is_harmless(&text.to_string_lossy())
        {
            let text = text.to_string_lossy();
            warning =
                Some(format!("WARNING: {name} = {text} is a file that root does not read, so it affects only the application"));
            value.clone_from(before);
        }
        if std::env::var_os(name) != value {
            system::set_variable(name, value.as_deref());
        }
    }
    system::read_time_zone();
    warning
}

/// The value of a variable with these settings: `env` counts more than `unenv`, because the later of the two has removed the
/// other.
fn wanted(name: &str, application: &ApplicationSettings, before: Option<&OsString>) -> Option<OsString> {
    let set = application.environment.iter().rev().find(|(key, _)| key == name).map(|(_, value)| OsString::from(value));
    let is_removed = application.removed_variables.iter().any(|removed| removed == name);
    set.or_else(|| before.filter(|_| !is_removed).cloned())
}

/// Returns whether a value is not a path, or one of a zone that the system has installed: the C library would open a FIFO too.
fn is_harmless(value: &str) -> bool {
    let path = value.trim_start_matches(':');
    let is_zone = ZONES.iter().any(|zones| path.starts_with(zones));
    !path.split('/').any(|part| part == "..") && (is_zone || !path.starts_with('/'))
}

/// Gives a program the variables of the configuration, and none of those by which a service manager or an emperor addresses
/// the master: it would pass itself off as that.
pub fn give(command: &mut Command, application: &ApplicationSettings) {
    restore(command);
    for variable in socket_activation::VARIABLES.into_iter().chain(service_manager::VARIABLES).chain([
        loyalty::VARIABLE,
        loyalty::COURT_VARIABLE,
        loyalty::TYRANT_VARIABLE,
    ]) {
        command.env_remove(variable);
    }
    for name in &application.removed_variables {
        command.env_remove(name);
    }
    command.envs(application.environment.iter().map(|(name, value)| (name, value)));
}

/// Gives a program the variables of the configuration. `is_root`: it runs with root's rights, so if the application has its own
/// user, it gets none that choose code and that another user may have written.
pub fn give_with_rights(command: &mut Command, application: &ApplicationSettings, is_root: bool) {
    match is_root {
        true => give(command, &for_root(application)),
        false => give(command, application),
    }
}

/// Gives a program the variables with which this process was started.
pub fn restore(command: &mut Command) {
    for (name, value) in OWN.into_iter().zip(at_start()) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Returns the settings for a program that runs with root's rights although the application has its own user: without the
/// variables that choose code and that another user may have written.
pub fn for_root(application: &ApplicationSettings) -> ApplicationSettings {
    let mut own = application.clone();
    own.environment.retain(|(name, _)| !application.foreign_variables.contains(name));
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(environment: &[(&str, &str)], removed: &[&str]) -> ApplicationSettings {
        ApplicationSettings {
            environment: environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            removed_variables: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..ApplicationSettings::default()
        }
    }

    #[test]
    fn the_last_value_counts_and_without_one_that_of_the_start() {
        let before = OsString::from("UTC");
        let value = |settings: &ApplicationSettings| wanted("TZ", settings, Some(&before)).map(|text| text.into_string());
        assert_eq!(value(&with(&[("TZ", "Asia/Tokyo"), ("TZ", "Europe/Berlin")], &[])), Some(Ok("Europe/Berlin".to_owned())));
        assert_eq!(value(&with(&[("PATH", "/bin")], &[])), Some(Ok("UTC".to_owned())));
        assert_eq!(value(&with(&[], &["TZ"])), None);
    }

    #[test]
    fn another_users_value_opens_no_file_of_theirs() {
        for value in ["Asia/Tokyo", ":Europe/Berlin", "JST-9", "", "/usr/share/zoneinfo/UTC", ":/etc/localtime", "C.UTF-8"] {
            assert!(is_harmless(value), "{value}");
        }
        for value in ["/srv/shop/fifo", ":/srv/shop/fifo", "../../../srv/shop/fifo", "/usr/share/zoneinfo/../../../srv/fifo"] {
            assert!(!is_harmless(value), "{value}");
        }
    }

    #[test]
    fn root_gets_no_variable_that_chooses_code_from_a_file_of_another_user() {
        let mut settings = with(&[("LD_PRELOAD", "/srv/x.so"), ("COLOR", "red")], &[]);
        settings.foreign_variables = vec!["LD_PRELOAD".to_owned()];
        assert_eq!(for_root(&settings).environment, [("COLOR".to_owned(), "red".to_owned())]);
    }
}
