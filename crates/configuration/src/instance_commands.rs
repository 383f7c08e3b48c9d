//! The commands for a running instance: their names, arguments and exit statuses, in one table. Help, man page, completions and
//! the page about signals and processes derive from it. Pure data: `control` of the crate `master` finds the instance and sends
//! the command.

use std::fmt::Write;

/// Generates the enumeration and its table from the same lines, so that no command lacks its row: name, usage, help.
macro_rules! commands {
    ($($command:ident => ($name:literal, $usage:literal, $help:literal),)*) => {
        /// A command for a running instance.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum InstanceCommand {
            $($command,)*
        }

        impl InstanceCommand {
            /// In the order in which they are listed.
            pub const ALL: &[InstanceCommand] = &[$(InstanceCommand::$command),*];

            fn row(self) -> (&'static str, &'static str, &'static str) {
                match self {
                    $(InstanceCommand::$command => ($name, $usage, $help),)*
                }
            }
        }
    };
}

commands! {
    Reload => (
        "reload",
        "[--wait] [--chain | --now] [INSTANCE]",
        "reload a running instance; with --wait, exit 0 only if it succeeded"
    ),
    Stop => ("stop", "[--wait] [--now] [INSTANCE]", "stop a running instance after its requests are answered"),
    Status => ("status", "[--json] [--unmasked] [--watch [SECONDS]] [INSTANCE]", "show the state of a running instance"),
    Upgrade => ("upgrade", "[--wait] [INSTANCE]", "upgrade the program of a running instance; with --wait, exit 0 only if it \
        succeeded"),
    Workers => ("workers", "N | +N | -N [INSTANCE]", "set the number of workers of a running instance, or add or remove some"),
    Pause => ("pause", "[INSTANCE]", "pause a running instance: it does not start requests, and clients wait"),
    Resume => ("resume", "[INSTANCE]", "resume a paused instance"),
    LogReopen => ("log-reopen", "[INSTANCE]", "let a running instance open its log files again"),
    LogRotate => ("log-rotate", "[INSTANCE]", "let a running instance rotate its log files"),
}

/// A command for a running instance with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRequest {
    pub command: InstanceCommand,
    /// The pidfile, configuration, fifo, control socket or pid; `None` is the instance of this directory.
    pub instance: Option<String>,
    /// `--wait`: the command exits when the action has succeeded or failed.
    pub waits: bool,
    /// `--now` of `stop`, and of `reload`, as in uWSGI's brutal reload: it does not wait for requests in flight.
    pub now: bool,
    /// `--chain` of `reload`: workers are replaced one by one.
    pub chain: bool,
    /// `--json` of `status`.
    pub json: bool,
    /// `--unmasked` of `status`: with the values of query strings.
    pub unmasked: bool,
    /// `--watch` of `status`: seconds from one status to the next.
    pub watch_s: Option<u32>,
    /// `+2` of `workers`: how many workers to add, or to remove if negative.
    pub change: i32,
    /// `2` of `workers`: how many workers there shall be.
    pub number: Option<u32>,
}

/// The most workers that one command may add or remove, and the largest number that it may ask for.
pub const MAX_WORKERS_CHANGE: i32 = 1024;

/// Seconds from one status to the next, if `--watch` names none.
const WATCH_S: u32 = 2;
/// The most seconds from one status to the next.
const MAX_WATCH_S: u32 = 3600;

/// Exit statuses of these commands, with their meanings.
pub const EXIT_STATUSES: [(i32, &str); 5] = [
    (0, "done (with `--wait`, the request has succeeded)"),
    (EXIT_REFUSED, "the instance can't do it (with `--wait`, the request has failed)"),
    (EXIT_MISUSED, "wrong usage of the command"),
    (EXIT_NO_INSTANCE, "there is no such instance, or more than one"),
    (EXIT_NO_ANSWER, "the instance refuses, or does not answer"),
];
pub const EXIT_REFUSED: i32 = 1;
pub const EXIT_MISUSED: i32 = 2;
pub const EXIT_NO_INSTANCE: i32 = 3;
pub const EXIT_NO_ANSWER: i32 = 4;

