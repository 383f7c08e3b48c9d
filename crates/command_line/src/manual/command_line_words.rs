//! Flags of the command line that stand for an option of another name, such as `--port` for `http`. Pure data.
//!
//! The command line takes the flags of many servers; these are the ones that Bolide's own help and tutorials use.

/// A flag of the command line, and the option that it sets.
#[derive(Debug)]
pub struct CommandLineWord {
    /// Without its dashes.
    pub name: &'static str,
    /// The placeholder of its value; empty for a switch.
    pub value: &'static str,
    pub help: &'static str,
    pub option: &'static str,
}

pub const COMMAND_LINE_WORDS: [CommandLineWord; 4] = [
    CommandLineWord {
        name: "reload",
        value: "",
        help: "Serve with one worker that loads each saved change and shows tracebacks in the browser",
        option: "develop",
    },
    CommandLineWord { name: "port", value: "NUMBER", help: "Listen on this port instead of 8000", option: "http" },
    CommandLineWord { name: "host", value: "ADDRESS", help: "Listen on this address instead of 127.0.0.1", option: "http" },
    CommandLineWord { name: "workers", value: "NUMBER|auto", help: "The number of workers", option: "processes" },
];

/// Finds a flag by name, with or without its dashes.
pub fn word(argument: &str) -> Option<&'static CommandLineWord> {
    let bare = argument.trim_start_matches('-');
    COMMAND_LINE_WORDS.iter().find(|word| word.name == bare)
}
