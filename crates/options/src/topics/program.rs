//! Rows of the program itself. Pure data.

use bolide_configuration::instance_commands::InstanceCommand;
use bolide_configuration::words::Word;

use crate::row::{OptionEntry, Setting, Value};

/// The effect of uWSGI's three options for pausing.
const TOGGLES: &str = "There each of `pause`, `suspend` and `resume` sends SIGTSTP, which pauses a running instance and resumes a paused one: `--resume` pauses one that was not paused. Here each does what its name says.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("help", Setting::Language(Word::Help), Value::Switch, "", "Prints a summary and exits."),
    OptionEntry::supported("version", Setting::Language(Word::Version), Value::Switch, "", "Prints the version and exits."),
    OptionEntry::supported(
        "stop",
        Setting::Language(Word::Signal(InstanceCommand::Stop)),
        Value::Path,
        "",
        "Tells the instance whose pid is in this file (`pidfile`) to stop gracefully, and exits. Nothing is started.",
    ),
    OptionEntry::supported(
        "reload",
        Setting::Language(Word::Signal(InstanceCommand::Reload)),
        Value::Path,
        "",
        "Tells the instance whose pid is in this file (`pidfile`) to reload, and exits. Nothing is started.",
    ),
    OptionEntry::supported(
        "pause",
        Setting::Language(Word::Ask(InstanceCommand::Pause)),
        Value::Path,
        "",
        "Pauses the instance whose pid is in this file (`pidfile`), like `bolide pause`, and exits. Nothing is started.",
    )
    .uwsgi(TOGGLES),
    OptionEntry::supported("suspend", Setting::Language(Word::Ask(InstanceCommand::Pause)), Value::Path, "", "As `pause`.")
        .uwsgi(TOGGLES),
    OptionEntry::supported(
        "resume",
        Setting::Language(Word::Ask(InstanceCommand::Resume)),
        Value::Path,
        "",
        "Resumes the paused instance whose pid is in this file (`pidfile`), like `bolide resume`, and exits.",
    )
    .uwsgi(TOGGLES),
    OptionEntry::refused(
        "signal",
        Value::Text,
        "Sends one of uWSGI's own signals to an instance.",
        "there are no such signals; `kill` sends system signals",
    ),
    OptionEntry::refused(
        "connect-and-read",
        Value::Address,
        "Prints data from a socket.",
        "use `socat - UNIX-CONNECT:/path` or `nc HOST PORT`",
    ),
    OptionEntry::refused("extract", Value::Text, "Prints a file, or the content of an address.", "use `cat` or `curl`"),
    OptionEntry::refused("print-sym", Value::Text, "Prints a symbol of uWSGI's program.", "there are none"),
    OptionEntry::refused("ping", Value::Address, "Checks whether a uWSGI server responds.", "use `curl` with an HTTP address"),
    OptionEntry::refused(
        "nagios",
        Value::Switch,
        "Checks the state of a uWSGI server, for Nagios.",
        "use `check_http` with an HTTP address",
    ),
    OptionEntry::refused(
        "build-plugin",
        Value::Path,
        "Builds a plugin of uWSGI.",
        "Bolide has no C plugins; use its issue tracker to ask for features",
    ),
    OptionEntry::refused(
        "cflags",
        Value::Switch,
        "Prints how uWSGI was compiled.",
        "there is nothing to compile against; use `--version`",
    ),
    OptionEntry::refused(
        "dot-h",
        Value::Switch,
        "Prints uWSGI's C header.",
        "there is nothing to compile against; use `--version`",
    ),
    OptionEntry::refused(
        "config-py",
        Value::Switch,
        "Prints uWSGI's build script.",
        "there is nothing to build; use `--version`",
    ),
    OptionEntry::refused(
        "dlopen",
        Value::Path,
        "Loads a shared library into the server.",
        "load it from the application, with `ctypes`",
    ),
    OptionEntry::refused(
        "binary-append-data",
        Value::Path,
        "Appends a file to uWSGI's program.",
        "keep the file beside the program, and name it",
    ),
];
