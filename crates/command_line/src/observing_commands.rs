//! The commands that look at a running instance, or at what it has left: their names, flags and arguments, in one table. Help,
//! man page and completions derive from it. Pure data: the crate `observing` runs them, in the process of the command line.

use crate::command_flags::{CommandFlag, Example, FILE, flag};

/// Generates the enumeration and the list of its values from the same lines, so that no command lacks its row.
macro_rules! observing_commands {
    ($($command:ident => $row:expr,)*) => {
        /// A command that looks and changes nothing, unless a flag asks for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ObservingCommand {
            $($command,)*
        }

        impl ObservingCommand {
            /// In the order in which they are listed.
            pub const ALL: &[ObservingCommand] = &[$(ObservingCommand::$command),*];

            pub fn row(self) -> ObservingRow {
                match self {
                    $(ObservingCommand::$command => $row,)*
                }
            }
        }
    };
}

/// Everything about one of these commands.
#[derive(Debug, Clone, Copy)]
pub struct ObservingRow {
    pub name: &'static str,
    /// Arguments after the flags, such as `[INSTANCE]`.
    pub arguments: &'static str,
    /// How many there may be.
    pub arguments_most: usize,
    pub help: &'static str,
    pub flags: &'static [CommandFlag],
    pub examples: &'static [Example],
}

observing_commands! {
    Top => ObservingRow {
        name: "top",
        arguments: "[INSTANCE]",
        arguments_most: 1,
        help: "watch the workers of a running instance, their requests, rates and latencies",
        flags: TOP_FLAGS,
        examples: TOP_EXAMPLES,
    },
    Crash => ObservingRow {
        name: "crash",
        arguments: "FILE",
        arguments_most: 1,
        help: "explain a report of `crash-reports`: what happened, the probable cause, what to do",
        flags: CRASH_FLAGS,
        examples: CRASH_EXAMPLES,
    },
    Trace => ObservingRow {
        name: "trace",
        arguments: "[WORKER] [INSTANCE]",
        arguments_most: 2,
        help: "show what each thread of a running instance is doing, from its memory",
        flags: TRACE_FLAGS,
        examples: TRACE_EXAMPLES,
    },
    Tune => ObservingRow {
        name: "tune",
        arguments: "[INSTANCE]",
        arguments_most: 1,
        help: "propose workers, threads and limits for the requests that a running instance has served",
        flags: TUNE_FLAGS,
        examples: TUNE_EXAMPLES,
    },
    Profile => ObservingRow {
        name: "profile",
        arguments: "SECONDS [INSTANCE]",
        arguments_most: 2,
        help: "sample what all workers do for some seconds, and draw it as a flame graph",
        flags: PROFILE_FLAGS,
        examples: PROFILE_EXAMPLES,
    },
}

/// A number of seconds, as the value of a flag.
const SECONDS: &[&str] = &["SECONDS"];

const TOP_FLAGS: &[CommandFlag] = &[
    CommandFlag { name: "--every", words: SECONDS, help: "look again after this time, instead of 1 s" },
    flag("--once", "print lines once, with the rates of one interval, and exit"),
];
const TOP_EXAMPLES: &[Example] = &[
    ("bolide top", "the instance of this directory; `h` shows the keys"),
    ("bolide top --once uwsgi.ini", "lines for a file or a mail"),
    ("bolide top emperor.ini", "all sites of an emperor, the busiest first"),
];

const TUNE_FLAGS: &[CommandFlag] = &[
    CommandFlag { name: "--seconds", words: SECONDS, help: "record for this time; without it, since the workers' start" },
    flag("--threads", "the application's code may run in several threads at the same time"),
    flag("--write", "write the proposal into the configuration, and keep a copy of the old one"),
    flag("--try", "write it, reload, record again, and go back if it is not better"),
    flag("--json", "print one JSON object"),
];
const TUNE_EXAMPLES: &[Example] = &[
    ("bolide tune", "for the instance of this directory"),
    ("bolide tune --seconds 60 --try uwsgi.ini", "record a minute, try the proposal, keep it if it is better"),
];

/// Words for the values of flags.
const HERTZ: &[&str] = &["HZ"];

