//! Options that name files whose change asks for something. It watches none; runs in the process that reads the configuration.

use std::path::Path;

use bolide_contract::watching::{WatchedFile, WatchedImports, Watching};

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Watching as Setting;
use crate::catalogue::watching::FORK_SAFETY;
use crate::diagnostic::Diagnostic;
use crate::reader::{Configuration, Pair};

impl Draft<'_> {
    pub(super) fn set_watching(&mut self, setting: Setting, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Setting::File(subject, action) => {
                let path = values::text(pair)?.into();
                self.watching.files.push(WatchedFile { path, option: row.name().to_owned(), subject, action });
            }
            Setting::Imports => {
                let every_ms = self.milliseconds(row, pair)?;
                let ignored = self.watching.imports.take().map(|imports| imports.ignored).unwrap_or_default();
                // What is ignored may be named before or after.
                let every_ms = every_ms.unwrap_or(0);
                self.watching.imports = Some(WatchedImports { every_ms, ignored, configuration: Vec::new() });
            }
            Setting::OnException => self.python.reload_on.any = self.switch(pair),
            Setting::OnExceptionType => self.python.reload_on.types.push(values::text(pair)?),
            Setting::OnExceptionValue => self.python.reload_on.values.push(values::text(pair)?),
            Setting::OnExceptionRepr => self.python.reload_on.reprs.push(values::text(pair)?),
            Setting::ForkSafety => self.python.fork_safety = values::one_of(pair, &FORK_SAFETY)?,
            Setting::ImportsIgnored => {
                let name = values::text(pair)?;
                self.watching.imports.get_or_insert_default().ignored.push(name);
            }
        }
        Ok(())
    }

    /// uWSGI looks at them when it has changed to `chdir`.
    pub(super) fn complete_watching(&mut self, folder: &Path, read: &Configuration) -> Watching {
        let mut watching = std::mem::take(&mut self.watching);
        for file in &mut watching.files {
            file.path = normalized(&folder.join(&file.path));
        }
        watching.imports = watching.imports.filter(|imports| imports.every_ms > 0);
        if let Some(imports) = &mut watching.imports {
            let files = read.files.iter().map(|file| normalized(&self.host.folder.join(file)));
            // A configuration that came by a pipe can't change.
            imports.configuration = files.filter(|file| file.is_file()).collect();
        }
        watching
    }
}
