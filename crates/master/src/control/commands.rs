//! The commands of a running master, one row each. A row lists the `master-fifo` letters and the signals that request the
//! command, its command line (`bolide reload --chain`), its log line, and how it is answered. Pure data: what a command does is
//! in `supervisor/commands`. The master and the command-line client run it.

use bolide_configuration::instance_commands::{InstanceCommand, InstanceRequest, MAX_WORKERS_CHANGE};
use nix::sys::signal::Signal;
use serde_json::Value;

/// One command, without its name.
#[derive(Debug)]
pub struct CommandRow {
    /// The description for the log and for the answer at the control socket.
    pub done: &'static str,
    /// The letters of `master-fifo`, each with its sentence in the manual. The client writes the first one.
    pub letters: &'static [(char, &'static str)],
    /// The signals to the master, each with its sentence in the manual.
    pub signals: &'static [(SignalNumber, &'static str)],
    /// The signal that means the same to uWSGI. The client sends it to a process without a control socket.
    pub portable_signal: Option<Signal>,
    /// The command of the command line, and the form of it that selects this row.
    pub command_line: Option<(InstanceCommand, Form)>,
    /// What the client says if no letter requests the command, and if no signal does (`{pid}` is filled in).
    pub hints: (&'static str, &'static str),
    /// Not idempotent: every repetition counts.
    pub is_cumulative: bool,
    /// Accepted while the instance stops.
    pub while_stopping: bool,
    /// Succeeds or fails some time later: `--wait` waits for that.
    pub has_outcome: bool,
    /// A new generation loads the current code.
    pub is_reload: bool,
}

/// A signal that requests a command.
#[derive(Debug, Clone, Copy)]
pub enum SignalNumber {
    Standard(Signal),
    /// `SIGRTMIN` plus this number.
    Realtime(i32),
}

impl SignalNumber {
    pub fn number(self) -> i32 {
        match self {
            SignalNumber::Standard(signal) => signal as i32,
            SignalNumber::Realtime(offset) => libc::SIGRTMIN() + offset,
        }
    }
}

/// The form of a command line that selects a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The default, if no other form matches.
    Plain,
    /// `--now`.
    Now,
    /// `--chain`.
    Chain,
    /// `+N`.
    More,
    /// `-N`.
    Fewer,
    /// `N`.
    Number,
}

/// The meaning of a letter of `master-fifo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letter {
    Command(Command),
    /// Commands are read from the FIFO with this number from now on.
    Slot(usize),
    /// Not supported, with the reason.
    Unsupported(char, &'static str),
}

/// Letters of uWSGI without an effect here: each with the reason and its sentence in the manual.
pub const UNSUPPORTED_LETTERS: &[(char, &str, &str)] = &[
    ('C', "it does not exist yet", "Nothing yet."),
    ('B', "there is no emperor to notify", "Nothing, because there is no emperor."),
    ('E', "there is no emperor in this instance", "Nothing, because there is no emperor."),
    ('S', "there is no subscription server to notify", "Nothing, because there are no subscriptions."),
];

const NO_SOCKET_HINT: &str = "no letter of the FIFO does that; specify the pidfile or the configuration";
const TOGGLE_HINTS: (&str, &str) =
    ("its letter `p` toggles a pause; specify the pidfile or the configuration", "; `kill -TSTP {pid}` pauses it, or resumes it");

/// Returns a row with the log line only.
const fn row(done: &'static str) -> CommandRow {
    CommandRow {
        done,
        letters: &[],
        signals: &[],
        portable_signal: None,
        command_line: None,
        hints: (NO_SOCKET_HINT, ""),
        is_cumulative: false,
        while_stopping: false,
        has_outcome: false,
        is_reload: false,
    }
}

const fn signal(signal: Signal) -> SignalNumber {
    SignalNumber::Standard(signal)
}

