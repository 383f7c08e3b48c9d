//! The settings of the statistics.

use std::path::Path;

use bolide_contract::statistics::{Statistics, StatisticsServer};

use super::address;
use super::draft::Draft;
use crate::catalogue::setting;
use crate::diagnostic::Diagnostic;
use crate::reader::Pair;

impl Draft<'_> {
    pub fn set_statistics(&mut self, setting: setting::Statistics, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            setting::Statistics::Address => {
                let (address, doubt) = address::read(pair)?;
                self.diagnostics.extend(doubt);
                self.statistics.address = Some((address, pair.location.clone()));
            }
            setting::Statistics::Http => self.statistics.is_http = self.switch(pair),
            setting::Statistics::Minified => self.statistics.is_minified = self.switch(pair),
            setting::Statistics::NoCores => self.statistics.omits_cores = self.switch(pair),
        }
        Ok(())
    }

    pub fn complete_statistics(&self, folder: &Path) -> Statistics {
        let draft = &self.statistics;
        let server = draft.address.as_ref().map(|(address, location)| StatisticsServer {
            address: address::absolute(address, folder),
            mode: self.mode,
            is_http: draft.is_http,
            origin: location.to_string(),
        });
        Statistics { server, is_minified: draft.is_minified, omits_cores: draft.omits_cores, pushers: Vec::new() }
    }
}
