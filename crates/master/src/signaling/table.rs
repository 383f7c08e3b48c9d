//! The registrations of a generation for uWSGI's signals: the target of each signal, timers, cron times and files. Reports of
//! several processes that load the same application count once. It fires nothing. The master runs it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bolide_contract::attendant::Schedule;
use bolide_contract::uwsgi_signals::{MAX_EACH, REGISTRATIONS_BYTES, Registration, Registrations, TARGET_BYTES};
use bolide_services::uwsgi_signals::{Members, Target, target_of};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};

/// The registrations of a generation.
#[derive(Debug, Default)]
pub struct Table {
    /// Each registered signal, with its target as written, and the target, or `None` if the instance has none of this name.
    targets: BTreeMap<u8, (String, Option<Target>)>,
    pub timers: Vec<Timer>,
    pub crons: Vec<(u8, Schedule)>,
    pub files: Vec<(u8, PathBuf)>,
    /// What processes have registered while they loaded the application, each by its id in the master.
    loading: Vec<(u64, Vec<Registration>)>,
    /// The registrations of the process that was first to make them.
    loaded: Vec<Registration>,
}

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    pub number: u8,
    pub seconds: u32,
    /// Seconds between two signals. With `timer-engine` an instance asks more often than the timer fires.
    pub every: u32,
    /// `add_timer` keeps its rhythm, `add_rb_timer` counts from each firing.
    pub keeps_time: bool,
    /// How often it still fires; `None` is without end.
    pub left: Option<u32>,
}

impl Timer {
    pub fn new(number: u8, seconds: u32, keeps_time: bool) -> Timer {
        let seconds = seconds.max(1);
        Timer { number, seconds, every: seconds, keeps_time, left: None }
    }

    /// The timer fires once for several instances, of which each asks twice in a period, so that a delay skips none.
    pub fn shared(self) -> Timer {
        Timer { every: (self.seconds / 2).clamp(1, MAX_ASK_SECONDS), ..self }
    }
}

/// What a report has changed, for the log and for the clock.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub problems: Vec<String>,
    pub timers: Vec<Timer>,
    pub crons: Vec<(u8, Schedule)>,
    pub has_files: bool,
}

impl Table {
    /// Returns the target of a signal. `None`: it has no valid one. A signal that is not registered is for any worker.
    pub fn target(&self, number: u8) -> Option<Target> {
        let any = Target::Any(bolide_contract::uwsgi_signals::Pool::Workers);
        self.targets.get(&number).map_or(Some(any), |(_, target)| target.clone())
    }

    /// Returns a timer that the application has registered while it was loaded, or that is configured, as it runs with
    /// `timer-engine`: one that fires in several processes of an instance, or a number of times, is a matter of each instance.
    /// `bolide/uwsgi/unique_timers.py` decides the same.
    pub fn shared(&self, timer: Timer) -> Timer {
        let is_for_all = matches!(self.target(timer.number), Some(Target::Workers | Target::ActiveWorkers | Target::Mules));
        if is_for_all || timer.left.is_some() { timer } else { timer.shared() }
    }

    /// Returns the registered signals with their targets as written.
    pub fn registered(&self) -> impl Iterator<Item = (u8, &str)> {
        self.targets.iter().map(|(number, (text, _))| (*number, text.as_str()))
    }

    /// Takes the report of the child with this id.
    pub fn take(&mut self, id: u64, registrations: Registrations, members: &Members) -> Changes {
        let mut changes = Changes::default();
        for registration in registrations.list {
            if registrations.is_loading && self.is_repeated(id, &registration) {
                continue;
            }
            self.add(registration, registrations.is_loading, members, &mut changes);
        }
        changes
    }

    /// Forgets what an exited child has reported: its replacement reports the same.
    pub fn forget_child(&mut self, id: u64) {
        self.loading.retain(|(known, _)| *known != id);
    }

    /// Whether another process has registered the same while it loaded. Where a process registers the same twice, the second
    /// one is the second of the others.
    fn is_repeated(&mut self, id: u64, registration: &Registration) -> bool {
        if !self.loading.iter().any(|(known, _)| *known == id) {
            self.loading.push((id, Vec::new()));
        }
        let Some((_, own)) = self.loading.iter_mut().find(|(known, _)| *known == id) else { return false };
        let count = |list: &[Registration]| list.iter().filter(|known| *known == registration).count();
        let is_repeated = count(own) < count(&self.loaded);
        if own.len() < MAX_REPORTED {
            own.push(registration.clone());
        }
        if !is_repeated && self.loaded.len() < MAX_REPORTED {
            self.loaded.push(registration.clone());
        }
        is_repeated
    }

    /// A timer that is added while the process serves runs in this generation alone, and not in one that is like it.
    fn add(&mut self, registration: Registration, is_loading: bool, members: &Members, changes: &mut Changes) {
        let is_timer = matches!(registration, Registration::Timer { .. } | Registration::RbTimer { .. });
        let (is_full, what) = match &registration {
            Registration::Handler { .. } => (false, ""),
            Registration::Timer { .. } | Registration::RbTimer { .. } => (self.timers.len() >= MAX_TIMERS, "timers"),
            Registration::Cron { .. } => (self.crons.len() >= MAX_EACH, "cron times"),
            Registration::File { .. } => (self.files.len() >= MAX_EACH, "file monitors"),
        };
        if is_full {
            return changes.problems.push(format!(
                "the application already has the maximum number of {what}, so this one is ignored: \
                    {registration:?}"
            ));
        }
        match registration {
            Registration::Handler { number, target } => self.set_target(number, target, members, changes),
            Registration::Timer { number, seconds } => {
                changes.timers.push(Timer::new(number, seconds, true));
            }
            Registration::RbTimer { number, seconds, iterations } => {
                let left = (iterations > 0).then_some(iterations);
                changes.timers.push(Timer { left, ..Timer::new(number, seconds, false) });
            }
            Registration::Cron { number, schedule } => {
                self.crons.push((number, schedule));
                changes.crons.push((number, schedule));
            }
            Registration::File { number, path } if path.is_absolute() => {
                self.files.push((number, path));
                changes.has_files = true;
            }
            Registration::File { .. } => {}
        }
        if is_loading && self.timers.len() < MAX_TIMERS {
            self.timers.extend(changes.timers.last().filter(|_| is_timer));
        }
    }