const PROFILE_FLAGS: &[CommandFlag] = &[
    CommandFlag { name: "--rate", words: HERTZ, help: "samples a second; 100 without it" },
    flag("--gil", "only threads that hold the GIL"),
    flag("--idle", "also threads that wait without a request"),
    flag("--server", "also show the server's own functions in front of the application"),
    CommandFlag { name: "--output", words: FILE, help: "the files are FILE.svg and FILE.speedscope.json" },
];
const PROFILE_EXAMPLES: &[Example] = &[
    ("bolide profile 10", "the instance of this directory, for ten seconds"),
    ("bolide profile 60 uwsgi.ini --gil --rate 250", "what keeps others from running Python"),
];

const CRASH_FLAGS: &[CommandFlag] = &[flag("--all", "also show all remembered requests and native modules")];
const CRASH_EXAMPLES: &[Example] =
    &[("bolide crash /var/lib/shop/crashes/crash-1764105600-000001-4711.json", "the report that the log mentions")];
const TRACE_FLAGS: &[CommandFlag] = &[
    flag("--locals", "also show local variables, with short values"),
    flag("--server", "also show the server's own functions in front of the application"),
    flag("--json", "print one JSON object"),
];
const TRACE_EXAMPLES: &[Example] = &[
    ("bolide trace", "all workers and mules of the instance of this directory"),
    ("bolide trace 2 uwsgi.ini", "worker 2; a mule is `mule1`"),
    ("bolide trace all 4711 --locals", "all processes of the instance whose master has this pid, with local variables"),
];

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservingRequest {
    pub command: ObservingCommand,
    pub arguments: Vec<String>,
    /// The flags that were written, with the values of those that take one.
    flags: Vec<(&'static str, Option<String>)>,
}

impl ObservingRequest {
    /// Whether this flag was written.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| *name == flag)
    }

    /// The value of this flag, the last one if it was written several times.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(name, _)| *name == flag).and_then(|(_, value)| value.as_deref())
    }

    /// The value of this flag as a number from 1 to `most`.
    ///
    /// # Errors
    /// It is no such number; in words.
    pub fn number(&self, flag: &str, most: u32) -> Result<Option<u32>, String> {
        let Some(text) = self.value(flag) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.map(Some).ok_or_else(|| format!("`{flag} {text}`: write a number from 1 to {most}"))
    }
}

impl ObservingCommand {
    /// Parses the arguments after the name. A value follows its flag, or stands after `=`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub fn read(self, words: &[String]) -> Result<ObservingRequest, String> {
        let row = self.row();
        let mut request = ObservingRequest { command: self, arguments: Vec::new(), flags: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if !word.starts_with('-') || word == "-" {
                if request.arguments.len() == row.arguments_most {
                    return Err(format!("`{word}` is an unexpected argument"));
                }
                request.arguments.push(word.clone());
                continue;
            }
            let (name, written) =
                word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value.to_owned())));
            let Some(flag) = row.flags.iter().find(|flag| flag.name == name) else {
                return Err(format!("`{name}` is not expected here"));
            };
            let value = match (flag.words, written) {
                ([], Some(_)) => return Err(format!("`{name}` does not take a value")),
                ([], None) => None,
                (_, Some(value)) => Some(value),
                ([value, ..], None) => Some(words.next().cloned().ok_or_else(|| format!("`{name}` needs a value: {value}"))?),
            };
            request.flags.push((flag.name, value));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ObservingRequest, String> {
        ObservingCommand::Trace.read(&text.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    #[test]
    fn flags_and_arguments_are_read_in_any_order() {
        let request = read("--json 2 shop.ini").expect("read");
        let arguments = ["2".to_owned(), "shop.ini".to_owned()];
        assert_eq!(request.arguments, arguments);
        assert_eq!((request.has("--json"), request.has("--locals")), (true, false));
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_reason() {
        let cases = [
            ("--force", "`--force` is not expected here"),
            ("a b c", "`c` is an unexpected argument"),
            ("--json=1", "`--json` does not take a value"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).expect_err(text), expected);
        }
    }
}
