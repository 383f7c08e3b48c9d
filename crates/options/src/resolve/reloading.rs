//! Reloads: from options to settings. Runs in the process that reads the configuration.

use super::draft::Draft;
use super::paths::normalized;
use super::values;
use crate::catalogue::PROBE_TIMEOUT_S;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Reloading;
use crate::diagnostic::Diagnostic;
use crate::reader::Pair;

impl Draft<'_> {
    pub(super) fn set_reloading(&mut self, setting: Reloading, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Reloading::Exit => self.reloading.exits = self.switch(pair),
            Reloading::Probe => self.reloading.probe = Some(target(pair)?),
            Reloading::ProbeTimeout => {
                self.reloading.probe_timeout_ms = self.positive_or(row, pair, PROBE_TIMEOUT_S)? * 1000;
            }
            Reloading::Warmup => self.reloading.warmup.push(target(pair)?),
            Reloading::Program => {
                self.reloading.program = Some(normalized(&self.host.folder.join(values::text(pair)?)));
            }
            Reloading::DescriptorsMost => self.reloading.descriptors_most = self.positive(row, pair)?,
        }
        Ok(())
    }
}

/// What is asked of the application: a path, with a query or without.
fn target(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    let is_plain = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        return Ok(text);
    }
    Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is no path that can be asked for", pair.key))
        .advise("write it as a browser sends it, from its first slash on: `/health?deep=1`"))
}
