//! The keywords of the configuration language, which act while a configuration is read, before any setting is made. Pure data.

use crate::instance_commands::InstanceCommand;

/// A keyword of the configuration language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// `ini = FILE` and similar: reads another file in this format.
    Load(Format),
    /// `include`, `config`: reads another file in the format that its name indicates.
    Include,
    /// Like `include`, but after everything else has been read and expanded.
    Inherit,
    Strict,
    Set,
    SetPlaceholder,
    DeclareOption,
    Logic(Condition),
    /// `endif`, `endfor` and similar.
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
    /// Sends a command to the control socket of an instance, and prints the response.
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

/// The condition or loop that decides whether, or how often, the options up to `endif`/`endfor` apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    For,
    ForGlob,
    ForTimes,
    ForReadline,
    /// `if-NAME` if the flag is true, `if-not-NAME` if it is false.
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
