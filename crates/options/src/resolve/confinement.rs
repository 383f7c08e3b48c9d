//! What an instance gives up for good: from options to settings. Runs in the process that reads the configuration.

use super::draft::Draft;
use super::values;
use crate::catalogue::setting::Confinement;
use crate::diagnostic::Diagnostic;
use crate::reader::Pair;

impl Draft<'_> {
    pub(super) fn set_confinement(&mut self, setting: Confinement, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Confinement::ImmediateUser => self.confinement.user = Some(values::text(pair)?),
            Confinement::ImmediateGroup => self.confinement.group = Some(values::text(pair)?),
        }
        Ok(())
    }
}
