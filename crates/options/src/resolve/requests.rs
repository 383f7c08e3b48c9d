//! Options that limit a request, and their settings. Knows nothing of heads or bodies; runs in the process that
//! reads the configuration.

use bolide_contract::settings::Limits;

use super::draft::Draft;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Requests;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

/// A request of any browser needs more.
const LEAST_HEAD_BYTES: usize = 1024;

impl Draft<'_> {
    pub(super) fn set_requests(&mut self, setting: Requests, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        let default = Limits::default();
        match setting {
            Requests::BufferSize => {
                self.limits.head_bytes = match self.bounded_usize(row, pair)? {
                    0 => default.head_bytes,
                    bytes => bytes.max(LEAST_HEAD_BYTES),
                };
                self.limits.request_line_bytes = default.request_line_bytes.min(self.limits.head_bytes);
            }
            Requests::PostBuffering => {
                let bytes = self.bounded_usize(row, pair)?;
                self.limits.body_memory_bytes = if bytes == 0 { default.body_memory_bytes } else { bytes };
            }
            Requests::LimitPostDisk => self.limits.body_disk_bytes = self.positive_or(row, pair, default.body_disk_bytes)?,
            Requests::BodyMinRate => self.limits.body_bytes_per_second = self.positive(row, pair)?.unwrap_or(0),
        }
        Ok(())
    }
}
