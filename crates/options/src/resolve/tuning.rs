//! What the kernel is told about sockets. Opens none; runs in the process that reads the configuration.

use bolide_contract::settings::{Address, Listener};

use super::draft::Draft;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Tuning;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

impl Draft<'_> {
    pub(super) fn set_tuning(&mut self, setting: Tuning, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        match setting {
            Tuning::Keepalive => self.tuning.keepalive = self.switch(pair),
            Tuning::ReusePort => self.tuning.reuse_port = self.switch(pair),
            Tuning::FreeBind => self.tuning.free_bind = self.switch(pair),
            Tuning::Abstract => self.abstract_sockets = self.switch(pair),
            Tuning::SendBuffer => self.tuning.send_buffer_bytes = self.count(row, pair)?,
            Tuning::ReceiveBuffer => self.tuning.receive_buffer_bytes = self.count(row, pair)?,
            Tuning::FastOpen => self.tuning.fast_open_queue = self.count(row, pair)?,
        }
        Ok(())
    }

    /// `abstract-socket`: no socket is a file.
    pub(super) fn make_abstract(&self, listeners: &mut [Listener]) {
        for listener in listeners {
            if let (true, Address::Unix(path)) = (self.abstract_sockets, &listener.address) {
                listener.address = Address::Abstract(path.to_string_lossy().into_owned());
            }
        }
    }

    /// A number where 0 leaves it to the kernel.
    fn count(&mut self, row: &Row, pair: &Pair) -> Result<Option<u32>, Diagnostic> {
        Ok(Some(self.bounded_u32(row, pair)?).filter(|&number| number > 0))
    }
}
