//! The number of workers, when they are replaced and how a reload goes: from options to settings. It starts nothing; runs in the process
//! that reads the configuration.

use bolide_contract::recycling::Recycling as RecyclingSettings;
use bolide_contract::settings::{ReloadOrder, Workers};

use super::draft::{Draft, PROBE_TIMEOUT_S};
use super::paths::normalized;
use super::values;
use crate::catalogue::row::Row;
use crate::catalogue::setting::{Recycling, Reloading};
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::reader::Configuration;

/// Beginnings of the names of options for which uWSGI starts a master unasked (its flag UWSGI_OPT_MASTER).
const WITH_MASTER: &[&str] = &[
    "alarm",
    "attach-daemon",
    "cheap",
    "cron",
    "idle",
    "legion",
    "log-alarm",
    "log-encoder",
    "log-master",
    "log-route",
    "logger",
    "master-fifo",
    "mule",
    "py-auto",
    "python-auto",
    "smart-attach-daemon",
    "spooler",
    "stats",
    "subscribe",
    "timer",
    "touch-",
    "unique-cron",
];

/// A configuration has a master in uWSGI though it does not ask for one.
pub(super) fn implies_master(read: &Configuration) -> bool {
    read.effects.iter().any(|pair| WITH_MASTER.iter().any(|start| pair.key.starts_with(start)))
}

impl Draft<'_> {
    /// The workers of the instance. `bare` is an application on the command line without a configuration file.
    pub(super) fn workers(&mut self, bare: bool) -> Workers {
        let wished = self.processes.or_else(|| if bare { self.web_concurrency() } else { None });
        Workers {
            processes: wished.unwrap_or(1),
            processes_chosen: wished.is_some(),
            processes_auto: self.processes.is_some() && self.processes_auto,
            threads: self.threads,
            cpus: self.host.cpus,
            cpus_of_each: self.cpus_of_each,
        }
    }

    pub(super) fn set_recycling(&mut self, setting: Recycling, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        let number = self.positive(row, pair)?;
        let milliseconds = number.map(|seconds| seconds.saturating_mul(1000));
        let (recycling, lifecycle) = (&mut self.recycling, &mut self.lifecycle);
        let manners = &mut lifecycle.harakiri_manners;
        let small = number.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX));
        match setting {
            Recycling::MaxRequestsDelta => recycling.max_requests_delta = number.unwrap_or(0),
            Recycling::MaxLifetimeDelta => recycling.max_lifetime_delta_ms = milliseconds.unwrap_or(0),
            Recycling::MinLifetime => {
                recycling.min_lifetime_ms = milliseconds.unwrap_or(0);
                self.min_lifetime = Some(pair.location.clone());
            }
            Recycling::OnPressure => recycling.pressure_percent = number.map(|_| small),
            Recycling::HarakiriGracefulSignal => manners.graceful_signal = small.cast_signed(),
            Recycling::HarakiriQueueThreshold => manners.queue_threshold = small,
        }
        Ok(())
    }

    /// The settings, once all options are read. A worker that may not be replaced before it must be is a mistake, as in uWSGI.
    pub(super) fn recycling(&mut self) -> RecyclingSettings {
        let RecyclingSettings { max_lifetime_ms, min_lifetime_ms, .. } = self.recycling;
        if let (Some(most), Some(location)) = (max_lifetime_ms, &self.min_lifetime)
            && min_lifetime_ms >= most
        {
            let (least, most) = (min_lifetime_ms / 1000, most / 1000);
            let message = format!("`min-worker-lifetime = {least}` is not below `max-worker-lifetime`, which is {most}");
            self.diagnostics.push(Diagnostic::error(Some(location), message).advise("make it shorter"));
        }
        self.recycling.clone()
    }

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