/// Generates the enumeration and its table from the same lines, so that no command lacks a row.
macro_rules! commands {
    ($($(#[$documentation:meta])* $name:ident $(($payload:ty = $example:expr))? => $row:expr,)*) => {
        /// A request to the running master.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Command {
            $($(#[$documentation])* $name $(($payload))?,)*
        }

        /// All commands, in the order of the manual.
        pub const COMMANDS: &[Command] = &[$(Command::$name $(($example))?),*];

        impl Command {
            pub fn row(self) -> &'static CommandRow {
                match self {
                    $(Command::$name { .. } => const { &$row },)*
                }
            }
        }
    };
}

commands! {
    /// End when the requests in flight are answered; the second request ends the instance immediately.
    Stop => CommandRow {
        letters: &[('q', "Stop gracefully, as SIGTERM.")],
        signals: &[
            (
                signal(Signal::SIGTERM),
                "Stop gracefully. Requests in flight are completed, for at most `reload-mercy`. A second one stops immediately. \
                With `drain-delay`, the first one waits for load balancers, the second one begins the drain, and the third one \
                stops immediately.",
            ),
        ],
        // uWSGI reloads on SIGTERM. To Bolide, it is `Drain`.
        portable_signal: Some(Signal::SIGINT),
        command_line: Some((InstanceCommand::Stop, Form::Plain)),
        while_stopping: true,
        ..row("stopping when its requests are answered")
    },
    /// Like `Stop`, without waiting for load balancers (`drain-delay`).
    Drain => CommandRow {
        signals: &[(signal(Signal::SIGINT), "As SIGTERM, but it does not wait for load balancers (`drain-delay`).")],
        while_stopping: true,
        ..row("stopping without a delay, when its requests are answered")
    },
    /// End immediately.
    StopNow => CommandRow {
        letters: &[('Q', "Stop immediately, as SIGQUIT.")],
        signals: &[(signal(Signal::SIGQUIT), "Stop immediately. Workers are killed.")],
        portable_signal: Some(Signal::SIGQUIT),
        command_line: Some((InstanceCommand::Stop, Form::Now)),
        while_stopping: true,
        ..row("stopping immediately")
    },
    /// Start a new generation, which takes over.
    Reload => CommandRow {
        letters: &[('r', "Reload, as SIGHUP.")],
        signals: &[(
            signal(Signal::SIGHUP),
            "Reload. A new generation loads the application and accepts requests before the old one finishes. The configuration \
            is read again. When its terminal has been closed, an instance without a configuration file, or with `develop`, stops \
            instead, unless SIGHUP was ignored when it started (nohup).",
        )],
        portable_signal: Some(Signal::SIGHUP),
        command_line: Some((InstanceCommand::Reload, Form::Plain)),
        has_outcome: true,
        is_reload: true,
        ..row("reloading")
    },
    /// Like `Reload`, without time for requests in flight: the old generation ends as soon as the new one serves.
    ReloadBrutally => CommandRow {
        letters: &[
            ('R', "Reload, and do not wait for requests in flight once the new generation is ready."),
            ('W', "As `R`."),
        ],
        command_line: Some((InstanceCommand::Reload, Form::Now)),
        has_outcome: true,
        is_reload: true,
        ..row("reloading without waiting for requests in flight")
    },
    /// Replace each worker with a new one of the same generation.
    ReloadWorkers => CommandRow { letters: &[('w', "Replace the workers.")], ..row("replacing its workers") },
    /// Like `ReloadWorkers`, one after the other. With `lazy-apps` each loads the application again; a failure ends the chain.
    ReloadChain => CommandRow {
        letters: &[('c', "Replace the workers one by one.")],
        command_line: Some((InstanceCommand::Reload, Form::Chain)),
        ..row("replacing its workers one by one")
    },
    /// Replace each mule with a new one of the same generation.
    ReloadMules => CommandRow { ..row("replacing its mules") },
    /// Replace each spooler with a new one of the same generation. Only the file watcher requests it.
    ReloadSpoolers => row("replacing its spoolers"),
    /// Add a worker, up to `processes`.
    AddWorker => CommandRow {
        letters: &[('+', "Add a worker, up to `processes`.")],
        signals: &[(
            signal(Signal::SIGTTIN),
            "Add a worker, up to `processes`. With `cheaper` the algorithm continues from there, unless it is `manual`.",
        )],
        command_line: Some((InstanceCommand::Workers, Form::More)),
        is_cumulative: true,
        ..row("adding a worker, up to `processes`")
    },
    /// Remove a worker; the last one stays.
    RemoveWorker => CommandRow {
        letters: &[('-', "Remove a worker, but not the last one.")],
        signals: &[(signal(Signal::SIGTTOU), "Remove a worker, but not the last one, when it has finished its requests.")],
        command_line: Some((InstanceCommand::Workers, Form::Fewer)),
        is_cumulative: true,
        ..row("removing a worker")
    },
    /// Add or remove workers until there are this many.
    SetWorkers(u32 = 1) => CommandRow {
        command_line: Some((InstanceCommand::Workers, Form::Number)),
        ..row("changing the number of workers")
    },
    /// Begin no request until resumed.
    Pause => CommandRow {
        command_line: Some((InstanceCommand::Pause, Form::Plain)),
        hints: TOGGLE_HINTS,
        ..row("pausing: new requests wait until it is resumed")
    },
    /// Begin requests again.
    Resume => CommandRow {
        command_line: Some((InstanceCommand::Resume, Form::Plain)),
        hints: TOGGLE_HINTS,
        ..row("resuming")
    },
    /// Pause, or resume if paused.
    TogglePause => CommandRow {
        letters: &[('p', "Pause, as SIGTSTP, or resume a paused instance.")],
        signals: &[(
            signal(Signal::SIGTSTP),
            "Pause. Requests in flight are completed, no new ones start, and clients wait. A second one resumes. Ctrl-Z in its \
                terminal has the same effect. It never stops the master, and it is logged.",
        )],
        is_cumulative: true,
        ..row("pausing, or resuming")
    },
    /// Write a line about each child to the log. `bolide status` is not a command but a query, which the control socket answers.
    Status => CommandRow {
        letters: &[('s', "Write the state of each process to the log.")],
        signals: &[
            (signal(Signal::SIGUSR1), "Write the state of each process to the log."),
            (signal(Signal::SIGUSR2), "As SIGUSR1."),
        ],
        while_stopping: true,
        ..row("writing its state to the log")
    },
    /// Replace this master with a new master of the program that is installed now.
    Upgrade => CommandRow {
        letters: &[(
            'f',
            "Upgrade. A new master of the installed program takes over the sockets. It is refused if root's application has \
                its own user (`uid`).",
        )],
        // uWSGI has no signal for it, and no standard signal is free.
        signals: &[(
            SignalNumber::Realtime(2),
            "Upgrade. A new master of the installed program is executed and receives the sockets. This one continues until the \
                new one accepts requests, and then exits like an old generation.",
        )],
        command_line: Some((InstanceCommand::Upgrade, Form::Plain)),
        has_outcome: true,
        ..row("upgrading to a new master")
    },
    /// Reopen the log files after an external program moved them.
    ReopenLogs => CommandRow {
        letters: &[('l', "Open the log files again.")],
        command_line: Some((InstanceCommand::LogReopen, Form::Plain)),
        ..row("opening its log files again")
    },
    /// Move the log files aside and begin new ones.
    RotateLogs => CommandRow {
        letters: &[('L', "Move the log files aside, and start new ones.")],
        command_line: Some((InstanceCommand::LogRotate, Form::Plain)),
        ..row("moving its log files aside and starting new ones")
    },
    /// Write the pidfiles again.
    WritePidfiles => CommandRow { letters: &[('P', "Write the pidfiles again.")], ..row("writing its pidfiles again") },
    /// Run the hook of a file that changed (`hook-touch`, `touch-exec`), by its number. Only the file watcher requests it.
    Hook(u32 = 0) => row("running its hook"),
}

/// Returns the meaning of a letter, or `None` if it has none.
pub fn of_letter(letter: u8) -> Option<Letter> {
    if letter.is_ascii_digit() {
        return Some(Letter::Slot(usize::from(letter - b'0')));
    }
    let letter = char::from(letter);
    let has_letter = |command: &&Command| command.row().letters.iter().any(|(known, _)| *known == letter);
    let unsupported = || UNSUPPORTED_LETTERS.iter().find(|(known, ..)| *known == letter);
    COMMANDS
        .iter()
        .find(has_letter)
        .map(|command| Letter::Command(*command))
        .or_else(|| unsupported().map(|(letter, why, _)| Letter::Unsupported(*letter, why)))
}

/// Returns the meanings of letters that arrive together. Consecutive repetitions count once, unless the command is cumulative.
/// Letters without a meaning are left out.
pub fn of_letters(letters: &[u8]) -> Vec<Letter> {
    let is_cumulative = |letter: &Letter| matches!(letter, Letter::Command(command) if command.row().is_cumulative);
    let mut meanings: Vec<Letter> = letters.iter().filter_map(|letter| of_letter(*letter)).collect();
    meanings.dedup_by(|next, last| next == last && !is_cumulative(next));
    meanings
}

/// Returns the command of a request at the control socket.
///
/// # Errors
/// The reason why the request is not a command, as text.
pub fn of_question(question: &Value) -> Result<Command, String> {
    let asked = question["ask"].as_str().unwrap_or_default();
    let is = |flag: &str| question[flag].as_bool() == Some(true);
    let number = question["number"].as_u64().and_then(|number| u32::try_from(number).ok());
    let change = question["change"].as_i64().unwrap_or(0);
    let found = InstanceCommand::named(asked).and_then(|command| choose(command, is("now"), is("chain"), change, number));
    found.ok_or_else(|| match asked {
        "workers" => format!("`workers` takes a number or a change, of at most {MAX_WORKERS_CHANGE} workers"),
        _ => format!("`{asked}` is unknown: this instance may be of another version ({})", env!("CARGO_PKG_VERSION")),
    })
}

/// Returns the command of a command line, or `None` if only a control socket can answer it.
pub fn of_request(request: &InstanceRequest) -> Option<Command> {
    choose(request.command, request.now, request.chain, i64::from(request.change), request.number)
}

fn choose(asked: InstanceCommand, now: bool, chain: bool, change: i64, number: Option<u32>) -> Option<Command> {
    let most = i64::from(MAX_WORKERS_CHANGE);
    let is_given = |form: Form| match form {
        Form::Plain => true,
        Form::Now => now,
        Form::Chain => chain,
        Form::More => (1..=most).contains(&change),
        Form::Fewer => (-most..=-1).contains(&change),
        Form::Number => number.is_some_and(|number| (1..=most).contains(&i64::from(number))),
    };
    let forms = || {
        COMMANDS
            .iter()
            .filter_map(|command| Some((*command, command.row().command_line?)))
            .filter(|(_, (name, form))| *name == asked && is_given(*form))
    };
    let special = forms().find(|(_, (_, form))| *form != Form::Plain);
    special.or_else(|| forms().next()).map(|(command, _)| match (command, number) {
        (Command::SetWorkers(_), Some(number)) => Command::SetWorkers(number),
        _ => command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_letter_of_uwsgi_has_a_meaning_and_no_other_has() {
        let letters = "0123456789+-BCcEflLPpqQrRsSwW";
        for byte in 0..=u8::MAX {
            assert_eq!(of_letter(byte).is_some(), letters.bytes().any(|letter| letter == byte), "{byte}");
        }
    }

    #[test]
    fn letters_that_follow_each_other_count_once_unless_the_command_is_cumulative() {
        let commands = |text: &str| of_letters(text.as_bytes());
        assert_eq!(commands("rrr~sq"), [Command::Reload, Command::Status, Command::Stop].map(Letter::Command));
        assert_eq!(commands("++pp").len(), 4);
        assert_eq!(
            commands("r11Br"),
            [
                Letter::Command(Command::Reload),
                Letter::Slot(1),
                Letter::Unsupported('B', "there is no emperor to notify"),
                Letter::Command(Command::Reload),
            ]
        );
    }

    #[test]
    fn every_row_is_whole_and_no_two_commands_are_asked_for_alike() {
        let (mut letters, mut signals, mut forms, mut done) = (HashSet::new(), HashSet::new(), Vec::new(), HashSet::new());
        letters.extend(UNSUPPORTED_LETTERS.iter().map(|(letter, ..)| *letter));
        for command in COMMANDS {
            let row = command.row();
            assert!(done.insert(row.done), "{command:?}: `{}` is said twice", row.done);
            for (letter, help) in row.letters {
                assert!(letters.insert(*letter) && !letter.is_ascii_digit(), "{command:?}: `{letter}` twice");
                assert!(help.ends_with('.'), "{command:?}: {help}");
            }
            for (signal, help) in row.signals {
                assert!(signals.insert(signal.number()), "{command:?}: {signal:?} twice");
                assert!(help.ends_with('.'), "{command:?}: {help}");
            }
            if let Some(signal) = row.portable_signal {
                // SIGINT is the nearest to `Stop` that uWSGI has.
                let rows = if *command == Command::Stop { &[Command::Drain] } else { std::slice::from_ref(command) };
                let has_signal = |row: &CommandRow| row.signals.iter().any(|(known, _)| known.number() == signal as i32);
                assert!(rows.iter().any(|command| has_signal(command.row())), "{command:?}: {signal}");
            }
            if let Some(form) = row.command_line {
                assert!(!forms.contains(&form), "{command:?}: {form:?} twice");
                forms.push(form);
            }
            let is_asked_for = !row.letters.is_empty() || !row.signals.is_empty() || row.command_line.is_some();
            // A watched file alone asks for these.
            let is_of_files = matches!(command, Command::Hook(_) | Command::ReloadMules | Command::ReloadSpoolers);
            assert_eq!(is_asked_for, !is_of_files, "{command:?}: nothing asks for it");
        }
    }

    #[test]
    fn every_command_line_has_a_row_and_those_with_wait_have_an_outcome() {
        for command in InstanceCommand::ALL {
            let rows: Vec<&Command> =
                COMMANDS.iter().filter(|one| one.row().command_line.is_some_and(|(name, _)| name == *command)).collect();
            assert_eq!(rows.is_empty(), *command == InstanceCommand::Status, "{command:?}");
            // The client itself waits for the end of a stopping instance.
            let waits = rows.iter().any(|one| one.row().has_outcome) || *command == InstanceCommand::Stop;
            assert_eq!(command.takes("--wait"), waits, "{command:?}");
            let has = |form| rows.iter().any(|one| one.row().command_line.is_some_and(|(_, known)| known == form));
            assert_eq!(command.takes("--now"), has(Form::Now), "{command:?}");
            assert_eq!(command.takes("--chain"), has(Form::Chain), "{command:?}");
        }
    }

    #[test]
    fn a_request_at_the_control_socket_chooses_the_row_of_its_form() {
        let asked = |text: &str| of_question(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(asked(r#"{"ask": "reload"}"#), Ok(Command::Reload));
        assert_eq!(asked(r#"{"ask": "reload", "now": true, "chain": true}"#), Ok(Command::ReloadBrutally));
        assert_eq!(asked(r#"{"ask": "pause", "now": true}"#), Ok(Command::Pause));
        assert_eq!(asked(r#"{"ask": "workers", "change": -1024}"#), Ok(Command::RemoveWorker));
        assert_eq!(asked(r#"{"ask": "workers", "change": 0, "number": 1024}"#), Ok(Command::SetWorkers(1024)));
        for (question, why) in [
            (r#"{"ask": "workers", "change": 1025}"#, "`workers` takes a number or a change, of at most 1024 workers"),
            (r#"{"ask": "workers", "number": 1025}"#, "`workers` takes a number or a change, of at most 1024 workers"),
            (r#"{"ask": "workers"}"#, "`workers` takes a number or a change, of at most 1024 workers"),
            (r#"{"ask": "fly"}"#, "`fly` is unknown"),
        ] {
            assert!(asked(question).is_err_and(|said| said.starts_with(why)), "{question}");
        }
    }
}
