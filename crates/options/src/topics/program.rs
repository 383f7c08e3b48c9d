//! Rows of the program itself. Pure data.

use bolide_configuration::instance_commands::InstanceCommand;
use bolide_configuration::words::Word;

use crate::row::{OptionEntry, Setting, Value, refused, rows, supported};

/// The effect of uWSGI's three options for pausing.
const TOGGLES: &str = "In uWSGI each of `pause`, `suspend` and `resume` sends SIGTSTP, which pauses a running instance and \
    resumes a paused one, so `--resume` pauses an instance that was not paused. Here each does what its name says.";

pub const ENTRIES: &[OptionEntry] = rows![
    /// Print a summary and exit.
    supported("help", Setting::Language(Word::Help)).takes(Value::Switch, ""),
    /// Print the version and exit.
    supported("version", Setting::Language(Word::Version)).takes(Value::Switch, ""),
    /// Tell the instance whose pid is in this file (`pidfile`) to stop gracefully, and exit. This does not start anything.
    supported("stop", Setting::Language(Word::Signal(InstanceCommand::Stop))).takes(Value::Path, ""),
    /// Tell the instance whose pid is in this file (`pidfile`) to reload, and exit. This does not start anything.
    supported("reload", Setting::Language(Word::Signal(InstanceCommand::Reload))).takes(Value::Path, ""),
    /// Pause the instance whose pid is in this file (`pidfile`), like `bolide pause`, and exit. This does not start anything.
    supported("pause", Setting::Language(Word::Ask(InstanceCommand::Pause))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// Like `pause`.
    supported("suspend", Setting::Language(Word::Ask(InstanceCommand::Pause))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// Resume the paused instance whose pid is in this file (`pidfile`), like `bolide resume`, and exit.
    supported("resume", Setting::Language(Word::Ask(InstanceCommand::Resume))).takes(Value::Path, "").uwsgi(TOGGLES),
    /// Send one of uWSGI's own signals to an instance.
    /// Instead: use `kill`, which sends system signals, because uWSGI's own can't be sent from outside
    refused("signal", Value::Text),
    /// Print data from a socket.
    /// Instead: use `socat - UNIX-CONNECT:/path` or `nc HOST PORT`
    refused("connect-and-read", Value::Address),
    /// Print a file, or the content of an address.
    /// Instead: use `cat` or `curl`
    refused("extract", Value::Text),
    /// Print a symbol of uWSGI's program.
    /// Instead: leave it out, because Bolide does not have such symbols
    refused("print-sym", Value::Text),
    /// Check whether a uWSGI server responds.
    /// Instead: use `curl` with an HTTP address
    refused("ping", Value::Address),
    /// Check the state of a uWSGI server, for Nagios.
    /// Instead: use `check_http` with an HTTP address
    refused("nagios", Value::Switch),
    /// Build a plugin of uWSGI.
    /// Instead: ask for features in the issue tracker, because Bolide does not have C plugins
    refused("build-plugin", Value::Path),
    /// Print how uWSGI was compiled.
    /// Instead: use `--version`, because there is nothing to compile against
    refused("cflags", Value::Switch),
    /// Print uWSGI's C header.
    /// Instead: use `--version`, because there is nothing to compile against
    refused("dot-h", Value::Switch),
    /// Print uWSGI's build script.
    /// Instead: use `--version`, because there is nothing to build
    refused("config-py", Value::Switch),
    /// Load a shared library into the server.
    /// Instead: load it from the application, with `ctypes`
    refused("dlopen", Value::Path),
    /// Append a file to uWSGI's program.
    /// Instead: keep the file beside the program, and pass its path
    refused("binary-append-data", Value::Path),
];
