//! What an emperor and an instance that it governs, its vassal, tell each other: single bytes over a pair of sockets, as in uWSGI
//! (core/emperor.c), so that either of them may be a uWSGI. Plain data. The emperor and the master use it.

/// The variable with the number of the vassal's socket.
pub const VARIABLE: &str = "UWSGI_EMPEROR_FD";

/// The variable of an emperor whose vassals serve on without it: `COURT:NAME`, the emperor's own name and that of the vassal. The
/// next emperor of this name finds them by [`name_of_vassal`], and a vassal answers its connection with a [`Greeting`].
pub const COURT_VARIABLE: &str = "EMPEROR_OF_BOLIDE";

/// The variable of a vassal that runs as the owner of its file (`emperor-tyrant`): it reads the file only if no other user may
/// change it.
pub const TYRANT_VARIABLE: &str = "TYRANT_OF_BOLIDE";

/// Returns the name of the vassal in the value of [`COURT_VARIABLE`].
pub fn name_in(court: &str) -> Option<&str> {
    court.split_once(':').map(|(_, name)| name)
}

/// Returns the abstract name at which a vassal of this court waits for its next emperor.
pub fn name_of_vassal(court: &str, pid: i32) -> String {
    format!("{}{pid}", beginning_of_names(court))
}

/// Returns how these names begin.
pub fn beginning_of_names(court: &str) -> String {
    format!("bolide/vassal/{court}/")
}

/// What a vassal tells an emperor that has connected to it, as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    pub name: String,
    /// When it has last begun to read its configuration, in seconds since 1970.
    pub read_s: u64,
}

/// Bytes of a greeting, at most.
pub const MAX_GREETING_BYTES: usize = 1024;

impl Greeting {
    /// Returns the line, with its end.
    pub fn line(&self) -> String {
        format!("{} {}\n", self.read_s, self.name)
    }

    /// Reads the line, without its end.
    pub fn of(line: &str) -> Option<Greeting> {
        let (read_s, name) = line.split_once(' ')?;
        // Any process may take the name of a vassal, and what it says stands in the log.
        if name.contains(char::is_control) {
            return None;
        }
        Some(Greeting { name: name.to_owned(), read_s: read_s.parse().ok()? })
    }
}

/// Generates an enumeration of single bytes.
macro_rules! bytes {
    ($(#[$documentation:meta])* $name:ident { $($(#[$of_byte:meta])* $byte:ident = $number:literal,)* }) => {
        $(#[$documentation])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$of_byte])* $byte = $number,)*
        }

        impl $name {
            /// Returns the meaning of a byte, or `None` if it has none.
            pub fn of(byte: u8) -> Option<$name> {
                match byte {
                    $($number => Some($name::$byte),)*
                    _ => None,
                }
            }

            /// Returns the byte.
            pub fn byte(self) -> u8 {
                self as u8
            }
        }
    };
}

bytes! {
    /// What an emperor orders.
    EmperorOrder {
        /// End. uWSGI interrupts requests then.
        Stop = 0,
        /// Read the configuration again, and load the application again.
        Reload = 1,
        /// End when the requests in flight are answered.
        StopGracefully = 2,
        /// Write log lines to the descriptor that comes with it, because the log was rotated. Only a Bolide is sent this.
        TakeLog = 3,
    }
}

bytes! {
    /// What a vassal reports.
    VassalReport {
        /// It has started, or has completed a reload.
        Spawned = 1,
        /// It accepts requests.
        Accepting = 5,
        /// It works: if it ends from now on, it is started again without a pause.
        Loyal = 17,
        /// No request has come for its `idle`. The emperor may end it.
        Idle = 22,
        /// It is alive (`heartbeat`).
        Heartbeat = 26,
        /// A command has stopped it, so it is not to start again. uWSGI's emperor does not know this, and starts it again.
        Stopped = 40,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written_and_nothing_else_is() {
        let greeting = Greeting { name: "/srv/my sites/one.ini".to_owned(), read_s: 1_800_000_000 };
        assert_eq!(Greeting::of(greeting.line().trim_end()), Some(greeting));
        for line in ["", "1", "x one.ini", "-1 one.ini", " one.ini", "1 one\r.ini", "1 \u{1b}[2Jone.ini"] {
            assert_eq!(Greeting::of(line), None, "{line}");
        }
    }

    #[test]
    fn each_byte_that_has_a_meaning_is_read_as_what_was_written_and_others_have_none() {
        let known = |byte: u8| (EmperorOrder::of(byte).map(EmperorOrder::byte), VassalReport::of(byte).map(VassalReport::byte));
        let orders: Vec<u8> = (0..=u8::MAX).filter(|byte| known(*byte).0 == Some(*byte)).collect();
        let reports: Vec<u8> = (0..=u8::MAX).filter(|byte| known(*byte).1 == Some(*byte)).collect();
        assert_eq!((orders, reports), (vec![0, 1, 2, 3], vec![1, 5, 17, 22, 26, 40]));
    }
}
