//! What the kernel is told about sockets. Opens none; runs in the process that reads the configuration.

use bolide_contract::settings::{Address, Listener};

use super::draft::Draft;

impl Draft<'_> {
    /// `abstract-socket`: no socket is a file.
    pub(super) fn make_abstract(&self, listeners: &mut [Listener]) {
        for listener in listeners {
            if let (true, Address::Unix(path)) = (self.abstract_sockets, &listener.address) {
                listener.address = Address::Abstract(path.to_string_lossy().into_owned());
            }
        }
    }
}
