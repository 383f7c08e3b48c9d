//! Where an application waits until it is told to go on, by a name that its request gives. Threads of a worker wait here; whoever tests it
//! opens.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No test waits for longer, in seconds: what is waited for will not come then.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub trait Gates: Send + Sync {
    /// Comes back when the gate of this name is open.
    fn pass(&self, name: &str);
}

/// Gates in this process.
#[derive(Default)]
pub struct Doors {
    doors: Mutex<HashMap<String, Door>>,
    changed: Condvar,
}

#[derive(Default)]
struct Door {
    is_open: bool,
    waiting: u32,
}

impl Doors {
    pub fn open(&self, name: &str) {
        self.lock().entry(name.to_owned()).or_default().is_open = true;
        self.changed.notify_all();
    }

    /// Waits until an application waits at the gate of this name.
    pub fn wait_for_somebody_at(&self, name: &str) {
        let is_empty = |doors: &mut HashMap<String, Door>| doors.get(name).is_none_or(|door| door.waiting == 0);
        let (_guard, waited) =
            self.changed.wait_timeout_while(self.lock(), PATIENCE, is_empty).unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "nobody came to the gate {name}");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Door>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gates for Doors {
    fn pass(&self, name: &str) {
        let mut doors = self.lock();
        doors.entry(name.to_owned()).or_default().waiting += 1;
        self.changed.notify_all();
        let is_shut = |doors: &mut HashMap<String, Door>| doors.get(name).is_some_and(|door| !door.is_open);
        let (mut doors, waited) =
            self.changed.wait_timeout_while(doors, PATIENCE, is_shut).unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "nobody opened the gate {name}");
        doors.entry(name.to_owned()).or_default().waiting -= 1;
    }
}

/// Something that happens while an application is called: the test's own, on the application's thread.
pub struct Events<F: Fn(&str) + Send + Sync>(pub F);

impl<F: Fn(&str) + Send + Sync> Gates for Events<F> {
    fn pass(&self, name: &str) {
        self.0(name);
    }
}

/// Gates between processes: pipes with names in a folder. Whoever writes one opens it.
pub struct Pipes {
    pub folder: PathBuf,
}

impl Gates for Pipes {
    fn pass(&self, name: &str) {
        // Opening waits for a writer, reading for its end. A gate that is not there stops nobody.
        if let Ok(mut pipe) = File::open(self.folder.join(name)) {
            let _opened_all_the_same = pipe.read_to_end(&mut Vec::new());
        }
    }
}
