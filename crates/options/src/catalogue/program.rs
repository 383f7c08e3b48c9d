//! Rows of the program itself.

use crate::catalogue::language_words::Word;
use crate::catalogue::row::{OptionEntry, Setting, Value};
use crate::instance_commands::InstanceCommand;

/// What the three options of a pause are there.
const TOGGLES: &str = "There each of `pause`, `suspend` and `resume` sends SIGTSTP, which pauses an instance that runs and resumes one that is \
    paused: `--resume` pauses one that was not. Here each does what it is called.";

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("help", Setting::Language(Word::Help), Value::Switch, "", "Prints a summary and ends."),
    OptionEntry::supported("version", Setting::Language(Word::Version), Value::Switch, "", "Prints the version and ends."),
    OptionEntry::supported(
        "stop",
        Setting::Language(Word::Signal(InstanceCommand::Stop)),
        Value::Path,
        "",
        "Tells the instance whose pid is in this file (`pidfile`) to stop gracefully, and ends. Nothing is started.",
    ),
    OptionEntry::supported(
        "reload",
        Setting::Language(Word::Signal(InstanceCommand::Reload)),
        Value::Path,
        "",
        "Tells the instance whose pid is in this file (`pidfile`) to reload, and ends. Nothing is started.",
    ),
    OptionEntry::supported(
        "pause",
        Setting::Language(Word::Ask(InstanceCommand::Pause)),
        Value::Path,
        "",
        "Has the instance whose pid is in this file (`pidfile`) take no requests, as `bolide pause`, and ends. Nothing is started.",
    )
    .uwsgi(TOGGLES),
    OptionEntry::supported("suspend", Setting::Language(Word::Ask(InstanceCommand::Pause)), Value::Path, "", "As `pause`.").uwsgi(TOGGLES),
    OptionEntry::supported(
        "resume",
        Setting::Language(Word::Ask(InstanceCommand::Resume)),
        Value::Path,
        "",
        "Has the paused instance whose pid is in this file (`pidfile`) take requests again, as `bolide resume`, and ends.",
    )
    .uwsgi(TOGGLES),
    OptionEntry::refused(
        "signal",
        Value::Text,
        "Sends a signal of uWSGI's own to an instance.",
        "there are no such signals; `kill` sends those of the system",
    ),
    OptionEntry::refused(
        "connect-and-read",
        Value::Address,
        "Prints what comes from a socket.",
        "use `socat - UNIX-CONNECT:/path` or `nc HOST PORT`",
    ),
    OptionEntry::refused("extract", Value::Text, "Prints a file, or what is at an address.", "use `cat` or `curl`"),
    OptionEntry::refused("print-sym", Value::Text, "Prints a symbol of uWSGI's program.", "there are none"),
    OptionEntry::refused("ping", Value::Address, "Asks a uWSGI server whether it lives.", "use `curl` with an HTTP address"),
    OptionEntry::refused(
        "nagios",
        Value::Switch,
        "Asks a uWSGI server how it is, for Nagios.",
        "use `check_http` with an HTTP address",
    ),
    OptionEntry::refused(
        "build-plugin",
        Value::Path,
        "Builds a plugin of uWSGI.",
        "Bolide has no plugins in C; what it lacks is a wish for its issue tracker",
    ),
    OptionEntry::refused(
        "cflags",
        Value::Switch,
        "Prints how uWSGI was compiled.",
        "there is nothing to compile against; use `--version`",
    ),
    OptionEntry::refused("dot-h", Value::Switch, "Prints uWSGI's C header.", "there is nothing to compile against; use `--version`"),
    OptionEntry::refused("config-py", Value::Switch, "Prints uWSGI's build script.", "there is nothing to build; use `--version`"),
    OptionEntry::refused(
        "dlopen",
        Value::Path,
        "Loads any shared library into the server.",
        "load it from the application, with `ctypes`",
    ),
    OptionEntry::refused(
        "binary-append-data",
        Value::Path,
        "Appends a file to uWSGI's program.",
        "keep the file beside the program, and name it",
    ),
];
