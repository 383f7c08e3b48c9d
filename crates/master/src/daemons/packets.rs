//! Orders of the master to its attendant, and the attendant's reports: one byte for the kind, then text. Lines for the log are
//! the channel's own. It knows the encoding only, not what follows from a packet. The master and the attendant run it.

use std::borrow::Cow;

/// An order from the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttendantOrder {
    /// Stop the daemons, and end when the running commands have exited: another attendant follows.
    Retire,
    /// Stop all programs, and end.
    Stop,
    /// Kill all programs, and end.
    StopNow,
}

impl AttendantOrder {
    const ALL: [(AttendantOrder, u8); 3] =
        [(AttendantOrder::Retire, b'r'), (AttendantOrder::Stop, b's'), (AttendantOrder::StopNow, b'k')];

    pub fn byte(self) -> u8 {
        AttendantOrder::ALL.iter().find(|(order, _)| *order == self).map_or(b'k', |(_, byte)| *byte)
    }

    pub fn of(byte: u8) -> Option<AttendantOrder> {
        AttendantOrder::ALL.iter().find(|(_, known)| *known == byte).map(|(order, _)| *order)
    }
}

/// A report to the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttendantReport {
    /// A line of program output, with the program name as prefix.
    Output(Vec<u8>),
    /// A control daemon has exited, and the instance exits with it; its name.
    ControlEnded(String),
    /// The present state of a daemon, by its position in the settings.
    Daemon { number: u32, state: ProgramState },
    /// The present state of a job of `cron`, by its position in the settings.
    Job { number: u32, state: ProgramState },
    /// After `Retire`: all daemons that the next attendant starts again have ended.
    DaemonsGone,
}

/// The state of a program, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramState {
    /// 0 if it does not run.
    pub pid: u32,
    /// For a daemon, how often it was restarted; for a job, when its command was started, in seconds since 1970.
    pub figure: u64,
}

impl ProgramState {
    fn words(self, number: u32) -> String {
        format!("{number} {} {}", self.pid, self.figure)
    }

    fn read(text: &[u8]) -> Option<(u32, ProgramState)> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let number = words.next()?.parse().ok()?;
        let state = ProgramState { pid: words.next()?.parse().ok()?, figure: words.next()?.parse().ok()? };
        words.next().is_none().then_some((number, state))
    }
}

impl AttendantReport {
    /// Returns the kind and the text of its packet.
    pub fn encode(&self) -> (u8, Cow<'_, [u8]>) {
        match self {
            AttendantReport::Output(line) => (b'w', Cow::Borrowed(line)),
            AttendantReport::ControlEnded(name) => (b'c', Cow::Borrowed(name.as_bytes())),
            AttendantReport::DaemonsGone => (b'g', Cow::Borrowed(b"")),
            AttendantReport::Daemon { number, state } => (b'd', Cow::Owned(state.words(*number).into_bytes())),
            AttendantReport::Job { number, state } => (b'j', Cow::Owned(state.words(*number).into_bytes())),
        }
    }

    /// Returns `None` for a packet that no attendant sends.
    pub fn decode(kind: u8, text: &[u8]) -> Option<AttendantReport> {
        match kind {
            b'w' => Some(AttendantReport::Output(text.to_vec())),
            b'c' => Some(AttendantReport::ControlEnded(String::from_utf8_lossy(text).into_owned())),
            b'g' => Some(AttendantReport::DaemonsGone),
            b'd' => ProgramState::read(text).map(|(number, state)| AttendantReport::Daemon { number, state }),
            b'j' => ProgramState::read(text).map(|(number, state)| AttendantReport::Job { number, state }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_decode_to_their_report() {
        for report in [
            AttendantReport::Output(b"[daemon redis-server] \xff\xfe".to_vec()),
            AttendantReport::ControlEnded("redis-server".to_owned()),
            AttendantReport::DaemonsGone,
            AttendantReport::Daemon { number: 3, state: ProgramState { pid: 42, figure: 7 } },
            AttendantReport::Job { number: 0, state: ProgramState::default() },
        ] {
            let (kind, text) = report.encode();
            assert_eq!(AttendantReport::decode(kind, &text), Some(report.clone()));
        }
        for (kind, nonsense) in
            [(b'?', &b""[..]), (0, b"\0"), (b'd', b"1 2"), (b'j', b"1 2 3 4"), (b'd', b"1 -2 3"), (b'd', b"\xff")]
        {
            assert_eq!(AttendantReport::decode(kind, nonsense), None);
        }
        for (order, byte) in AttendantOrder::ALL {
            assert_eq!((order.byte(), AttendantOrder::of(byte)), (byte, Some(order)));
        }
        assert_eq!(AttendantOrder::of(b'?'), None);
    }
}
