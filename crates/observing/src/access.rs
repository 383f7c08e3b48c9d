//! The right to read the memory of an instance's processes: as this user, else with the workers' permission (Yama), else as their
//! user. It changes the identity of this process at most, and says what to allow if nothing helps. The command-line process runs
//! it.

use std::time::{Duration, Instant};

use bolide_inspection::layout::{MAX_MINOR, MIN_MINOR};
use bolide_inspection::memory::Unreadable;
use bolide_inspection::process::{advice, identity};
use bolide_inspection::python::NoPython;
use bolide_inspection::trace::Reader;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use serde_json::json;

use crate::instances::ask_about;

/// Time in which a process gives its permission, in milliseconds: a signal handler has to run.
const PERMISSION_MS: u64 = 500;
/// Interval at which it is tried, in milliseconds.
const TRY_MS: u64 = 5;

/// Opens processes of one instance.
#[derive(Debug)]
pub struct Access {
    /// The name of the instance.
    instance: Option<String>,
    has_asked: bool,
    has_changed_user: bool,
}

impl Access {
    pub fn to(instance: Option<&str>) -> Access {
        Access { instance: instance.map(str::to_owned), has_asked: false, has_changed_user: false }
    }

    /// The permission is asked for again when it is needed.
    pub fn renew(&mut self) {
        self.has_asked = false;
    }

    /// The same, for a command that goes on: it never becomes the processes' user.
    pub fn as_this_user(instance: Option<&str>) -> Access {
        Access { has_changed_user: true, ..Access::to(instance) }
    }

    /// Opens a process for reading.
    ///
    /// # Errors
    /// Why it can't be read, and what to do.
    pub fn open(&mut self, pid: i32) -> Result<Reader, String> {
        let mut opened = Reader::open(pid);
        if is_forbidden(&opened) && !self.has_asked {
            self.has_asked = true;
            // The master asks all of its processes. Without its answer, the advice below says what is missing.
            drop(ask_about(self.instance.as_deref(), &json!({"ask": "trace", "allow": true})));
            let start = Instant::now();
            while is_forbidden(&opened) && start.elapsed() < Duration::from_millis(PERMISSION_MS) {
                std::thread::sleep(Duration::from_millis(TRY_MS));
                opened = Reader::open(pid);
            }
        }
        if is_forbidden(&opened) && !self.has_changed_user && geteuid().is_root() {
            self.has_changed_user = true;
            // Root of a container has no right to read processes of other users, but may become one of them.
            if become_user_of(pid) {
                opened = Reader::open(pid);
            }
        }
        opened.map_err(|why| in_words(pid, &why))
    }
}

fn is_forbidden(opened: &Result<Reader, NoPython>) -> bool {
    matches!(opened, Err(NoPython::Unreadable(Unreadable::Forbidden)))
}

/// This process takes the user and the group of another one, for good. Returns whether it has.
fn become_user_of(pid: i32) -> bool {
    let Some((user, group)) = identity(pid).filter(|(user, _)| *user != 0) else { return false };
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    setgroups(&[]).and_then(|()| setresgid(group, group, group)).and_then(|()| setresuid(user, user, user)).is_ok()
}

/// Why a process can't be read, and what to do.
pub fn in_words(pid: i32, why: &NoPython) -> String {
    match why {
        NoPython::Unreadable(Unreadable::Forbidden) => format!("its memory can't be read: {}", advice(pid)),
        NoPython::Unreadable(Unreadable::Ended) => "it has exited in the meantime".to_owned(),
        NoPython::Unreadable(Unreadable::Nothing | Unreadable::TooMuch) => {
            "its memory changed too much while it was read; try it again".to_owned()
        }
        NoPython::NotFound => "it does not run a Python whose state can be found".to_owned(),
        NoPython::Unsupported(what) => format!("{what}; stacks can be read for CPython 3.{MIN_MINOR} to 3.{MAX_MINOR}"),
    }
}
