//! Options that name files whose change asks for something. It watches none; runs in the process that reads the configuration.

use std::path::Path;

use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, WatchedImports, Watching};

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::catalogue::row::Row;
use crate::catalogue::setting::{HookKind, Watching as Setting};
use crate::catalogue::watching::FORK_SAFETY;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

impl Draft<'_> {
    pub(super) fn set_watching(&mut self, setting: Setting, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Setting::File(subject, action) => {
                let path = values::text(pair)?.into();
                self.watching.files.push(WatchedFile { path, option: row.name().to_owned(), subject, action });
            }
            Setting::TouchHook(kind) => self.add_touch_hook(kind, row, pair)?,
            Setting::Imports => {
                let every_ms = self.milliseconds(row, pair)?;
                let ignored = self.watching.imports.take().map(|imports| imports.ignored).unwrap_or_default();
                // What is ignored may be named before or after.
                let every_ms = every_ms.unwrap_or(0);
                self.watching.imports = Some(WatchedImports { every_ms, ignored, configuration: Vec::new() });
            }
            Setting::Develop | Setting::SourceFolder | Setting::SourcePattern | Setting::SourceExcluded | Setting::Browser => {
                self.set_developing(setting, pair)?;
            }
            Setting::ForkSafety => self.application.fork_safety = values::one_of(pair, &FORK_SAFETY)?,
            Setting::ImportsIgnored => {
                let name = values::text(pair)?;
                self.watching.imports.get_or_insert_default().ignored.push(name);
            }
        }
        Ok(())
    }

    /// `FILE ACTION`, or `FILE COMMAND`.
    fn add_touch_hook(&mut self, kind: HookKind, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        let text = values::text(pair)?;
        let Some((path, what)) = text.split_once(' ').filter(|(path, what)| !path.is_empty() && !what.trim().is_empty()) else {
            return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no file and what to do", pair.key))
                .advise("write the file, a space, and what is done when it is touched"));
        };
        let Some(hook) = self.touch_hook(kind, what.trim(), pair)? else { return Ok(()) };
        let number = u32::try_from(self.watching.hooks.len()).unwrap_or(u32::MAX);
        self.watching.hooks.push(hook);
        let file = WatchedFile {
            path: path.into(),
            option: row.name().to_owned(),
            subject: WatchSubject::Touch,
            action: FileAction::Hook(number),
        };
        self.watching.files.push(file);
        Ok(())
    }

    /// uWSGI looks at them when it has changed to `chdir`.
    pub(super) fn complete_watching(&mut self, folder: &Path, read: &Configuration) -> Watching {
        let mut watching = std::mem::take(&mut self.watching);
        for file in &mut watching.files {
            file.path = normalized(&folder.join(&file.path));
        }
        watching.imports = watching.imports.filter(|imports| imports.every_ms > 0);
        if watching.imports.is_some() {
            watching.sources = self.watched_sources(folder);
        }
        if let Some(imports) = &mut watching.imports {
            let files = read.files.iter().map(|file| normalized(&self.host.folder.join(file)));
            // A configuration that came by a pipe can't change.
            imports.configuration = files.filter(|file| file.is_file()).collect();
        }
        watching
    }
}
