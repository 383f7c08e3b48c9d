//! What belongs to the exchange of an answer and not to its bytes: the line in the log, the time limits that a route or the
//! application sets, and the times of the phases.
//!
//! It does not know about the head, the body or sockets. Worker threads run it.

use bolide_contract::answering::CancelOnDisconnect;
use bolide_scoreboard::Cancelled;

use crate::scheduling::phases::{Moment, RequestWait, Times};
use crate::sessions::affinity::SessionAnswer;

/// Maximum size of the name and of the value of a log variable: uWSGI stores each length in a byte.
const LOG_VARIABLE_BYTES: usize = 255;
/// Maximum number of log variables of a request.
const MAX_LOG_VARIABLES: usize = 64;

/// Names and values that an application has set for the request's log line.
pub(crate) type LogVariables = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
pub struct Notes {
    /// A route has disabled the log line.
    pub(crate) is_unlogged: bool,
    /// The application has requested a log line, regardless of the settings.
    pub(crate) is_logged: bool,
    /// Variables of the application for its log line; `None` if it has set none. Boxed, because few requests have them and idle
    /// connections should be small.
    pub(crate) log_variables: Option<Box<LogVariables>>,
    /// A route's time limit for this request, in milliseconds.
    pub(crate) harakiri_ms: Option<u32>,
    /// The application has set the time that its request may take from now on, in milliseconds; 0 is not a limit.
    pub(crate) limit_from_now_ms: Option<u64>,
    /// What ends the work for this request when its client leaves.
    pub(crate) cancel_on_disconnect: CancelOnDisconnect,
    /// Its client has left before the answer was complete, and the work for it has ended.
    pub(crate) cancelled: Option<Cancelled>,
    /// When the phases of its request began; `None`: nothing needs that.
    pub(crate) times: Option<Box<Times>>,
    /// What the answer does for its session (`sticky`).
    pub(crate) session: Option<Box<SessionAnswer>>,
}

impl Notes {
    /// Sets a variable for the request's log line (`uwsgi.set_logvar`). Names and values are truncated to uWSGI's length, and
    /// names beyond [`MAX_LOG_VARIABLES`] are ignored.
    pub fn set_log_variable(&mut self, name: &[u8], value: &[u8]) {
        let [name, value] = [name, value].map(|text| &text[..text.len().min(LOG_VARIABLE_BYTES)]);
        let variables = self.log_variables.get_or_insert_default();
        let is_full = variables.len() >= MAX_LOG_VARIABLES;
        match variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, before)) => *before = value.to_vec(),
            None if is_full => {}
            None => variables.push((name.to_vec(), value.to_vec())),
        }
    }

    /// Returns a variable that was set for the request's log line (`uwsgi.get_logvar`).
    pub fn log_variable(&self, name: &[u8]) -> Option<&[u8]> {
        let variables = self.log_variables.as_deref()?;
        variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// Logs the request regardless of the settings (`uwsgi.log_this_request`).
    pub fn log_this(&mut self) {
        self.is_logged = true;
    }

    /// Limits the time of a request that the engine keeps, from now on; 0 is not a limit.
    pub fn limit_time(&mut self, milliseconds: u64) {
        self.limit_from_now_ms = Some(milliseconds);
    }

    /// Begins the notes of the next request. Its times began before its answer, and its session was found before.
    pub(super) fn begin(&mut self) {
        self.cancelled = None;
        self.is_unlogged = false;
        self.is_logged = false;
        self.log_variables = None;
        self.harakiri_ms = None;
        self.limit_from_now_ms = None;
    }

    /// Notes that a phase of the request begins. Costs one branch if nothing needs it.
    #[inline(always)]
    pub(crate) fn note_time(&mut self, moment: Moment) {
        if let Some(times) = &mut self.times {
            times.note(moment);
        }
    }

    /// Notes what the request waits for; `None`: nothing any more.
    #[inline(always)]
    pub(crate) fn note_wait(&mut self, wait: Option<RequestWait>) {
        if let Some(times) = &mut self.times {
            times.wait(wait);
        }
    }

    /// Notes that the client must read before a call goes on, or that it has.
    pub(super) fn note_sending(&mut self, waits: bool) {
        self.note_wait(waits.then_some(RequestWait::Sending));
    }
}
