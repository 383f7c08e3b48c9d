//! Rows of the program itself. Pure data.

use bolide_configuration::instance_commands::InstanceCommand;
use bolide_configuration::words::Word;

use crate::row::{OptionEntry, Setting, Value, refused, rows, supported};

/// The effect of uWSGI's three options for pausing.
const TOGGLES: &str = "There each of `pause`, `suspend` and `resume` sends SIGTSTP, which pauses a running instance and resumes \
    a paused one: `--resume` pauses one that was not paused. Here each does what its name says.";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Prints a summary and exits.
    supported("help", Setting::Language(Word::Help)).takes(Value::Switch, ""),
    /// Prints the version and exits.
    supported("version", Setting::Language(Word::Version)).takes(Value::Switch, ""),
    /// Tells the instance whose pid is in this file (`pidfile`) to stop gracefully, and exits. Nothing is started.
    supported("stop", Setting::Language(Word::Signal(InstanceCommand::Stop))).takes(Value::Path, ""),
    /// Tells the instance whose pid is in this file (`pidfile`) to reload, and exits. Nothing is started.
    supported("reload", Setting::Language(Word::Signal(InstanceCommand::Reload))).takes(Value::Path, ""),
    /// Pauses the instance whose pid is in this file (`pidfile`), like `bolide pause`, and exits. Nothing is started.
    supported("pause", Setting::Language(Word::Ask(InstanceCommand::Pause))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// As `pause`.
    supported("suspend", Setting::Language(Word::Ask(InstanceCommand::Pause))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// Resumes the paused instance whose pid is in this file (`pidfile`), like `bolide resume`, and exits.
    supported("resume", Setting::Language(Word::Ask(InstanceCommand::Resume))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// Sends one of uWSGI's own signals to an instance.
    /// Instead: there are no such signals; `kill` sends system signals
    refused("signal", Value::Text),
    /// Prints data from a socket.
    /// Instead: use `socat - UNIX-CONNECT:/path` or `nc HOST PORT`
    refused("connect-and-read", Value::Address),
    /// Prints a file, or the content of an address.
    /// Instead: use `cat` or `curl`
    refused("extract", Value::Text),
    /// Prints a symbol of uWSGI's program.
    /// Instead: there are none
    refused("print-sym", Value::Text),
    /// Checks whether a uWSGI server responds.
    /// Instead: use `curl` with an HTTP address
    refused("ping", Value::Address),
    /// Checks the state of a uWSGI server, for Nagios.
    /// Instead: use `check_http` with an HTTP address
    refused("nagios", Value::Switch),
    /// Builds a plugin of uWSGI.
    /// Instead: Bolide has no C plugins; use its issue tracker to ask for features
    refused("build-plugin", Value::Path),
    /// Prints how uWSGI was compiled.
    /// Instead: there is nothing to compile against; use `--version`
    refused("cflags", Value::Switch),
    /// Prints uWSGI's C header.
    /// Instead: there is nothing to compile against; use `--version`
    refused("dot-h", Value::Switch),
    /// Prints uWSGI's build script.
    /// Instead: there is nothing to build; use `--version`
    refused("config-py", Value::Switch),
    /// Loads a shared library into the server.
    /// Instead: load it from the application, with `ctypes`
    refused("dlopen", Value::Path),
    /// Appends a file to uWSGI's program.
    /// Instead: keep the file beside the program, and name it
    refused("binary-append-data", Value::Path),
];
