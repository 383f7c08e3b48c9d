//! Options of recycling and of harakiri's manners, and their settings. It knows no worker; runs in the process that reads the
//! configuration.

use bolide_contract::recycling::Recycling as Settings;

use super::draft::Draft;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Recycling;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

impl Draft<'_> {
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
    pub(super) fn recycling(&mut self) -> Settings {
        let Settings { max_lifetime_ms, min_lifetime_ms, .. } = self.recycling;
        if let (Some(most), Some(location)) = (max_lifetime_ms, &self.min_lifetime)
            && min_lifetime_ms >= most
        {
            let (least, most) = (min_lifetime_ms / 1000, most / 1000);
            let message = format!("`min-worker-lifetime = {least}` is not below `max-worker-lifetime`, which is {most}");
            self.diagnostics.push(Diagnostic::error(Some(location), message).advise("make it shorter"));
        }
        self.recycling.clone()
    }
}
