//! The log line about the end of a process: its cause, from the raw wait status, and the requests that were in flight. It does
//! not know processes. The master and its attendant run it.

use bolide_scoreboard::{InFlight, Remembered};
use bolide_services::route_names::masked;

use crate::processes::signals;
use crate::text::{duration, printable};

/// Requests that a line lists; the rest are counted.
const MAX_REQUESTS_NAMED: usize = 3;
/// Answered requests that the line about a death names. A crash report contains all that the worker remembers.
const MAX_LAST_NAMED: usize = 5;

/// The cause of a process' end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It exited with this status.
    Exited(i32),
    /// A signal has ended it.
    Signaled {
        /// The number of the signal.
        signal: i32,
        /// Whether the kernel has written a core file.
        core_dumped: bool,
    },
    /// Its prototype could not fork it, with this errno.
    NotForked(i32),
    /// It is gone, and so is the process that could have reported its status.
    Unknown,
}

impl Cause {
    /// Whether a fault of the processor has ended the process.
    pub fn is_fault(&self) -> bool {
        matches!(self, Cause::Signaled { signal: libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL, .. })
    }

    /// The cause in a raw wait status.
    pub fn from_status(status: i32) -> Cause {
        if libc::WIFEXITED(status) {
            Cause::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Cause::Signaled { signal: libc::WTERMSIG(status), core_dumped: libc::WCOREDUMP(status) }
        } else {
            Cause::Unknown
        }
    }

    /// `was killed by SIGSEGV, core dumped`, `exited with status 3`.
    pub fn words(&self) -> String {
        match self {
            Cause::Exited(status) => format!("exited with status {status}"),
            Cause::Signaled { signal, core_dumped } => {
                let core = if *core_dumped { ", core dumped" } else { "" };
                format!("was killed by {}{core}", signals::name(*signal))
            }
            Cause::NotForked(errno) => format!("could not be forked: {}", std::io::Error::from_raw_os_error(*errno)),
            Cause::Unknown => "is gone, and its exit status is unknown".to_owned(),
        }
    }

    /// Like [`Cause::words`], for a process that may have been told to end by signal `told`: an ordered end is not a failure.
    pub fn words_after(&self, told: Option<i32>) -> String {
        match (self, told) {
            (Cause::Exited(0), Some(_)) => "ended".to_owned(),
            (Cause::Exited(status), Some(_)) => format!("ended with status {status}"),
            (Cause::Signaled { signal, core_dumped: false }, Some(told)) if *signal == told => {
                format!("ended on {}", signals::name(told))
            }
            _ => self.words(),
        }
    }
}

/// `GET /a (for 120 ms), GET /b (request 5f0c, for 2.0 s) and 3 others`; empty when nothing was in flight.
pub fn requests(in_flight: &[InFlight], now_ms: u64) -> String {
    let named: Vec<String> = in_flight
        .iter()
        .take(MAX_REQUESTS_NAMED)
        .map(|request| {
            let named = match request.identifier.as_str() {
                "" => String::new(),
                identifier => format!("request {}, ", printable(identifier)),
            };
            format!("{} ({named}for {})", printable(&masked(&request.text)), duration(now_ms.saturating_sub(request.began_ms)))
        })
        .collect();
    let rest = in_flight.len().saturating_sub(MAX_REQUESTS_NAMED);
    let others = match rest {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        _ => format!(" and {rest} others"),
    };
    named.join(", ") + &others
}

/// Returns the requests in flight of those that a worker remembers: first those that a thread is in a call for, then those that
/// wait for their client or in an asynchronous application; the oldest first.
pub fn open(remembered: &[(u32, Remembered)]) -> Vec<InFlight> {
    let mut open: Vec<&(u32, Remembered)> = remembered.iter().filter(|(_, request)| request.end.is_none()).collect();
    open.sort_by_key(|(_, request)| (!request.is_called, request.began_ms));
    let in_flight = |(thread, request): &(u32, Remembered)| InFlight {
        slot: 0,
        thread: *thread,
        began_ms: request.began_ms,
        count: request.number,
        limit_ms: 0,
        text: request.text.clone(),
        identifier: String::new(),
    };
    open.into_iter().map(in_flight).collect()
}

