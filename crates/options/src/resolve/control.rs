//! How an instance is put into the background, found and told what to do: from options to settings. It opens nothing; runs in the process
//! that reads the configuration.

use std::path::Path;

use bolide_contract::control::{Background, Channel, PidFile};

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::catalogue::catalogue;
use crate::catalogue::setting::Control;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

impl Draft<'_> {
    pub(super) fn set_control(&mut self, setting: Control, pair: &Pair) -> Result<(), Diagnostic> {
        let pidfile = |is_users, when_ready| {
            let path = values::text(pair)?.into();
            Ok::<_, Diagnostic>(PidFile { path, is_users, when_ready })
        };
        match setting {
            Control::Daemonize | Control::Daemonize2 => {
                let log = values::log_file(pair)?.into();
                self.control.background = Some(Background { log, shows_start: setting == Control::Daemonize2 });
            }
            Control::MasterFifo => self.control.fifos.push(values::text(pair)?.into()),
            Control::ControlSocket => {
                let text = values::text(pair)?;
                self.control.channel = if text == "off" { Channel::Off } else { Channel::File(text.into()) };
            }
            Control::PidFile2 => self.add_pidfile(pidfile(true, false)?),
            Control::SafePidFile => self.add_pidfile(pidfile(false, true)?),
            Control::SafePidFile2 => self.add_pidfile(pidfile(true, true)?),
        }
        Ok(())
    }

    /// There is one of each kind: the last that is named.
    fn add_pidfile(&mut self, pidfile: PidFile) {
        let is_other = |known: &PidFile| (known.is_users, known.when_ready) != (pidfile.is_users, pidfile.when_ready);
        self.control.pidfiles.retain(is_other);
        self.control.pidfiles.push(pidfile);
    }

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
        let said =
            |name: &str| read.effects.iter().rfind(|pair| catalogue().get(&pair.key).is_some_and(|row| row.name() == name));
        if said("logto2").is_none()
            && let Some(pair) = said("logto").filter(|_| self.log_file.is_some())
        {
            let log = background.log.display();
            self.diagnostics.push(Diagnostic::note(
                Some(&pair.location),
                format!("`logto` is not used: as under uWSGI lines go to the file of `daemonize`, {log}"),
            ));
            self.log_file = None;
        }
        let log = self.log_file.get_or_insert_with(|| background.log.to_string_lossy().into_owned());
        background.log = absolute(Path::new(log));
    }
}
