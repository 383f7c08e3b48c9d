//! The words of the configuration language itself: what acts while a configuration is read, before any setting is made.

use crate::instance_commands::InstanceCommand;

/// The words of the configuration language itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// `ini = FILE` and the like: read another file, in this format.
    Load(Format),
    /// `include`, `config`: read another file, in the format that its name tells.
    Include,
    /// As `include`, but after everything else has been read and expanded.
    Inherit,
    Strict,
    Set,
    SetPlaceholder,
    DeclareOption,
    Logic(Condition),
    /// `endif`, `endfor` and their like.
    End,
    Blacklist,
    Whitelist,
    EndBlacklist,
    EndWhitelist,
    InjectBefore,
    InjectAfter,
    Print,
    PrintAtOnce,
    Exit,
    ShowConfig,
    /// Sends the signal of a command to the instance of a pidfile.
    Signal(InstanceCommand),
    /// Sends a command to its control socket, which answers.
    Ask(InstanceCommand),
    Help,
    Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Ini,
    Yaml,
    Json,
    Xml,
    Toml,
}

/// The condition or loop that decides whether, or how often, the options up to `endif`/`endfor` are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    For,
    ForGlob,
    ForTimes,
    ForReadline,
    /// `if-NAME` where the flag is true, `if-not-NAME` where it is false.
    Option(bool),
    Environment(bool),
    Reload(bool),
    HostName(bool),
    HostNameMatch(bool),
    Exists(bool),
    File(bool),
    Directory(bool),
    Plugin(bool),
}
