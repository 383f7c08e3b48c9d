//! Options that name files whose change asks for something. It watches none; runs in the process that reads the configuration.

use std::path::Path;

use bolide_contract::watching::{WatchedFile, Watching};

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Watching as Setting;
use crate::diagnostic::Diagnostic;
use crate::reader::Pair;

impl Draft<'_> {
    pub(super) fn set_watching(&mut self, setting: Setting, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Setting::File(subject, action) => {
                let path = values::text(pair)?.into();
                self.watching.files.push(WatchedFile { path, option: row.name().to_owned(), subject, action });
            }
        }
        Ok(())
    }

    /// uWSGI looks at them when it has changed to `chdir`.
    pub(super) fn complete_watching(&mut self, folder: &Path) -> Watching {
        let mut watching = std::mem::take(&mut self.watching);
        for file in &mut watching.files {
            file.path = normalized(&folder.join(&file.path));
        }
        watching
    }
}
