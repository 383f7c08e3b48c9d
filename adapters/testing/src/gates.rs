//! Named gates at which an application waits until the test opens them. The request gives the name. The threads of a test worker
//! wait here. It does not know requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait of any test: after it, the event will not come.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub trait Gates: Send + Sync {
    /// Returns when the gate of this name is open.
    fn pass(&self, name: &str);
}

/// Gates within this process.
#[derive(Default)]
pub struct LocalGates {
    gates: Mutex<HashMap<String, GateState>>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    waiting: u32,
}

impl LocalGates {
    pub fn open(&self, name: &str) {
        self.lock().entry(name.to_owned()).or_default().is_open = true;
        self.changed.notify_all();
    }

    /// Waits until an application waits at the gate of this name.
    pub fn wait_for_arrival(&self, name: &str) {
        let is_empty = |gates: &mut HashMap<String, GateState>| gates.get(name).is_none_or(|gate| gate.waiting == 0);
        let (_guard, waited) =
            self.changed.wait_timeout_while(self.lock(), TEST_TIMEOUT, is_empty).unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "no client came to the gate {name}");
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GateState>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gates for LocalGates {
    fn pass(&self, name: &str) {
        let mut gates = self.lock();
        gates.entry(name.to_owned()).or_default().waiting += 1;
        self.changed.notify_all();
        let is_shut = |gates: &mut HashMap<String, GateState>| gates.get(name).is_some_and(|gate| !gate.is_open);
        let (mut gates, waited) =
            self.changed.wait_timeout_while(gates, TEST_TIMEOUT, is_shut).unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "no thread opened the gate {name}");
        gates.entry(name.to_owned()).or_default().waiting -= 1;
    }
}

/// Calls a function of the test on the application's thread, in the middle of a call.
pub struct Events<F: Fn(&str) + Send + Sync>(pub F);

impl<F: Fn(&str) + Send + Sync> Gates for Events<F> {
    fn pass(&self, name: &str) {
        self.0(name);
    }
}

/// Gates between processes: named pipes in a directory. Writing to a pipe opens the gate.
pub struct Pipes {
    pub directory: PathBuf,
}

impl Gates for Pipes {
    fn pass(&self, name: &str) {
        // Opening waits for a writer, reading for its end. A missing gate counts as open.
        if let Ok(mut pipe) = File::open(self.directory.join(name)) {
            let _opened_all_the_same = pipe.read_to_end(&mut Vec::new());
        }
    }
}
