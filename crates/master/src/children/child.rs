//! The life cycle of a child: one table of states and events for prototypes, workers and helpers, and the record that the master
//! keeps of each child. It does not make system calls. The master runs it.

use std::cell::Cell;
use std::fmt;
use std::os::fd::OwnedFd;

use bolide_contract::children::Helper;
use bolide_supervision::processes::life_table::LifeTable;
use nix::unistd::Pid;

/// The state of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker or a helper that its prototype was ordered to fork.
    Ordered,
    /// Not ready yet: a prototype loads the application, a worker or a helper initializes.
    Starting,
    /// Ready: a prototype forks, a worker accepts connections, a helper works.
    Serving,
    /// A worker that serves and waits for its replacement.
    Worn,
    /// Ordered to end when its work is done.
    Ending,
    /// Killed; the kernel has not reported its end yet.
    Killed,
    /// Gone.
    Ended,
}

/// An event in the life of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The process exists: it was executed, or reported as forked.
    Born,
    /// It reported that it has loaded, or that it serves.
    Ready,
    /// It asked for a replacement, or exceeded its lifetime.
    WornOut,
    /// A worn worker keeps serving because there is no replacement.
    Spared,
    /// The master ordered it to end when its work is done.
    ToldToEnd,
    /// The master killed it.
    KillSent,
    /// The kernel or its prototype reported its end.
    Died,
}

/// The transition table. An event without new information leaves the state unchanged: the reports of a worker and of its
/// prototype may arrive in either order, and an order to end may cross both.
#[rustfmt::skip]
const LIFE: LifeTable<State, Event, 7> = {
    use Event::{Born, Died, KillSent, Ready, Spared, ToldToEnd, WornOut};
    use State::{Ended, Ending, Killed, Ordered, Serving, Starting, Worn};
    LifeTable {
        events:     [Born,     Ready,   WornOut,  Spared,   ToldToEnd, KillSent, Died],
        rows: &[
            (Ordered,  [Starting, Serving, Ordered,  Ordered,  Ending,   Killed,  Ended]),
            (Starting, [Starting, Serving, Starting, Starting, Ending,   Killed,  Ended]),
            (Serving,  [Serving,  Serving, Worn,     Serving,  Ending,   Killed,  Ended]),
            (Worn,     [Worn,     Worn,    Worn,     Serving,  Ending,   Killed,  Ended]),
            (Ending,   [Ending,   Ending,  Ending,   Ending,   Ending,   Killed,  Ended]),
            (Killed,   [Killed,   Killed,  Killed,   Killed,   Killed,   Killed,  Ended]),
            (Ended,    [Ended,    Ended,   Ended,    Ended,    Ended,    Ended,   Ended]),
        ],
    }
};

impl State {
    /// Returns the state after an event.
    pub fn after(self, event: Event) -> State {
        LIFE.after(self, event)
    }

    /// Returns whether the child works or soon will: it counts as a member of its generation.
    pub fn is_active(self) -> bool {
        matches!(self, State::Ordered | State::Starting | State::Serving | State::Worn)
    }

    /// Returns whether the child is ready and working.
    pub fn is_serving(self) -> bool {
        matches!(self, State::Serving | State::Worn)
    }
}

/// Returns the table as Markdown, for the documentation.
pub fn as_markdown() -> String {
    LIFE.as_markdown()
}

/// The purpose that a child was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Prototype,
    /// A request worker. `number` starts at 1 and stays the same over generations, like uWSGI's worker ids; `row` is its index in
    /// the scoreboard.
    Worker {
        row: u32,
        number: u32,
    },
    /// A process beside the workers. `number` is its position in the settings' `helpers`, from 1.
    Helper {
        row: u32,
        number: u32,
    },
}

/// Why the master killed a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// It did not end within its time limit (`reload-mercy`).
    Mercy,
    /// A request took longer than `harakiri`.
    Harakiri,
    /// It exceeded a memory limit (`evil-reload-on-rss`, `evil-reload-on-as`).
    Memory,
    /// It is unreachable: its order socket is closed, or it sent a message that no child of ours sends.
    Unreachable,
    /// The instance stops immediately.
    StopNow,
    /// Its generation was abandoned.
    GivenUp,
    /// It did not serve within `load-timeout`.
    Late,
    /// It occupied a scoreboard row that a newer generation needed.
    NoRoom,
    /// It has answered all requests, but its interpreter does not exit.
    InterpreterStays,
    /// It got a signal that ends one process.
    Signaled,
    /// A prototype that was stopped by a signal and did not continue: its workers could not be replaced.
    Stopped,
}

