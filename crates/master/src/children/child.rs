//! The life of a child: one table of states and events, for prototypes, workers and helpers alike, and the record that the master
//! keeps of each. It makes no system call. The master runs it.

use std::fmt;
use std::os::fd::OwnedFd;

use nix::unistd::Pid;

/// Where a child is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker or a helper that its prototype was told to fork.
    Ordered,
    /// A process that is not ready: a prototype loads the application, a worker prepares to serve, a helper to work.
    Starting,
    /// Ready: a prototype forks, a worker accepts connections, a helper works.
    Serving,
    /// A worker that serves and waits for its replacement.
    Worn,
    /// Told to end when its work is done.
    Ending,
    /// Killed; the kernel has not told its end yet.
    Killed,
    /// Gone.
    Ended,
}

/// An event in the life of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It exists: executed, or reported as forked.
    Born,
    /// It reported that it is loaded, or serves.
    Ready,
    /// It asked for its replacement, or is past its lifetime.
    WornOut,
    /// A worn worker is to serve on: there is no replacement.
    Spared,
    /// The master told it to end when its work is done.
    ToldToEnd,
    /// The master killed it.
    KillSent,
    /// The kernel or its prototype reported its end.
    Died,
}

const EVENTS: [Event; 7] =
    [Event::Born, Event::Ready, Event::WornOut, Event::Spared, Event::ToldToEnd, Event::KillSent, Event::Died];

/// The table: a row a state, a column an event, in the order of [`EVENTS`]. An event that says nothing new leaves the state:
/// a worker's own report and its prototype's may come in either order, and an order to end crosses with both.
#[rustfmt::skip]
const TABLE: [(State, [State; EVENTS.len()]); 7] = {
    use State::{Ended, Ending, Killed, Ordered, Serving, Starting, Worn};
    [
        //           Born      Ready    WornOut   Spared    ToldToEnd KillSent Died
        (Ordered,  [Starting, Serving, Ordered,  Ordered,  Ending,   Killed,  Ended]),
        (Starting, [Starting, Serving, Starting, Starting, Ending,   Killed,  Ended]),
        (Serving,  [Serving,  Serving, Worn,     Serving,  Ending,   Killed,  Ended]),
        (Worn,     [Worn,     Worn,    Worn,     Serving,  Ending,   Killed,  Ended]),
        (Ending,   [Ending,   Ending,  Ending,   Ending,   Ending,   Killed,  Ended]),
        (Killed,   [Killed,   Killed,  Killed,   Killed,   Killed,   Killed,  Ended]),
        (Ended,    [Ended,    Ended,   Ended,    Ended,    Ended,    Ended,   Ended]),
    ]
};

impl State {
    /// The state after an event.
    pub fn after(self, event: Event) -> State {
        let row = TABLE.iter().find(|(state, _)| *state == self);
        let column = EVENTS.iter().position(|known| *known == event);
        match (row, column) {
            (Some((_, next)), Some(column)) => next[column],
            // A test holds the table complete; a state that it lacked would stay as it is.
            _ => self,
        }
    }

    /// The child does its work, or soon will: it counts among those that a generation has.
    pub fn is_active(self) -> bool {
        matches!(self, State::Ordered | State::Starting | State::Serving | State::Worn)
    }

    /// The child is ready and at work.
    pub fn is_serving(self) -> bool {
        matches!(self, State::Serving | State::Worn)
    }
}

/// The table as Markdown, for the documentation.
pub fn as_markdown() -> String {
    let heads: String = EVENTS.iter().map(|event| format!(" {event:?} |")).collect();
    let mut page = format!("| state |{heads}\n|---|{}\n", "---|".repeat(EVENTS.len()));
    for (state, next) in TABLE {
        let cells: String =
            next.iter().map(|after| if *after == state { " |".to_owned() } else { format!(" {after:?} |") }).collect();
        page += &format!("| {state:?} |{cells}\n");
    }
    page
}

/// The work that a child was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Prototype,
    /// A request worker. `number` is 1 and up and stays over generations, as uWSGI's worker ids do; `row` is its place in the scoreboard.
    Worker {
        row: u32,
        number: u32,
    },
    /// It works beside the workers. `number` is its place in the settings' `helpers`, from 1.
    Helper {
        row: u32,
        number: u32,
    },
}

