//! What of another configuration can be taken into use while an instance runs, and what needs a restart. It compares, and changes
//! nothing that runs. The master runs it, at a reload.

use bolide_contract::settings::{Settings, Threads};
use serde_json::Value;

use crate::fleet::Room;

/// Sections of the settings that a reload takes into use. A section that is not named here stays as it was until a restart: whoever
/// lets a reload take it writes it down.
const RELOADED: &[&str] = &[
    "reloading",
    "listeners",
    "applications",
    "python",
    "workers",
    "lifecycle",
    "recycling",
    "elastic",
    "limits",
    "logging",
    "naming",
    "clients",
    "asynchronous",
    "routes",
    "answering",
    "files",
    "watching",
    "python_module",
    "attendant",
    "hooks",
];

/// What needs a restart within those sections: where it is, and the option that sets it.
const KEPT: [(&str, &str); 5] = [
    ("/lifecycle/pidfile", "pidfile"),
    ("/logging/file", "logto"),
    ("/reloading/descriptors_most", "max-fd"),
    ("/logging/targets", "logger or req-logger"),
    ("/logging/flows", "logger or log-route"),
];

/// Options of sections that need a restart, where a section is not called like its option.
const SECTION_OPTIONS: [(&str, &str); 5] = [
    ("identity", "uid, gid or umask"),
    ("confinement", "immediate-uid, immediate-gid, chroot, cap or unshare"),
    ("control", "daemonize, pidfile2, safe-pidfile, master-fifo or control-socket"),
    ("statistics", "stats or its kin"),
    ("development", "develop or reload-browser"),
];

/// Another configuration, as far as an instance that runs can have it.
#[derive(Debug)]
pub struct Renewed {
    pub settings: Settings,
    /// The sections that are other ones now.
    pub changed: Vec<String>,
    /// What stays as it was until a restart, by its options.
    pub kept: Vec<String>,
}

/// Takes what can be taken of another configuration.
///
/// # Errors
/// Settings that can't be written down: a fault of our own.
pub fn renewed(in_force: &Settings, wanted: &Settings, room: Room) -> serde_json::Result<Renewed> {
    let (old, mut new) = (serde_json::to_value(in_force)?, serde_json::to_value(wanted)?);
    let (mut changed, mut kept) = (Vec::new(), Vec::new());
    for (pointer, option) in KEPT {
        if let (Some(before), Some(now)) = (old.pointer(pointer), new.pointer_mut(pointer))
            && before != now
        {
            *now = before.clone();
            kept.push(option.to_owned());
        }
    }
    if let (Value::Object(old), Value::Object(new)) = (&old, &mut new) {
        for (section, now) in new.iter_mut() {
            let Some(before) = old.get(section).filter(|before| without_places(before) != without_places(now)) else { continue };
            if RELOADED.contains(&section.as_str()) {
                changed.push(section.clone());
            } else {
                *now = before.clone();
                let named = SECTION_OPTIONS.iter().find(|(known, _)| known == section).map(|(_, options)| *options);
                kept.push(named.map_or_else(|| section.replace('_', "-"), str::to_owned));
            }
        }
    }
    let mut settings: Settings = serde_json::from_value(new)?;
    let workers = &mut settings.workers;
    if workers.processes > room.processes {
        kept.push(format!("processes above {}", room.processes));
        workers.processes = room.processes;
    }
    if workers.threads.most() > room.threads {
        kept.push(format!("threads above {}", room.threads));
        workers.threads = Threads::Fixed(room.threads);
    }
    Ok(Renewed { settings, changed, kept })
}

/// Parts of settings whose change is none: the lines in which they were written, and what `uwsgi.opt` and `uwsgi.magic_table` show,
/// with the time in it. All that is meant by it is in other sections.
const NO_CHANGES: [&str; 3] = ["origin", "shown_options", "shown_magic"];

/// Settings without the lines in which they were written: a line above them changes nothing.
fn without_places(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !NO_CHANGES.contains(&name.as_str()));
            Value::Object(fields.map(|(name, value)| (name.clone(), without_places(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(without_places).collect()),
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { processes: 8, threads: 4 };

    #[test]
    fn what_can_change_does_and_what_cannot_is_named_and_stays() {
        let old = crate::testing::settings();
        let mut new = old.clone();
        new.listeners[0].origin = "uwsgi.ini:9".to_owned();
        assert!(
            renewed(&old, &new, ROOM).is_ok_and(|same| same.settings == new && same.changed.is_empty() && same.kept.is_empty())
        );
        new.workers.processes = 5;
        new.lifecycle.harakiri_ms = Some(3);
        new.lifecycle.pidfile = Some("/run/other.pid".into());
        new.logging.file = Some("/var/log/other".into());
        new.identity.user = Some("nobody".to_owned());
        let found = renewed(&old, &new, ROOM).expect("compared");
        assert_eq!(found.kept, ["pidfile", "logto", "uid, gid or umask"]);
        assert_eq!(found.changed, ["lifecycle", "workers"]);
        assert_eq!((found.settings.workers.processes, found.settings.lifecycle.harakiri_ms), (5, Some(3)));
        assert_eq!((found.settings.lifecycle.pidfile, found.settings.identity), (None, old.identity.clone()));
    }

    #[test]
    fn the_scoreboard_has_no_more_room_than_it_has() {
        let old = crate::testing::settings();
        let mut new = old.clone();
        new.workers.processes = 9;
        new.workers.threads = Threads::Fixed(5);
        let found = renewed(&old, &new, ROOM).expect("compared");
        assert_eq!(found.kept, ["processes above 8", "threads above 4"]);
        assert_eq!((found.settings.workers.processes, found.settings.workers.threads), (8, Threads::Fixed(4)));
    }

    #[test]
    fn every_section_that_is_named_is_one() {
        let settings = serde_json::to_value(crate::testing::settings()).expect("written");
        let named = RELOADED.iter().copied().chain(SECTION_OPTIONS.iter().map(|(section, _)| *section));
        assert!(named.clone().all(|section| settings.get(section).is_some()), "{:?}", named.collect::<Vec<_>>());
        assert!(KEPT.iter().all(|(pointer, _)| settings.pointer(pointer).is_some()));
    }
}