/// The progress of a worker that exits, from its own reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    AtWork,
    /// No request is in flight any more.
    Drained,
    /// The application has ended; the interpreter ends next.
    Leaving,
}

/// A worker's handover before a kill: its connections at rest go to other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// When the order was sent.
    pub ordered_ms: u64,
    /// The number of requests that wait on connections that can't move, once the worker has reported that all others have moved.
    pub waiting: Option<u32>,
    /// The kill that follows.
    pub kill: Option<Kill>,
}

/// A kill that waits for the end of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    pub reason: KillReason,
    /// With `harakiri`: requests that take less time, in milliseconds, may end first.
    pub limit_ms: Option<u64>,
    /// When no other request was found in flight any more.
    pub calm_ms: Option<u64>,
}

/// A worker that a prototype is forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pub number: u32,
    pub pid: Pid,
    /// Its real, effective, saved and filesystem user.
    pub users: [u32; 4],
}

/// The master's record of a child.
#[derive(Debug)]
pub struct Child {
    /// Unique for the life of the master.
    pub id: u64,
    pub role: Role,
    pub generation: u32,
    /// Known once the child was forked.
    pub pid: Option<Pid>,
    /// The prototype that was ordered to fork it, which is its process group. `None`: it is a prototype.
    pub forker: Option<Pid>,
    /// The pidfd. It refers to this process even after its pid was reused.
    pub handle: Option<OwnedFd>,
    /// The master's end of the order socket; `None` when the other end is closed.
    pub channel: Option<OwnedFd>,
    pub state: State,
    pub progress: Progress,
    /// When the child was ordered or executed.
    pub born_ms: u64,
    /// The worker has answered `reload-probe` and waits for `Admit`.
    pub waits_for_admission: bool,
    /// The worker was ordered to end and has reported that it accepts no more connections.
    pub stopped_accepting: bool,
    /// The pause state that the worker was last notified of.
    pub notified_pause: bool,
    /// The worker was notified that the instance leaves its load balancer.
    pub notified_departure: bool,
    /// When it became ready.
    pub ready_ms: Option<u64>,
    /// When the lifetime of a worker is over.
    pub expires_ms: Option<u64>,
    /// The deadline of the current state. The state determines what happens when it passes.
    pub deadline_ms: Option<u64>,
    /// The kill reason for a child that is still ending at its deadline.
    pub deadline_reason: KillReason,
    /// Prototypes only: the worker that became it (`refork-after`). `None`: it was executed.
    pub origin: Option<Origin>,
    /// Prototypes only: one of its workers has served.
    pub has_served: bool,
    /// When a worker or helper that is not ready counts as late (`load-timeout`).
    pub ready_by_ms: Option<u64>,
    /// When a prototype that was stopped by a signal is killed.
    pub stopped_until_ms: Option<u64>,
    /// When a helper that has an order is woken again, if it has not read its orders by then.
    pub wake_again_ms: Cell<Option<u64>>,
    /// A helper's entry in the settings of its generation.
    pub helper: Option<Helper>,
    /// A debugger has stopped the process (development only).
    pub is_halted: bool,
    /// Its application listens for a debugger at a port (development only).
    pub has_debugger_port: bool,
    pub kill_reason: Option<KillReason>,
    /// The last handover of a worker.
    pub handover: Option<Handover>,
    /// The memory file with its state that a worker has handed over at a fault (`crash-reports`).
    pub state_at_fault: Option<OwnedFd>,
}

impl Child {
    pub fn apply(&mut self, event: Event) {
        self.state = self.state.after(event);
    }

    pub fn worker_number(&self) -> Option<u32> {
        match self.role {
            Role::Worker { number, .. } => Some(number),
            Role::Helper { .. } | Role::Prototype => None,
        }
    }

    pub fn helper_number(&self) -> Option<u32> {
        match self.role {
            Role::Helper { number, .. } => Some(number),
            Role::Worker { .. } | Role::Prototype => None,
        }
    }

