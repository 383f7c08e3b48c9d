//! Options of the logs, and their settings. It opens nothing; runs in the process that reads the configuration.

mod log_packing;
pub mod loggers;

use std::path::Path;

use bolide_contract::logging::{LogDate, LogStyle, Logging};

use crate::catalogue::row::Row;
use crate::diagnostic::{Diagnostic, Severity};
use crate::pair::Pair;
use crate::resolve::draft::Draft;
use crate::resolve::paths::normalized;
use crate::resolve::values;

pub fn set_log_to(draft: &mut Draft, _: &Row, pair: &Pair) -> Result<(), Diagnostic> {
    draft.log_to = Some(pair.location.clone());
    log_to(draft, pair)
}

/// As `logto`; files of logs belong to the user that workers run as.
pub fn set_log_to2(draft: &mut Draft, _: &Row, pair: &Pair) -> Result<(), Diagnostic> {
    draft.has_log_to2 = true;
    draft.logging.files.are_users = true;
    log_to(draft, pair)
}

/// A file, or an address to which each line is sent.
fn log_to(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let is_address = values::is_udp_address(&text);
    draft.loggers.messages.send_to(is_address.then_some(&text), pair);
    draft.log_file = Some(text).filter(|_| !is_address);
    Ok(())
}

/// `logger = KIND:…` by another name.
pub fn add_logger_of(draft: &mut Draft, kind: &str, pair: &Pair) -> Result<(), Diagnostic> {
    let argument = pair.value.as_deref().filter(|text| !text.is_empty());
    let text = argument.map_or(kind.to_owned(), |text| format!("{kind}:{text}"));
    draft.loggers.messages.add_logger(&text, pair, &draft.host.host_name)
}

/// What costs its rule alone is told, and the rest goes on.
pub fn or_warn<T>(diagnostics: &mut Vec<Diagnostic>, outcome: Result<T, Diagnostic>) -> Result<Option<T>, Diagnostic> {
    match outcome {
        Ok(made) => Ok(Some(made)),
        Err(diagnostic) if diagnostic.severity == Severity::Warning => {
            diagnostics.push(diagnostic);
            Ok(None)
        }
        Err(diagnostic) => Err(diagnostic),
    }
}

impl Draft<'_> {
    /// `bare` is an application on the command line without a configuration file. `entered` is the folder of `chdir`, where loggers have their files,
    /// as under uWSGI, which opens them after `logto`.
    pub(super) fn complete_logging(&mut self, bare: bool, entered: &Path) -> Logging {
        let folder = &self.host.folder;
        self.logging.file = self.log_file.as_ref().map(|path| normalized(&folder.join(path)));
        let backup = &mut self.logging.files.backup;
        *backup = backup.as_ref().map(|path| normalized(&folder.join(path)));
        match std::mem::take(&mut self.loggers).complete(entered, &mut self.logging) {
            Ok(()) => {}
            Err(diagnostic) => self.diagnostics.push(diagnostic),
        }
        self.logging.style = match self.log_style {
            Some(Some(style)) => style,
            _ if bare => LogStyle::ShortAtTerminal,
            _ => LogStyle::Uwsgi,
        };
        self.logging.clone()
    }
}

/// `log-date` is a switch to some and a format to others.
pub fn date(pair: &Pair) -> LogDate {
    let switch = crate::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on, &pair.value) {
        (true, false, _) => LogDate::Iso,
        (false, _, Some(format)) => LogDate::Strftime(format.clone()),
        _ => LogDate::Ctime,
    }
}
