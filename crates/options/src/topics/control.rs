//! Resolves the options of how an instance goes into the background, and how commands find and control it. It opens nothing. Runs
//! in the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::control::{Background, Channel, Control, PidFile};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, Reach, SECONDS, Setting, Value, field, list, rows, set, supported};
use crate::topics::logging::LoggingDraft;
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Run in the background, with this file as the log, even if `logto` sets another one. The command returns with status 0 when
    /// the workers accept requests. A failed startup is shown in the terminal and in the exit status.
    /// uWSGI: uWSGI's command returns immediately with status 0, whatever happens at startup, and clears the umask. Here only
    /// UNIX sockets are accessible to all users (mode 666), if neither `chmod-socket` nor `umask` is set. Leave this option out
    /// in a systemd service or a container, because neither needs a daemon. A vassal stays the child of its emperor, and this is
    /// the file of its log, as in uWSGI.
    /// Example: daemonize = /var/log/shop.log
    supported("daemonize", set!(|draft, _, pair| draft.of::<Control>().background = background(pair, false)?))
        .takes(Value::Path, "").reach(Reach::Master),
    /// Like `daemonize`, but also show the log in the terminal until the workers accept requests.
    /// Example: daemonize2 = /var/log/shop.log
    supported("daemonize2", set!(|draft, _, pair| draft.of::<Control>().background = background(pair, true)?))
        .takes(Value::Path, "").reach(Reach::Master),
    /// Write the master's pid to this file with the rights of `uid` and `gid`, to which the file belongs.
    /// Example: pidfile2 = /home/shop/run/shop.pid
    supported("pidfile2", set!(|draft, _, pair| add_pidfile(draft, pair, true, false)?))
        .takes(Value::Path, "").reach(Reach::Master),
    /// Write the master's pid to this file when workers accept requests for the first time, so a failed startup does not change
    /// it.
    /// Example: safe-pidfile = /run/shop.pid
    supported("safe-pidfile", set!(|draft, _, pair| add_pidfile(draft, pair, false, true)?))
        .takes(Value::Path, "").reach(Reach::Master),
    /// Like `safe-pidfile`, with the rights of `uid` and `gid`.
    /// Example: safe-pidfile2 = /home/shop/run/shop.pid
    supported("safe-pidfile2", set!(|draft, _, pair| add_pidfile(draft, pair, true, true)?))
        .takes(Value::Path, "").reach(Reach::Master),
    /// A FIFO that accepts commands of one letter. For example, `echo r > FILE` reloads. If there are several (at most ten), the
    /// first one is read at the beginning, and a digit selects another. The page about signals and processes lists the letters.
    /// uWSGI: uWSGI removes any file of that name, and creates the FIFO again after each command, so it is missing in the
    /// meantime. Unknown letters are silently ignored.
    /// Example: master-fifo = /run/shop.fifo
    list("master-fifo", set!(|draft, _, pair| draft.of::<Control>().fifos.push(values::text(pair)?.into()))).reach(Reach::Master),
    /// The UNIX socket at which `bolide status`, `bolide reload` and the related commands reach the master. `off` disables it.
    /// Only root and the user that started the master may use it.
    /// Example: control-socket = /run/shop/control.sock
    supported("control-socket", set!(|draft, _, pair| draft.of::<Control>().channel = channel(pair)?))
        .takes(Value::Path, "an abstract socket").reach(Reach::Master),
    /// How often a vassal tells its emperor that it is alive. The emperor kills and replaces one that has begun and does not go
    /// on (`emperor-required-heartbeat`). Without an emperor it has no effect.
    /// uWSGI: Its workers send it, so a vassal without requests may seem dead. Bolide's master sends it.
    /// Example: heartbeat = 10
    supported("heartbeat", Setting::Seconds(field!(Control.heartbeat_ms))).takes(SECONDS, "off").reach(Reach::Master),
];

pub fn background(pair: &Pair, shows_start: bool) -> Result<Option<Background>, Diagnostic> {
    Ok(Some(Background { log: values::log_file(pair)?.into(), shows_start }))
}

/// There is one pidfile of each kind: the last one takes precedence.
pub fn add_pidfile(draft: &mut Draft, pair: &Pair, is_users: bool, when_ready: bool) -> Result<(), Diagnostic> {
    let path = values::text(pair)?.into();
    draft.of::<Control>().pidfiles.retain(|known| (known.is_users, known.when_ready) != (is_users, when_ready));
    draft.of::<Control>().pidfiles.push(PidFile { path, is_users, when_ready });
    Ok(())
}

pub fn channel(pair: &Pair) -> Result<Channel, Diagnostic> {
    let text = values::text(pair)?;
    Ok(if text == "off" { Channel::Off } else { Channel::File(text.into()) })
}

/// Completes the settings. Paths start at the directory in which Bolide was started, as in uWSGI, which writes these files before
/// it enters `chdir`; FIFOs are created after that.
pub fn complete(mut control: Control, logging: &mut LoggingDraft, context: &mut Context) -> Control {
    for pidfile in &mut control.pidfiles {
        pidfile.path = context.absolute_at_start(&pidfile.path);
    }
    for fifo in &mut control.fifos {
        *fifo = normalized(&context.entered.join(&fifo));
    }
    if let Channel::File(path) = &mut control.channel {
        *path = context.absolute_at_start(&path);
    }
    control.origin.configurations = context.read.files.iter().map(|file| context.absolute_at_start(file)).collect();
    control.origin.directory.clone_from(&context.host.directory);
    let Some(background) = &mut control.background else { return control };
    // uWSGI writes to the file of `daemonize` and ignores `logto`; `logto2` takes effect after both.
    if let (false, Some(location), Some(_)) = (logging.has_log_to2, &logging.log_to, &logging.file) {
        let log = background.log.display();
        context.diagnostics.push(Diagnostic::note(
            Some(location),
            format!("`logto` is not used: as in uWSGI, lines go to the file of `daemonize`, {log}"),
        ));
        logging.file = None;
    }
    if context.host.has_emperor() {
        let log = background.log.to_string_lossy().into_owned();
        logging.file.get_or_insert(log);
        control.background = None;
        return control;
    }
    if !std::mem::replace(&mut logging.settings.takes_all_output, true) {
        let message = "`log-output = false` has no effect: in the background, output has no place but the file of `daemonize`";
        context.diagnostics.push(Diagnostic::warning(None, message));
    }
    let log = logging.file.get_or_insert_with(|| background.log.to_string_lossy().into_owned());
    background.log = context.absolute_at_start(log);
    control
}
