//! Reloads: from options to settings. Runs in the process that reads the configuration.

use bolide_contract::settings::ReloadOrder;

use super::draft::{Draft, PROBE_TIMEOUT_S};
use super::paths::normalized;
use super::values;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Reloading;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

impl Draft<'_> {
    pub(super) fn set_reloading(&mut self, setting: Reloading, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Reloading::Probe => self.reloading.probe = Some(target(pair)?),
            Reloading::ProbeTimeout => {
                self.reloading.probe_timeout_ms = self.positive_or(row, pair, PROBE_TIMEOUT_S)? * 1000;
            }
            Reloading::Warmup => self.reloading.warmup.push(target(pair)?),
            Reloading::Program => {
                self.reloading.program = Some(normalized(&self.host.folder.join(values::text(pair)?)));
            }
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// What can't be had together.
    pub(super) fn check_reloading(&mut self, read: &Configuration) {
        if self.reloading.canary_ms.is_none() || self.lifecycle.reload_order != ReloadOrder::StopFirst {
            return;
        }
        let place = read.effects.iter().rev().find(|pair| pair.key == "reload-canary").map(|pair| &pair.location);
        self.diagnostics.push(
            Diagnostic::error(
                place,
                "`reload-canary` and `reload-order = stop-first` can't be had together: a canary serves beside the old workers, which have ended then",
            )
            .advise("leave `reload-canary` out, or leave `reload-order` as it is (`start-first`)"),
        );
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