impl InstanceCommand {
    /// Returns the command of a name.
    pub fn named(name: &str) -> Option<InstanceCommand> {
        InstanceCommand::ALL.iter().copied().find(|command| command.name() == name)
    }

    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Flags and arguments after the name.
    pub fn usage(self) -> &'static str {
        self.row().1
    }

    pub fn help(self) -> &'static str {
        self.row().2
    }

    /// This command without flags, for an instance.
    pub fn to_instance(self, instance: Option<String>) -> InstanceRequest {
        InstanceRequest {
            command: self,
            instance,
            waits: false,
            now: false,
            chain: false,
            json: false,
            unmasked: false,
            watch_s: None,
            change: 0,
            number: None,
        }
    }

    /// Returns whether its usage contains this flag.
    pub fn takes(self, flag: &str) -> bool {
        self.usage().split([' ', '[', ']', '|']).any(|word| word == flag)
    }

    /// Parses the arguments after the name.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub fn read(self, arguments: &[String]) -> Result<InstanceRequest, String> {
        let mut request = self.to_instance(None);
        let mut arguments = arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--wait" | "--now" | "--chain" | "--json" | "--unmasked" if self.takes(argument) => match argument.as_str() {
                    "--wait" => request.waits = true,
                    "--now" => request.now = true,
                    "--chain" => request.chain = true,
                    "--unmasked" => request.unmasked = true,
                    _ => request.json = true,
                },
                "--watch" if self.takes("--watch") => {
                    let number = arguments.next_if(|next| next.bytes().all(|byte| byte.is_ascii_digit()));
                    request.watch_s = Some(number.map_or(Ok(WATCH_S), |text| watch_seconds(text))?);
                }
                text if self.takes("--watch") && text.starts_with("--watch=") => {
                    request.watch_s = Some(watch_seconds(&text["--watch=".len()..])?);
                }
                text if self == InstanceCommand::Workers && request.change == 0 && request.number.is_none() => {
                    (request.change, request.number) = workers(text)?;
                }
                text if text.starts_with("--") => return Err(format!("`{text}` is not expected here")),
                text if request.instance.is_none() => request.instance = Some(text.to_owned()),
                text => return Err(format!("`{text}`: an instance is already named")),
            }
        }
        match () {
            () if request.now && request.chain => Err("`--chain` and `--now` can't be combined".to_owned()),
            () if self == InstanceCommand::Workers && request.change == 0 && request.number.is_none() => {
                Err("no number is named".to_owned())
            }
            () => Ok(request),
        }
    }
}

/// The table of exit statuses as Markdown.
pub fn statuses_as_markdown() -> String {
    EXIT_STATUSES.iter().fold("| status | meaning |\n|---|---|\n".to_owned(), |mut page, (status, help)| {
        // Writing to a String can't fail.
        let _ = writeln!(page, "| {status} | {help} |");
        page
    })
}

/// A number after `--watch` is never an instance: a pid is named before it.
fn watch_seconds(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MAX_WATCH_S).contains(seconds));
    seconds.ok_or_else(|| {
        format!("`--watch {text}`: write 1 to {MAX_WATCH_S} seconds, and the instance before it: `bolide status {text} --watch`")
    })
}

/// Returns the change of the number of workers, or the number itself.
fn workers(text: &str) -> Result<(i32, Option<u32>), String> {
    let most = MAX_WORKERS_CHANGE.unsigned_abs();
    let number = text.parse::<i32>().ok().filter(|number| (1..=most).contains(&number.unsigned_abs()));
    let number =
        number.ok_or_else(|| format!("`{text}` is not a number of workers: write 1 to {most}, or a change such as +1 or -1"))?;
    Ok(if text.starts_with(['+', '-']) { (number, None) } else { (0, Some(number.unsigned_abs())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_invalid_ones_are_refused() {
        let read = |command: InstanceCommand, text: &str| {
            command.read(&text.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
        };
        let request = read(InstanceCommand::Reload, "--wait shop.ini").expect("read");
        assert_eq!((request.waits, request.instance.as_deref()), (true, Some("shop.ini")));
        let workers = |text: &str| read(InstanceCommand::Workers, text).map(|request| (request.change, request.number));
        assert_eq!(workers("-2 /run/shop.pid"), Ok((-2, None)));
        assert_eq!(workers("2 /run/shop.pid"), Ok((0, Some(2))));
        assert!(read(InstanceCommand::Stop, "").is_ok_and(|request| request.instance.is_none()));
        let watched = |text: &str| read(InstanceCommand::Status, text).map(|request| (request.watch_s, request.instance));
        assert_eq!(watched("--watch"), Ok((Some(2), None)));
        assert_eq!(watched("--watch 5 shop.ini"), Ok((Some(5), Some("shop.ini".to_owned()))));
        assert_eq!(watched("4127 --watch=1"), Ok((Some(1), Some("4127".to_owned()))));
        assert_eq!(watched("--watch shop.ini"), Ok((Some(2), Some("shop.ini".to_owned()))));
        for (command, text) in [
            (InstanceCommand::Status, "--watch 4127"),
            (InstanceCommand::Status, "--watch=0"),
            (InstanceCommand::Status, "--watch=often"),
            (InstanceCommand::Reload, "--watch"),
            (InstanceCommand::Status, "--wait"),
            (InstanceCommand::Stop, "a b"),
            (InstanceCommand::Stop, "--chain"),
            (InstanceCommand::Reload, "--chain --now"),
            (InstanceCommand::Workers, ""),
            (InstanceCommand::Workers, "0"),
            (InstanceCommand::Workers, "8000"),
            (InstanceCommand::Workers, "+0"),
            (InstanceCommand::Workers, "+99999999999"),
            (InstanceCommand::LogReopen, "--force"),
        ] {
            assert!(read(command, text).is_err(), "{} {text}", command.name());
        }
    }
}
