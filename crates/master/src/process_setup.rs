//! What a master and an emperor change in their own process at startup: the limit of descriptors, and where log lines go. Both
//! run it.

use std::fs::File;
use std::io;

use bolide_contract::settings::Settings;
use bolide_supervision::log_sink;
use bolide_supervision::logs::captured_output::CapturedOutput;
use bolide_supervision::logs::log_files::{OpenedLog, OpenedLogs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// `max-fd`: prototypes and workers inherit the limit. As in uWSGI, a limit that can't be set does not end startup.
pub fn limit_descriptors(most: u64) {
    let wanted = Rlimit { current: Some(most), maximum: Some(most) };
    let Err(error) = setrlimit(Resource::Nofile, wanted) else { return };
    let allowed = getrlimit(Resource::Nofile).maximum.map_or(most, |allowed| allowed.min(most));
    let reached = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum: getrlimit(Resource::Nofile).maximum });
    let reached = reached.map_or_else(|error| error.to_string(), |()| format!("the limit is {allowed}"));
    log_sink::line(&format!(
        "WARNING: max-fd = {most} is not available ({error}), {reached}: start Bolide as root, or raise its limit (LimitNOFILE)"
    ));
}

/// Directs log lines to the configured logs from here on. Returns the previous standard error, if it is not the log any more, and
/// the reader of applications' output, if it is captured.
pub fn take_logs(settings: &Settings, logs: OpenedLogs) -> io::Result<(Option<File>, Option<CapturedOutput>)> {
    let is_pipe = matches!(logs.log, Some(OpenedLog::Pipe(_)));
    let mut console = match logs.log {
        None => None,
        Some(OpenedLog::File(file)) => Some(log_sink::redirect(&file)?),
        Some(OpenedLog::Pipe((pipe, _))) => {
            let console = log_sink::copy_of_standard_error()?;
            bolide_log::inherit(pipe)?;
            Some(console)
        }
    };
    for (target, number) in logs.targets.into_iter().zip(1..) {
        bolide_log::take_target(number, target)?;
    }
    if console.is_none() && settings.logging.flows.as_ref().is_some_and(|flows| !flows.messages.usual.is_empty()) {
        console = Some(log_sink::copy_of_standard_error()?);
    }
    // The previous standard error is the log.
    bolide_log::descriptor();
    let printed = (settings.logging.takes_output() || is_pipe).then(CapturedOutput::take).transpose()?;
    bolide_log::configure(&settings.logging);
    Ok((console, printed))
}
