//! Options of the logs, and their settings. It opens nothing; runs in the process that reads the configuration.

mod log_packing;
pub mod loggers;

use std::path::Path;

use bolide_contract::logging::{LogDate, LogStyle, Logging};

use crate::catalogue::logging::STYLES;
use crate::catalogue::setting::Logging as Setting;
use crate::diagnostic::{Diagnostic, Severity};
use crate::pair::Pair;
use crate::resolve::draft::Draft;
use crate::resolve::paths::normalized;
use crate::resolve::values;
use loggers::expression;

impl Draft<'_> {
    pub(super) fn set_logging(&mut self, setting: Setting, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Setting::LogTo => self.log_to(pair)?,
            Setting::QuietWriteErrors => self.logging.write_errors = !self.switch(pair) && self.logging.write_errors,
            Setting::Date => self.logging.date = date(pair),
            Setting::Style => self.log_style = Some(values::one_of(pair, &STYLES)?),
            Setting::Json => self.log_style = self.switch(pair).then_some(Some(LogStyle::Json)),
            Setting::LogTo2 => {
                self.log_to(pair)?;
                self.logging.files.are_users = true;
            }
            Setting::BackupName => self.logging.files.backup = Some(values::text(pair)?.into()),
            Setting::FileMode => self.logging.files.mode = values::mode(pair)?,
            Setting::FileOwner => self.logging.files.are_users |= self.switch(pair),
            Setting::Logger => self.loggers.messages.add_logger(&values::text(pair)?, pair, &self.host.host_name)?,
            Setting::RequestLogger => self.loggers.requests.add_logger(&values::text(pair)?, pair, &self.host.host_name)?,
            Setting::LoggerOf(kind) => {
                let text = pair
                    .value
                    .as_deref()
                    .filter(|text| !text.is_empty())
                    .map_or(kind.to_owned(), |text| format!("{kind}:{text}"));
                self.loggers.messages.add_logger(&text, pair, &self.host.host_name)?;
            }
            Setting::Route => {
                let added = self.loggers.messages.add_route(&values::text(pair)?, pair);
                self.or_warn(added)?;
            }
            Setting::RequestRoute => {
                let added = self.loggers.requests.add_route(&values::text(pair)?, pair);
                self.or_warn(added)?;
            }
            Setting::Drain => {
                let drain = self.or_warn(expression(&values::text(pair)?, pair))?;
                self.loggers.messages.drains.extend(drain);
            }
            Setting::Filter => {
                let filter = self.or_warn(expression(&values::text(pair)?, pair))?;
                self.loggers.messages.filters.extend(filter);
            }
            Setting::Encoder => self.loggers.messages.add_encoder(&values::text(pair)?, pair)?,
            Setting::RequestEncoder => self.loggers.requests.add_encoder(&values::text(pair)?, pair)?,
        }
        Ok(())
    }

    /// What costs its rule alone is told, and the rest goes on.
    fn or_warn<T>(&mut self, outcome: Result<T, Diagnostic>) -> Result<Option<T>, Diagnostic> {
        match outcome {
            Ok(made) => Ok(Some(made)),
            Err(diagnostic) if diagnostic.severity == Severity::Warning => {
                self.diagnostics.push(diagnostic);
                Ok(None)
            }
            Err(diagnostic) => Err(diagnostic),
        }
    }

    /// A file, or an address to which each line is sent.
    fn log_to(&mut self, pair: &Pair) -> Result<(), Diagnostic> {
        let text = values::text(pair)?;
        let is_address = values::is_udp_address(&text);
        self.loggers.messages.send_to(is_address.then_some(&text), pair);
        self.log_file = Some(text).filter(|_| !is_address);
        Ok(())
    }

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
fn date(pair: &Pair) -> LogDate {
    let switch = crate::values::switch(pair.value.as_deref());
    match (switch.plain, switch.on, &pair.value) {
        (true, false, _) => LogDate::Iso,
        (false, _, Some(format)) => LogDate::Strftime(format.clone()),
        _ => LogDate::Ctime,
    }
}