    /// Returns the name of a helper: `mule 1`.
    pub fn helper_name(&self) -> Option<String> {
        let number = self.helper_number()?;
        Some(self.helper.as_ref().map_or_else(|| format!("helper {number}"), |helper| helper.name(number)))
    }

    pub fn row(&self) -> Option<u32> {
        match self.role {
            Role::Worker { row, .. } | Role::Helper { row, .. } => Some(row),
            Role::Prototype => None,
        }
    }

    pub fn is_prototype(&self) -> bool {
        self.role == Role::Prototype
    }

    /// It serves requests.
    pub fn is_request_worker(&self) -> bool {
        matches!(self.role, Role::Worker { .. })
    }

    /// Moves the deadline closer, never back. Returns whether it moved.
    pub fn shorten_deadline(&mut self, deadline_ms: u64, kill_reason: KillReason) -> bool {
        let nearer = self.deadline_ms.is_none_or(|before| deadline_ms < before);
        if nearer {
            (self.deadline_ms, self.deadline_reason) = (Some(deadline_ms), kill_reason);
        }
        nearer
    }

    /// Returns whether the worker is to be killed as soon as it has handed over.
    pub fn is_condemned(&self) -> bool {
        self.handover.is_some_and(|handover| handover.kill.is_some())
    }

    /// Returns whether this is an active worker that was not notified of the current pause state.
    pub fn needs_pause_order(&self, is_paused: bool) -> bool {
        self.is_request_worker() && self.state.is_active() && self.notified_pause != is_paused
    }

    /// Returns whether this is an active worker that does not know that the instance leaves its load balancer.
    pub fn needs_departure_order(&self) -> bool {
        self.is_request_worker() && self.state.is_active() && !self.notified_departure
    }

    /// Returns the time at which the child counts as late, as long as it is not ready.
    pub fn late_ms(&self) -> Option<u64> {
        self.ready_by_ms.filter(|_| matches!(self.state, State::Ordered | State::Starting))
    }
}

/// Formats as `worker 1 (pid 42)`, `mule 1 (pid 43)` or `the prototype of generation 2 (pid 41)`.
impl fmt::Display for Child {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Worker { number, .. } => write!(formatter, "worker {number}")?,
            Role::Helper { .. } => formatter.write_str(&self.helper_name().unwrap_or_default())?,
            Role::Prototype => write!(formatter, "the prototype of generation {}", self.generation)?,
        }
        match self.pid {
            Some(pid) => write!(formatter, " (pid {pid})"),
            None => write!(formatter, " (not forked yet)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_state_once_and_death_ends_every_life() {
        let states = [State::Ordered, State::Starting, State::Serving, State::Worn, State::Ending, State::Killed, State::Ended];
        for state in states {
            assert_eq!(LIFE.rows.iter().filter(|(of_row, _)| *of_row == state).count(), 1, "{state:?}");
            assert_eq!(state.after(Event::Died), State::Ended);
            assert_eq!(State::Ended.after(Event::Ready), State::Ended);
        }
    }

    #[test]
    fn reports_may_cross_each_other_and_orders() {
        let walk = |events: &[Event]| events.iter().fold(State::Ordered, |state, event| state.after(*event));
        assert_eq!(walk(&[Event::Born, Event::Ready]), State::Serving);
        assert_eq!(walk(&[Event::Ready, Event::Born]), State::Serving);
        assert_eq!(walk(&[Event::ToldToEnd, Event::Born, Event::Ready]), State::Ending);
        assert_eq!(walk(&[Event::KillSent, Event::Born, Event::Ready, Event::ToldToEnd]), State::Killed);
        assert_eq!(walk(&[Event::Ready, Event::WornOut, Event::Ready]), State::Worn);
        assert_eq!(walk(&[Event::Born, Event::WornOut]), State::Starting);
    }

    #[test]
    fn only_a_kill_or_a_death_leads_out_of_an_ordered_end() {
        for event in LIFE.events {
            let after = State::Ending.after(event);
            assert!(matches!(after, State::Ending | State::Killed | State::Ended));
            assert!(!after.is_active());
        }
    }

    #[test]
    fn the_documentation_has_a_row_for_each_state() {
        assert_eq!(as_markdown().lines().count(), 2 + LIFE.rows.len());
        assert!(as_markdown().contains("| Serving | | | Worn | | Ending | Killed | Ended |"));
    }
}