/// `GET /b (200 in 3 ms, 2.1 s ago), GET /a (…)`: the last answered requests, the newest first. `None`: there are none.
pub fn last_requests(remembered: &[(u32, Remembered)], now_ms: u64) -> Option<String> {
    let mut ended: Vec<(u64, String)> = remembered
        .iter()
        .rev()
        .filter_map(|(_, request)| {
            let end = request.end.filter(|end| end.status > 0)?;
            let ended_ms = request.began_ms + end.microseconds / 1000;
            let (status, took) = (end.status, duration(end.microseconds / 1000));
            let ago = duration(now_ms.saturating_sub(ended_ms));
            Some((ended_ms, format!("{} ({status} in {took}, {ago} ago)", printable(&masked(&request.text)))))
        })
        .collect();
    ended.sort_by_key(|(ended_ms, _)| std::cmp::Reverse(*ended_ms));
    let named: Vec<String> = ended.into_iter().take(MAX_LAST_NAMED).map(|(_, text)| text).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// ` while it served GET /a (for 120 ms)`; empty when nothing was in flight.
pub fn while_serving(in_flight: &[InFlight], now_ms: u64) -> String {
    if in_flight.is_empty() { String::new() } else { format!(" while it served {}", requests(in_flight, now_ms)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_scoreboard::{End, Phase};

    fn request(text: &str, began_ms: u64) -> InFlight {
        InFlight { slot: 0, thread: 0, began_ms, count: 1, limit_ms: 0, text: text.to_owned(), identifier: String::new() }
    }

    #[test]
    fn causes_are_told_by_name() {
        assert_eq!(Cause::from_status(3 << 8).words(), "exited with status 3");
        assert_eq!(Cause::from_status(libc::SIGSEGV).words(), "was killed by SIGSEGV");
        assert_eq!(Cause::from_status(libc::SIGABRT | 0x80).words(), "was killed by SIGABRT, core dumped");
        assert_eq!(Cause::from_status(bolide_contract::message::stack_signal()).words(), "was killed by SIGRTMIN+10");
        assert!(Cause::NotForked(libc::EAGAIN).words().starts_with("could not be forked: "));
    }

    #[test]
    fn an_ordered_end_is_no_fault_and_another_one_stays_one() {
        let signaled = |signal| Cause::Signaled { signal, core_dumped: false };
        let dumped = Cause::Signaled { signal: libc::SIGQUIT, core_dumped: true };
        for (cause, told, words) in [
            (Cause::Exited(0), Some(libc::SIGTERM), "ended"),
            (Cause::Exited(3), Some(libc::SIGTERM), "ended with status 3"),
            (signaled(libc::SIGTERM), Some(libc::SIGTERM), "ended on SIGTERM"),
            (signaled(libc::SIGTERM), None, "was killed by SIGTERM"),
            (signaled(libc::SIGKILL), Some(libc::SIGTERM), "was killed by SIGKILL"),
            (dumped, Some(libc::SIGQUIT), "was killed by SIGQUIT, core dumped"),
            (Cause::Exited(0), None, "exited with status 0"),
        ] {
            assert_eq!(cause.words_after(told), words, "{cause:?} after {told:?}");
        }
    }

    #[test]
    fn the_last_requests_are_told_newest_first_with_their_ends_and_masked() {
        let remembered = |number: u64, text: &str, status: u16| {
            let end = (status > 0).then_some(End { status, microseconds: 2500 });
            (
                7,
                Remembered {
                    number,
                    began_ms: 100 * number,
                    text: text.to_owned(),
                    is_called: number == 9,
                    phase: Phase::default(),
                    end,
                    trace: None,
                },
            )
        };
        let all = [
            remembered(1, "GET /open", 0),
            remembered(2, "GET /a?key=secret", 200),
            remembered(3, "GET /b", 404),
            remembered(9, "GET /called", 0),
        ];
        let told = last_requests(&all, 1302).expect("two have ended");
        assert_eq!(told, "GET /b (404 in 2 ms, 1 s ago), GET /a?key=… (200 in 2 ms, 1.1 s ago)");
        assert_eq!(last_requests(&all[..1], 1302), None);
        assert_eq!(while_serving(&open(&all), 1000), " while it served GET /called (for 100 ms), GET /open (for 900 ms)");
    }

    #[test]
    fn requests_are_named_with_their_time_and_counted_beyond_three() {
        assert_eq!(while_serving(&[], 0), "");
        assert_eq!(while_serving(&[request("GET /x", 880)], 1000), " while it served GET /x (for 120 ms)");
        let many: Vec<InFlight> = (0..5).map(|number| request(&format!("GET /{number}"), 0)).collect();
        assert!(requests(&many, 2500).ends_with("GET /2 (for 2.5 s) and 2 others"));
    }
}
