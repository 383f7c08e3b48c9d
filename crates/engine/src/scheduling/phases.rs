//! When the phases of a request began, for spans and reports of slow requests. They are measured only if the settings need them.
//!
//! The times are kept in the request's [`crate::response::Response`], which each part that notes one has at hand: the connection
//! (head, body), the call of the application, and the writer (first byte). It does not know about the log. Worker threads run it.

use crate::scheduling::clock::precise_us;

/// The times of one request, in monotonic microseconds; 0: it has not come to that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Microseconds that the request has waited before its head was here, as its reverse proxy says by `X-Request-Start`.
    pub waited_us: u64,
    /// The head of the request was complete.
    pub head_us: u64,
    /// Its body was complete. An asynchronous application is called before that, and may never read it.
    pub body_us: u64,
    /// The application was called.
    pub called_us: u64,
    /// The head of the answer was handed over, to be sent.
    pub first_byte_us: u64,
    /// The application had returned, or ended its answer; with an iterable, its last part.
    pub returned_us: u64,
    /// The last byte of the answer was written to the socket, or the client was given up.
    pub ended_us: u64,
    /// Microseconds in which bytes of the answer waited for the client to read others.
    pub sending_us: u64,
    /// Microseconds in which an application that was called already waited for the client's body.
    pub late_body_us: u64,
    /// Microseconds in which it waited for a permit of its bulkhead.
    pub permit_us: u64,
    /// The answer is a stream of events (`text/event-stream`), which lasts as long as its client wants.
    pub is_event_stream: bool,
    /// What it waits for now, since this time.
    pub waits: Option<(RequestWait, u64)>,
}

/// What a request waits for: its client, or a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestWait {
    Body,
    Sending,
    Permit,
}

/// What a time is noted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Body,
    Called,
    FirstByte,
    Returned,
}

impl Times {
    /// The times of a request whose head is here.
    #[cold]
    pub fn begin() -> Box<Times> {
        Box::new(Times { head_us: precise_us(), ..Times::default() })
    }

    /// Notes that something happens now. The first time counts, except for the return: an iterable is called for each part.
    #[cold]
    pub fn note(&mut self, moment: Moment) {
        let place = match moment {
            Moment::Body => &mut self.body_us,
            Moment::Called => &mut self.called_us,
            Moment::FirstByte => &mut self.first_byte_us,
            Moment::Returned => &mut self.returned_us,
        };
        if *place == 0 || moment == Moment::Returned {
            *place = precise_us();
        }
    }

    /// Notes what the request waits for from now on; `None`: nothing.
    #[cold]
    pub fn wait(&mut self, wait: Option<RequestWait>) {
        if self.waits.map(|(before, _)| before) == wait {
            return;
        }
        let now_us = precise_us();
        match self.waits {
            Some((RequestWait::Body, since_us)) => self.late_body_us += now_us.saturating_sub(since_us),
            Some((RequestWait::Sending, since_us)) => self.sending_us += now_us.saturating_sub(since_us),
            Some((RequestWait::Permit, since_us)) => self.permit_us += now_us.saturating_sub(since_us),
            None => {}
        }
        self.waits = wait.map(|wait| (wait, now_us));
    }

    /// Microseconds in which the client's body was waited for: before the call, or in it.
    pub fn body_wait_us(&self) -> u64 {
        let before_call_us = if self.body_us <= self.called_us { self.body_us.saturating_sub(self.head_us) } else { 0 };
        // A body that is collected arrives after the wait for a permit.
        before_call_us.saturating_sub(self.permit_us) + self.late_body_us
    }

    /// Notes the end of the request.
    #[cold]
    pub fn end(&mut self) {
        self.wait(None);
        self.ended_us = precise_us();
        if self.returned_us == 0 {
            self.returned_us = self.ended_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_client_are_added_up() {
        let mut times = Times { head_us: 1, called_us: 2, ..Times::default() };
        for wait in [RequestWait::Sending, RequestWait::Body] {
            times.wait(Some(wait));
            std::thread::sleep(std::time::Duration::from_millis(1));
            times.wait(None);
        }
        assert!(times.sending_us >= 1_000 && times.late_body_us >= 1_000);
        assert_eq!(times.body_wait_us(), times.late_body_us);
        assert_eq!(Times { head_us: 5, body_us: 8, called_us: 9, ..Times::default() }.body_wait_us(), 3);
    }

    #[test]
    fn the_first_time_of_a_phase_counts_and_the_last_return() {
        let mut times = Times { body_us: 1, called_us: 2, returned_us: 3, ..Times::default() };
        for moment in [Moment::Body, Moment::Called, Moment::FirstByte, Moment::Returned] {
            times.note(moment);
        }
        assert_eq!((times.body_us, times.called_us), (1, 2));
        assert!(times.first_byte_us > 3 && times.returned_us >= times.first_byte_us);
        times.end();
        assert!(times.ended_us >= times.returned_us);
        let mut times = Times::begin();
        times.end();
        assert!(times.head_us > 0 && times.returned_us == times.ended_us && times.called_us == 0);
    }
}
