//! Options that protect and are not there yet, and how a start goes on without them; the modes of files that uWSGI would make. It
//! changes nothing itself; runs in the process that reads the configuration.

use bolide_contract::settings::{Address, Listener};

use super::draft::Draft;
use crate::catalogue::row::{Row, Setting, Status};
use crate::catalogue::{catalogue, nearest};
use crate::diagnostic::{Diagnostic, Location};
use crate::pair::Pair;
use crate::reader::Configuration;

/// Mode of UNIX sockets of an instance in the background that says nothing about it: uWSGI's, but for the bits of execution.
const DAEMONIZED_SOCKET_MODE: u32 = 0o666;

impl Draft<'_> {
    /// `allow-missing` counts wherever it is written: it is looked for before the options that it is about.
    pub(super) fn note_allowed(&mut self, read: &Configuration) {
        let is_that = |pair: &&Pair| {
            catalogue().get(&pair.key).is_some_and(|row| matches!(row.status, Status::Supported(Setting::AllowMissing)))
        };
        for pair in read.effects.iter().filter(is_that) {
            let names = pair.value.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
            for name in names {
                match catalogue().get(name) {
                    Some(row) if matches!(row.status, Status::Protective(_)) => self.allowed_missing.push(row.name()),
                    Some(_) => self.diagnostics.push(Diagnostic::note(
                        Some(&pair.location),
                        format!("`{}`: `{name}` needs no leave, it is no option that protects and is missing", pair.key),
                    )),
                    None => {
                        let diagnostic =
                            Diagnostic::error(Some(&pair.location), format!("`{}`: there is no option `{name}`", pair.key));
                        self.diagnostics.push(match nearest(name) {
                            Some(nearest) => diagnostic.advise(format!("did you mean `{nearest}`?")),
                            None => diagnostic,
                        });
                    }
                }
            }
        }
    }

    /// An option that protects and is not there.
    pub(super) fn protective(&mut self, location: &Location, row: &Row, key: &str, instead: &str) {
        let diagnostic = match self.allowed_missing.contains(&row.name()) {
            true => Diagnostic::warning(
                Some(location),
                format!("`{key}` is not there yet, and `allow-missing` allows it: it protects nothing"),
            ),
            false => {
                Diagnostic::error(Some(location), format!("`{key}` is not there yet: what it protects would be unprotected"))
                    .advise(format!("{instead}; `allow-missing = {}` starts without it", row.name()))
            }
        };
        self.diagnostics.push(diagnostic);
    }

    /// A process that uWSGI daemonizes makes its sockets with an empty umask, so that every user may connect, a front server among them.
    /// The sockets alone are made so here: what the application makes keeps the umask.
    pub(super) fn open_daemonized_sockets(&mut self, read: &Configuration, listeners: &mut [Listener]) {
        let daemonized = read.effects.iter().find(|pair| matches!(pair.key.as_str(), "daemonize" | "daemonize2"));
        let (Some(pair), None) = (daemonized, self.identity.umask) else { return };
        let mut is_opened = false;
        for one in listeners.iter_mut().filter(|one| matches!(one.address, Address::Unix(_)) && one.mode.is_none()) {
            one.mode = Some(DAEMONIZED_SOCKET_MODE);
            is_opened = true;
        }
        if is_opened {
            let message = format!(
                "every user may connect to the UNIX sockets (mode 666): `{}` without `chmod-socket`, as under uWSGI",
                pair.key
            );
            self.diagnostics.push(
                Diagnostic::warning(Some(&pair.location), message)
                    .advise("write `chmod-socket = 660` and `chown-socket = USER:GROUP` for the front server, or `chmod-socket = 666` for everybody"),
            );
        }
    }
}
