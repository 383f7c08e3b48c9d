//! The commands for a running instance: their words, their arguments and their exit statuses, in one table. Help, man page and the page
//! about signals and processes are made from it; the master's room finds the instance and asks it. It asks nobody.

use std::fmt::Write;

/// What a running instance is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceWord {
    Reload,
    Stop,
    Status,
    Upgrade,
    Workers,
    Pause,
    Resume,
    LogReopen,
    LogRotate,
}

/// A command for a running instance, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRequest {
    pub word: InstanceWord,
    /// The pidfile, configuration, fifo, control socket or pid; `None`: the instance of this folder.
    pub instance: Option<String>,
    /// `--wait`: the command ends when what it asks for has happened, or failed.
    pub waits: bool,
    /// `--now` of `stop`, and of `reload` as in uWSGI's brutal one: requests in flight are not waited for.
    pub now: bool,
    /// `--chain` of `reload`: workers are replaced one by one.
    pub chain: bool,
    /// `--json` of `status`.
    pub json: bool,
    /// `+2` of `workers`: how many more, or fewer.
    pub change: i32,
}

/// The most workers that one command may add or take.
pub const WORKERS_CHANGE_MOST: i32 = 1024;

/// Exit statuses of these commands, and what each says.
pub const EXIT_STATUSES: [(i32, &str); 5] = [
    (0, "it is done; with `--wait`: what was asked for has happened"),
    (EXIT_REFUSED, "the instance can't do it; with `--wait`: it has failed"),
    (EXIT_MISUSED, "the command was used wrongly"),
    (EXIT_NO_INSTANCE, "there is no such instance, or more than one"),
    (EXIT_NO_ANSWER, "the instance may not be told, or does not answer"),
];
pub const EXIT_REFUSED: i32 = 1;
const EXIT_MISUSED: i32 = 2;
pub const EXIT_NO_INSTANCE: i32 = 3;
pub const EXIT_NO_ANSWER: i32 = 4;

impl InstanceWord {
    /// In the order in which they are listed.
    pub const ALL: [InstanceWord; 9] = [
        InstanceWord::Reload,
        InstanceWord::Stop,
        InstanceWord::Status,
        InstanceWord::Upgrade,
        InstanceWord::Workers,
        InstanceWord::Pause,
        InstanceWord::Resume,
        InstanceWord::LogReopen,
        InstanceWord::LogRotate,
    ];

    /// Name, usage, help.
    pub fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            InstanceWord::Reload => (
                "reload",
                "[--wait] [--chain | --now] [INSTANCE]",
                "have a running instance take new code; --wait gives its success",
            ),
            InstanceWord::Stop => {
                ("stop", "[--wait] [--now] [INSTANCE]", "stop a running instance when its requests are answered")
            }
            InstanceWord::Status => ("status", "[--json] [INSTANCE]", "show what a running instance does"),
            InstanceWord::Upgrade => {
                ("upgrade", "[--wait] [INSTANCE]", "replace the program of a running instance; --wait gives its success")
            }
            InstanceWord::Workers => ("workers", "+N | -N [INSTANCE]", "add workers to a running instance, or take some away"),
            InstanceWord::Pause => ("pause", "[INSTANCE]", "have a running instance take no requests; clients wait"),
            InstanceWord::Resume => ("resume", "[INSTANCE]", "have a paused instance take requests again"),
            InstanceWord::LogReopen => ("log-reopen", "[INSTANCE]", "have a running instance open its log files anew"),
            InstanceWord::LogRotate => ("log-rotate", "[INSTANCE]", "have a running instance rotate its log files"),
        }
    }

    /// The question of this word without flags, for the instance of a file.
    pub fn to_instance(self, instance: Option<String>) -> InstanceRequest {
        InstanceRequest { word: self, instance, waits: false, now: false, chain: false, json: false, change: 0 }
    }

    /// Its usage names this flag.
    pub fn takes(self, flag: &str) -> bool {
        self.texts().1.split([' ', '[', ']', '|']).any(|word| word == flag)
    }

    /// Reads the arguments behind the word.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn read(self, arguments: &[String]) -> Result<InstanceRequest, String> {
        let mut request = self.to_instance(None);
        for argument in arguments {
            match argument.as_str() {
                "--wait" | "--now" | "--chain" | "--json" if self.takes(argument) => match argument.as_str() {
                    "--wait" => request.waits = true,
                    "--now" => request.now = true,
                    "--chain" => request.chain = true,
                    _ => request.json = true,
                },
                text if self == InstanceWord::Workers && request.change == 0 => request.change = change(text)?,
                text if text.starts_with("--") => return Err(format!("`{text}` means nothing here")),
                text if request.instance.is_none() => request.instance = Some(text.to_owned()),
                text => return Err(format!("`{text}`: one instance is named already")),
            }
        }
        match () {
            () if request.now && request.chain => Err("`--chain` and `--now` can't both be".to_owned()),
            () if self == InstanceWord::Workers && request.change == 0 => Err("no number is named".to_owned()),
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

fn change(text: &str) -> Result<i32, String> {
    let is_signed = text.starts_with(['+', '-']);
    let number = text
        .parse::<i32>()
        .ok()
        .filter(|number| is_signed && *number != 0 && number.unsigned_abs() <= WORKERS_CHANGE_MOST.unsigned_abs());
    number.ok_or_else(|| format!("`{text}` is no change of the number of workers: write +1 or -1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_what_means_nothing_is_refused() {
        let read =
            |word: InstanceWord, text: &str| word.read(&text.split_whitespace().map(str::to_owned).collect::<Vec<String>>());
        let request = read(InstanceWord::Reload, "--wait shop.ini").expect("read");
        assert_eq!((request.waits, request.instance.as_deref()), (true, Some("shop.ini")));
        assert_eq!(read(InstanceWord::Workers, "-2 /run/shop.pid").map(|request| request.change), Ok(-2));
        assert!(read(InstanceWord::Stop, "").is_ok_and(|request| request.instance.is_none()));
        for (word, text) in [
            (InstanceWord::Status, "--wait"),
            (InstanceWord::Stop, "a b"),
            (InstanceWord::Stop, "--chain"),
            (InstanceWord::Reload, "--chain --now"),
            (InstanceWord::Workers, ""),
            (InstanceWord::Workers, "2"),
            (InstanceWord::Workers, "+0"),
            (InstanceWord::Workers, "+99999999999"),
            (InstanceWord::LogReopen, "--force"),
        ] {
            assert!(read(word, text).is_err(), "{} {text}", word.texts().0);
        }
    }
}
