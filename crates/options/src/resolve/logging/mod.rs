//! Resolves the options of the logs to settings. It opens nothing. Runs in the process that reads the configuration.

mod log_packing;
pub mod loggers;
pub mod otlp;

use bolide_configuration::diagnostic::Location;
use bolide_configuration::diagnostic::{Diagnostic, Severity};
use bolide_configuration::host_info::SYSLOG_SOCKET;
use bolide_configuration::pair::Pair;
use bolide_contract::logging::{LinePattern, LogDate, LogStyle, Logging};

use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::logging::loggers::{LoggerDraft, Loggers, expression};
use crate::row::OptionRow;
use crate::values;

pub fn set_log_to(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<LoggingDraft>().log_to = Some(pair.location.clone());
    // uWSGI turns to the file of `logto2` last, wherever it is written.
    if draft.of::<LoggingDraft>().has_log_to2 { values::text(pair).map(drop) } else { log_to(draft, pair) }
}

/// Like `logto`, but the files belong to the user of the workers.
pub fn set_log_to2(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<LoggingDraft>().has_log_to2 = true;
    draft.of::<LoggingDraft>().settings.files.are_users = true;
    log_to(draft, pair)
}

/// `MODE`, or `new:MODE`.
pub fn set_file_mode(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let files = &mut draft.of::<LoggingDraft>().settings.files;
    match pair.value.as_deref().and_then(|text| text.strip_prefix("new:")) {
        Some(mode) => files.new_mode = values::mode(&Pair { value: Some(mode.to_owned()), ..pair.clone() })?,
        None => files.mode = values::mode(pair)?,
    }
    Ok(())
}

/// A file, or an address to which each line is sent.
fn log_to(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let is_address = values::is_udp_address(&text);
    draft.of::<LoggingDraft>().loggers.messages.send_to(is_address.then_some(&text), pair);
    draft.of::<LoggingDraft>().file = Some(text).filter(|_| !is_address);
    Ok(())
}

/// `logger`
pub fn add_message_logger(draft: &mut Draft, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let host = draft.host;
    let warning = draft.of::<LoggingDraft>().loggers.messages.add_logger(text, pair, &host.host_name)?;
    draft.diagnostics.extend(warning);
    Ok(())
}

/// `req-logger`
pub fn add_request_logger(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let host = draft.host;
    let warning = draft.of::<LoggingDraft>().loggers.requests.add_logger(&values::text(pair)?, pair, &host.host_name)?;
    draft.diagnostics.extend(warning);
    Ok(())
}

/// Another name for `logger = KIND:…`.
pub fn add_logger_of(draft: &mut Draft, kind: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let argument = pair.value.as_deref().filter(|text| !text.is_empty());
    let text = argument.map_or(kind.to_owned(), |text| format!("{kind}:{text}"));
    add_message_logger(draft, &text, pair)
}

/// `log-syslog`: a system without syslog, such as a container, keeps the lines in the log.
pub fn add_syslog(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    if draft.host.has_syslog {
        return add_logger_of(draft, "syslog", pair);
    }
    let message = format!("`{}`: lines go to the log, since there is no socket of syslog here ({SYSLOG_SOCKET})", pair.key);
    draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("leave it out, or start a syslog").local());
    Ok(())
}

/// `log-route`, `log-req-route`
pub fn add_route(draft: &mut Draft, of: fn(&mut Loggers) -> &mut LoggerDraft, pair: &Pair) -> Result<(), Diagnostic> {
    let added = of(&mut draft.of::<LoggingDraft>().loggers).add_route(&values::text(pair)?, pair);
    or_warn(&mut draft.diagnostics, added).map(drop)
}

/// `log-drain`, `log-filter`
pub fn add_expression(
    draft: &mut Draft,
    of: fn(&mut LoggerDraft) -> &mut Vec<LinePattern>,
    pair: &Pair,
) -> Result<(), Diagnostic> {
    let made = or_warn(&mut draft.diagnostics, expression(&values::text(pair)?, pair))?;
    of(&mut draft.of::<LoggingDraft>().loggers.messages).extend(made);
    Ok(())
}

/// Turns a fault that disables only its own rule into a warning.
fn or_warn<T>(diagnostics: &mut Vec<Diagnostic>, outcome: Result<T, Diagnostic>) -> Result<Option<T>, Diagnostic> {
    match outcome {
        Ok(made) => Ok(Some(made)),
        Err(diagnostic) if diagnostic.severity == Severity::Warning => {
            diagnostics.push(diagnostic);
            Ok(None)
        }
        Err(diagnostic) => Err(diagnostic),
    }
}

impl LoggingDraft {
    /// Completes the settings. Files of loggers start at the folder of `chdir`, as in uWSGI, which opens them after `logto`.
    pub fn complete(mut self, context: &mut Context) -> Logging {
        if let (true, Some(location)) = (self.has_log_to2, &self.log_to) {
            let message =
                "`logto` is not used: lines go to the file of `logto2`, as in uWSGI, which only begins with that of `logto`";
            context.diagnostics.push(Diagnostic::note(Some(location), message));
        }
        let mut made = self.settings;
        made.file = self.file.map(|path| context.absolute_at_start(path));
        if let Some(path) = made.file.take_if(|_| !made.takes_all_output) {
            // The file of `logto` is standard output. A logger's is a further one.
            self.loggers.messages.add_file(path, self.log_to);
        }
        made.files.backup = made.files.backup.map(|path| context.absolute_at_start(path));
        if let Err(diagnostic) = self.loggers.complete(&context.entered, &mut made) {
            context.diagnostics.push(diagnostic);
        }
        made.style = match self.style {
            Some(Some(style)) => style,
            _ if context.is_bare => LogStyle::ShortAtTerminal,
            _ => LogStyle::Uwsgi,
        };
        made
    }
}

/// Users write `log-date` as a switch or as a format.
pub fn date(pair: &Pair) -> LogDate {
    let switch = bolide_configuration::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on, &pair.value) {
        (true, false, _) => LogDate::Iso,
        (false, _, Some(format)) => LogDate::Strftime(format.clone()),
        _ => LogDate::Ctime,
    }
}

/// Settings of the logs.
#[derive(Default)]
pub struct LoggingDraft {
    pub settings: Logging,
    pub file: Option<String>,
    /// Where `logto` was last set.
    pub log_to: Option<Location>,
    pub has_log_to2: bool,
    pub loggers: Loggers,
    /// `Some(None)` is `log-style = auto`.
    pub style: Option<Option<LogStyle>>,
}
