//! The commands: words in the place of the first argument. `--help`, the man page and the completions are made from this list, and
//! `commands` runs what is in it. It runs nothing itself.

use crate::diagnostic::{Diagnostic, Location};
use crate::instance_words::InstanceWord;
use crate::reading::Reading;

/// The exit status of a command that was used wrongly, or found an error.
pub const FAILED: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Check,
    Config,
    Explain,
    Options,
    Init,
    Manual,
    Completions,
    /// Tells a running instance something.
    Instance(InstanceWord),
}

/// Commands that ask nobody.
const OFFLINE: [Command; 7] =
    [Command::Check, Command::Config, Command::Explain, Command::Options, Command::Init, Command::Manual, Command::Completions];

impl Command {
    /// In the order in which they are listed.
    pub const ALL: [Command; 7 + InstanceWord::ALL.len()] = {
        let mut all = [Command::Check; 7 + InstanceWord::ALL.len()];
        let mut number = 0;
        while number < all.len() {
            all[number] = if number < OFFLINE.len() {
                OFFLINE[number]
            } else {
                Command::Instance(InstanceWord::ALL[number - OFFLINE.len()])
            };
            number += 1;
        }
        all
    };

    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Arguments behind the name.
    pub fn usage(self) -> &'static str {
        self.texts().1
    }

    pub fn help(self) -> &'static str {
        self.texts().2
    }

    /// A command that was used wrongly says how to use it.
    pub fn misused(self, message: &str) -> Reading {
        let usage = format!("bolide {} {}", self.name(), self.usage());
        let diagnostic = Diagnostic::error(Some(&Location::command_line()), message).advise(usage);
        Reading::Print { text: format!("{diagnostic}\n"), status: FAILED }
    }

    /// Name, usage, help.
    fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Command::Check => (
                "check",
                "[--strict] [--no-paths] [--env] [--format text|json|lines] FILE…",
                "read configurations without starting, and report all that is odd",
            ),
            Command::Config => {
                ("config", "FILE… | APPLICATION", "print the effective configuration, and where each value comes from")
            }
            Command::Explain => ("explain", "OPTION…", "what an option does, here and in uWSGI"),
            Command::Options => ("options", "[WORD]", "list the options, or those with WORD in them"),
            Command::Init => {
                ("init", "[--from FILE]", "write a bolide.ini for this project, or for what FILE starts (--to toml)")
            }
            Command::Manual => ("manual", "[man|markdown]", "print the man page, or the reference of all options"),
            Command::Instance(word) => word.texts(),
            Command::Completions => ("completions", "bash|zsh|fish", "print completions for a shell"),
        }
    }
}
