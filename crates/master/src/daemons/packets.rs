//! Packets between the master and its attendant, over a SOCK_SEQPACKET pair: one byte that says what it is, and a text. Bytes and meaning
//! only. Both run it.

/// Bytes of a packet at the most.
pub const PACKET_MOST_BYTES: usize = 4096;
/// Bytes of its text at the most.
pub const TEXT_MOST_BYTES: usize = PACKET_MOST_BYTES - 1;

/// From the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttendantOrder {
    /// Stop the daemons, and end when the commands that run have ended: another attendant follows.
    Retire,
    /// Stop everything, and end.
    Stop,
    /// Kill everything, and end.
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

/// To the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A line of the attendant's own, for the log.
    Told(String),
    /// A line that a program has written, with its name before it.
    Written(Vec<u8>),
    /// A daemon has ended with which the instance ends; its name.
    ControlEnded(String),
    /// What a daemon is at present, by its place in the settings.
    Daemon { number: u32, standing: Standing },
    /// The same of a job of `cron`.
    Job { number: u32, standing: Standing },
    /// After `Retire`: no daemon is left that the next attendant would start again.
    DaemonsGone,
}

/// What the statistics say of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// 0: it does not run.
    pub pid: u32,
    /// Of a daemon how often it was started again, of a job when its command was started, in seconds since 1970.
    pub figure: u64,
}

impl Standing {
    fn words(self, number: u32) -> String {
        format!("{number} {} {}", self.pid, self.figure)
    }

    fn read(text: &[u8]) -> Option<(u32, Standing)> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let number = words.next()?.parse().ok()?;
        let standing = Standing { pid: words.next()?.parse().ok()?, figure: words.next()?.parse().ok()? };
        words.next().is_none().then_some((number, standing))
    }
}

impl News {
    pub fn encode(&self) -> Vec<u8> {
        let words;
        let (kind, text): (u8, &[u8]) = match self {
            News::Told(text) => (b't', text.as_bytes()),
            News::Written(line) => (b'w', line),
            News::ControlEnded(name) => (b'c', name.as_bytes()),
            News::DaemonsGone => (b'g', b""),
            News::Daemon { number, standing } | News::Job { number, standing } => {
                words = standing.words(*number);
                (if matches!(self, News::Daemon { .. }) { b'd' } else { b'j' }, words.as_bytes())
            }
        };
        let mut packet = vec![kind];
        packet.extend(&text[..text.len().min(TEXT_MOST_BYTES)]);
        packet
    }

    /// `None` for what no attendant sends.
    pub fn decode(packet: &[u8]) -> Option<News> {
        let (kind, text) = packet.split_first()?;
        let words = || String::from_utf8_lossy(text).into_owned();
        match kind {
            b't' => Some(News::Told(words())),
            b'w' => Some(News::Written(text.to_vec())),
            b'c' => Some(News::ControlEnded(words())),
            b'g' => Some(News::DaemonsGone),
            b'd' => Standing::read(text).map(|(number, standing)| News::Daemon { number, standing }),
            b'j' => Standing::read(text).map(|(number, standing)| News::Job { number, standing }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_mean_what_they_meant_and_are_never_too_long() {
        for news in [
            News::Told("daemon redis-server: started".to_owned()),
            News::Written(b"[daemon redis-server] \xff\xfe".to_vec()),
            News::ControlEnded("redis-server".to_owned()),
            News::DaemonsGone,
            News::Daemon { number: 3, standing: Standing { pid: 42, figure: 7 } },
            News::Job { number: 0, standing: Standing::default() },
        ] {
            assert_eq!(News::decode(&news.encode()), Some(news));
        }
        assert_eq!(News::Written(vec![b'x'; 10_000]).encode().len(), PACKET_MOST_BYTES);
        for nonsense in [&b""[..], b"?", b"\0\0", b"d1 2", b"j1 2 3 4", b"d1 -2 3", b"d\xff"] {
            assert_eq!(News::decode(nonsense), None);
        }
        for (order, byte) in AttendantOrder::ALL {
            assert_eq!((order.byte(), AttendantOrder::of(byte)), (byte, Some(order)));
        }
        assert_eq!(AttendantOrder::of(b'?'), None);
    }
}