/// Why the master killed a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillReason {
    /// It had its time to end (`reload-mercy`) and did not.
    Mercy,
    /// A request took longer than `harakiri`.
    Harakiri,
    /// It had more memory than it may (`evil-reload-on-rss`, `evil-reload-on-as`).
    Memory,
    /// It can't be told anything any more: its order socket is closed, or it sent what no child of ours sends.
    OutOfReach,
    /// Everything ends at once.
    StopNow,
    /// Its generation is given up.
    GivenUp,
    /// It did not serve within `load-timeout`.
    Late,
    /// It was in the way of a newer generation, which had no row of the scoreboard left.
    InTheWay,
    /// It has answered everything, and its interpreter does not end.
    InterpreterStays,
    /// A prototype that was stopped by a signal and did not go on: nobody could replace its workers.
    Stopped,
}

/// Progress of a worker that ends, as it reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    AtWork,
    /// No request is in flight any more.
    Drained,
    /// The application has ended, and the interpreter follows.
    Leaving,
}

/// The master's record of a child.
#[derive(Debug)]
pub struct Child {
    /// Never used twice in the life of a master.
    pub id: u64,
    pub role: Role,
    pub generation: u32,
    /// Known once it was forked.
    pub pid: Option<Pid>,
    /// Names the process, also when its number is another's.
    pub handle: Option<OwnedFd>,
    /// The master's end of its order socket; `None` when the other end is gone.
    pub channel: Option<OwnedFd>,
    pub state: State,
    pub progress: Progress,
    /// When it was ordered or executed.
    pub born_ms: u64,
    /// A worker that has answered `reload-probe`, and waits for `Admit`.
    pub waits_for_admission: bool,
    /// A worker that was told to end has said that it accepts nobody any more.
    pub has_left: bool,
    /// A worker was told last that the instance is paused.
    pub knows_pause: bool,
    /// When it became ready.
    pub ready_ms: Option<u64>,
    /// When a worker is past its lifetime.
    pub expires_ms: Option<u64>,
    /// When patience with it ends: what follows depends on the state.
    pub deadline_ms: Option<u64>,
    /// The reason of the kill when the deadline of a child that ends is over.
    pub deadline_reason: KillReason,
    /// Of a prototype: a worker of it has served.
    pub has_served: bool,
    /// When a prototype that was stopped by a signal is killed.
    pub stopped_until_ms: Option<u64>,
    /// A debugger has stopped it, in development.
    pub is_halted: bool,
    pub kill_reason: Option<KillReason>,
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

    /// Brings the end of patience nearer, never further away. Gives whether it did.
    pub fn hurry(&mut self, deadline_ms: u64, kill_reason: KillReason) -> bool {
        let nearer = self.deadline_ms.is_none_or(|before| deadline_ms < before);
        if nearer {
            (self.deadline_ms, self.deadline_reason) = (Some(deadline_ms), kill_reason);
        }
        nearer
    }

    /// A worker at work that was not told whether the instance is paused.
    pub fn lacks_pause(&self, is_paused: bool) -> bool {
        self.is_request_worker() && self.state.is_active() && self.knows_pause != is_paused
    }

    /// When it is late, if it has to be ready within so many milliseconds.
    pub fn late_ms(&self, load_timeout_ms: Option<u64>) -> Option<u64> {
        let waits = matches!(self.state, State::Ordered | State::Starting);
        load_timeout_ms.filter(|_| waits).map(|timeout| self.born_ms.saturating_add(timeout))
    }
}

/// `worker 1 (pid 42)`, `the prototype of generation 2 (pid 41)`.
impl fmt::Display for Child {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Worker { number, .. } => write!(formatter, "worker {number}")?,
            Role::Helper { number, .. } => write!(formatter, "helper {number}")?,
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
            assert_eq!(TABLE.iter().filter(|(of_row, _)| *of_row == state).count(), 1, "{state:?}");
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
        for event in EVENTS {
            let after = State::Ending.after(event);
            assert!(matches!(after, State::Ending | State::Killed | State::Ended));
            assert!(!after.is_active());
        }
    }

    #[test]
    fn the_documentation_has_a_row_for_each_state() {
        assert_eq!(as_markdown().lines().count(), 2 + TABLE.len());
        assert!(as_markdown().contains("| Serving | | | Worn | | Ending | Killed | Ended |"));
    }
}
