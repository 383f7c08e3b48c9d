//! How an instance is put into the background, found and told what to do: from options to settings. It opens nothing; runs in the process
//! that reads the configuration.

use std::path::Path;

use bolide_contract::control::{Background, Channel, PidFile};

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

pub fn background(pair: &Pair, shows_start: bool) -> Result<Option<Background>, Diagnostic> {
    Ok(Some(Background { log: values::log_file(pair)?.into(), shows_start }))
}

/// There is one of each kind: the last that is named.
pub fn add_pidfile(draft: &mut Draft, pair: &Pair, is_users: bool, when_ready: bool) -> Result<(), Diagnostic> {
    let path = values::text(pair)?.into();
    draft.control.pidfiles.retain(|known| (known.is_users, known.when_ready) != (is_users, when_ready));
    draft.control.pidfiles.push(PidFile { path, is_users, when_ready });
    Ok(())
}

pub fn channel(pair: &Pair) -> Result<Channel, Diagnostic> {
    let text = values::text(pair)?;
    Ok(if text == "off" { Channel::Off } else { Channel::File(text.into()) })
}

impl Draft<'_> {
    /// Paths are those of the folder in which Bolide was started, as in uWSGI, which writes these files before it enters `chdir`; FIFOs are made
    /// after it.
    pub(super) fn complete_control(&mut self, read: &Configuration, entered: &Path) {
        let absolute = |path: &Path| normalized(&self.host.folder.join(path));
        for pidfile in &mut self.control.pidfiles {
            pidfile.path = absolute(&pidfile.path);
        }
        for fifo in &mut self.control.fifos {
            *fifo = normalized(&entered.join(&fifo));
        }
        if let Channel::File(path) = &mut self.control.channel {
            *path = absolute(path);
        }
        self.control.origin.configurations = read.files.iter().map(|file| absolute(Path::new(file))).collect();
        self.control.origin.folder = self.host.folder.clone();
        let Some(background) = &mut self.control.background else { return };
        // uWSGI writes to the file of `daemonize`, whatever `logto` says; `logto2` comes after both.
        if let (false, Some(location), Some(_)) = (self.has_log_to2, &self.log_to, &self.log_file) {
            let log = background.log.display();
            self.diagnostics.push(Diagnostic::note(
                Some(location),
                format!("`logto` is not used: as under uWSGI lines go to the file of `daemonize`, {log}"),
            ));
            self.log_file = None;
        }
        let log = self.log_file.get_or_insert_with(|| background.log.to_string_lossy().into_owned());
        background.log = absolute(Path::new(log));
    }
}