    fn set_target(&mut self, number: u8, mut text: String, members: &Members, changes: &mut Changes) {
        if text.len() > TARGET_BYTES {
            text = String::new();
        }
        let target = target_of(&text, members);
        if let Err(why) = &target {
            changes.problems.push(format!("signal {number} has the target `{text}`: {why}; it is dropped whenever it is raised"));
        }
        self.targets.insert(number, (text, target.ok()));
    }
}

/// The longest time between two questions of an instance about a timer, in seconds: how late a period may fire, and how long a
/// period waits whose process has died, beyond `hold-seconds`.
const MAX_ASK_SECONDS: u32 = 10;
/// Timers of both kinds.
pub const MAX_TIMERS: usize = 2 * MAX_EACH;
/// Registrations of a process that are remembered, at most: 256 handlers, and the others.
const MAX_REPORTED: usize = 256 + 5 * MAX_EACH;

/// Reads a report with registrations. It trusts nothing in it, because the reporting processes may run as another user. Returns
/// `None` unless it is a sealed memory file with registrations in it, because only then does reading never block.
pub fn read_registrations(file: OwnedFd) -> Option<Registrations> {
    let seals = fcntl(file.as_fd(), FcntlArg::F_GET_SEALS).ok().map(SealFlag::from_bits_truncate)?;
    let file = File::from(file);
    let bytes = usize::try_from(file.metadata().ok()?.len()).ok()?;
    if !seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK) || bytes > REGISTRATIONS_BYTES {
        return None;
    }
    let mut text = vec![0; bytes];
    file.read_exact_at(&mut text, 0).ok()?;
    let mut registrations: Registrations = serde_json::from_slice(&text).ok()?;
    registrations.raised.truncate(MAX_EACH);
    Some(registrations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::uwsgi_signals::Pool;

    fn timer(number: u8) -> Registration {
        Registration::Timer { number, seconds: 5 }
    }

    fn report(is_loading: bool, list: &[Registration]) -> Registrations {
        Registrations { is_loading, list: list.to_vec(), raised: Vec::new() }
    }

    fn numbers(table: &Table) -> Vec<u8> {
        table.timers.iter().map(|timer| timer.number).collect()
    }

    #[test]
    fn what_each_worker_registers_while_it_loads_counts_once() {
        let mut table = Table::default();
        let members = Members { workers: 2, ..Members::default() };
        for id in 1..4 {
            // One process may register the same twice, in one report or in two.
            table.take(id, report(true, &[timer(1), timer(2), timer(1)]), &members);
            table.take(id, report(true, &[timer(3)]), &members);
        }
        assert_eq!(numbers(&table), [1, 2, 1, 3]);
        // A replacement of a worker is another process.
        table.forget_child(1);
        table.take(4, report(true, &[timer(1), timer(1), timer(2), timer(3), timer(4)]), &members);
        assert_eq!(numbers(&table), [1, 2, 1, 3, 4]);
        // While it serves, each call counts.
        let changes = table.take(4, report(false, &[timer(1)]), &members);
        assert_eq!((changes.timers.len(), numbers(&table).len()), (1, 5));
    }

    #[test]
    fn a_target_that_the_instance_has_not_is_told_and_gets_nothing() {
        let mut table = Table::default();
        let handler = |number, target: &str| Registration::Handler { number, target: target.to_owned() };
        let members = Members { workers: 1, ..Members::default() };
        let changes = table.take(1, report(true, &[handler(1, "workers"), handler(2, "mule1")]), &members);
        assert_eq!(changes.problems.len(), 1, "{changes:?}");
        assert_eq!((table.target(1), table.target(2)), (Some(Target::Workers), None));
        assert_eq!(table.target(9), Some(Target::Any(Pool::Workers)));
    }

    #[test]
    fn an_instance_asks_about_a_shared_timer_twice_in_a_period_and_every_ten_seconds() {
        let mut table = Table::default();
        let members = Members { workers: 2, ..Members::default() };
        let handler = Registration::Handler { number: 2, target: "workers".to_owned() };
        table.take(1, report(true, &[handler]), &members);
        let every = |timer| table.shared(timer).every;
        assert_eq!([1, 2, 9, 60].map(|seconds| every(Timer::new(1, seconds, true))), [1, 1, 4, 10]);
        assert_eq!(every(Timer::new(2, 60, true)), 60, "each worker runs it");
        assert_eq!(every(Timer { left: Some(3), ..Timer::new(1, 60, false) }), 60);
    }

    #[test]
    fn there_is_a_most_of_each_kind() {
        let mut table = Table::default();
        let cron = Registration::Cron { number: 1, schedule: Schedule::ALWAYS };
        let changes = table.take(1, report(false, &vec![cron; MAX_EACH + 2]), &Members::default());
        assert_eq!((table.crons.len(), changes.problems.len()), (MAX_EACH, 2));
        let relative = Registration::File { number: 1, path: PathBuf::from("relative") };
        table.take(1, report(false, &[relative]), &Members::default());
        assert_eq!(table.files, []);
    }
}
