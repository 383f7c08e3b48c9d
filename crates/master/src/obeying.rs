//! The one match over commands: what each leads to. The master runs it.

use crate::command::Command;
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Does what is asked, or begins it. `by` names who asks, for the log: a signal, a file, an address.
    pub(crate) fn obey(&mut self, command: Command, by: &str, now_ms: u64) {
        match command {
            Command::Stop => self.stop(now_ms),
            Command::StopNow => self.stop_now(by, now_ms),
            Command::Reload => self.reload(now_ms),
            Command::ReloadBrutally => {
                self.reload_is_brutal = !self.is_stopping();
                self.reload(now_ms);
            }
            // Never are two workers replaced at once, so the one is as good as the other.
            Command::ReloadWorkers | Command::ReloadChain => self.recycle_all(),
            Command::Status => self.write_status(now_ms),
        }
    }
}
