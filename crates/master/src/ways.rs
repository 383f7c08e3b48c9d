//! The ways to a running master that are not signals: its fifo and its control socket, as one feature of the loop. It knows nothing of what is
//! asked. The master runs it.

use bolide_contract::control::Control;

use crate::control_channel::ControlChannel;
use crate::error::StartError;
use crate::fifo::Fifo;
use crate::log_sink;
use crate::privileges::Privileges;
use crate::waiting::Source;

/// The ways to the master that are not signals.
#[derive(Debug)]
pub struct Ways {
    pub fifo: Option<Fifo>,
    pub channel: ControlChannel,
}

impl Ways {
    /// Opens what the settings ask for; nothing is left where that fails.
    ///
    /// # Errors
    /// A pipe or a socket file can't be made.
    pub fn open(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> Result<Ways, StartError> {
        let mut fifo = Fifo::open(&control.fifos, privileges, now_ms)?;
        let channel =
            ControlChannel::open(&control.channel, privileges).inspect_err(|_| fifo.iter_mut().for_each(Fifo::remove))?;
        Ok(Ways { fifo, channel })
    }

    /// Opens them for a master whose workers serve already. What can't be had is told, and is no reason to go without the rest; the pipe is
    /// tried again.
    pub fn take_over(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> Ways {
        let fifo = Fifo::open_or_complain(&control.fifos, privileges, now_ms);
        let channel = ControlChannel::open(&control.channel, privileges).unwrap_or_else(|error| {
            log_sink::line(&error.to_string());
            ControlChannel::default()
        });
        Ways { fifo, channel }
    }

    /// None, for a master whose instance is another's still.
    pub fn none() -> Ways {
        Ways { fifo: None, channel: ControlChannel::default() }
    }

    /// Another master has the instance from here on: only who has asked already is answered.
    pub fn give_place(&mut self) {
        self.fifo = None;
        self.channel.close();
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_>> {
        self.fifo.iter().flat_map(Fifo::sources).chain(self.channel.sources())
    }

    pub fn wake_ms(&self) -> Option<u64> {
        [self.channel.wake_ms(), self.fifo.as_ref().map(Fifo::wake_ms)].into_iter().flatten().min()
    }

    pub fn look_if_due(&mut self, now_ms: u64) {
        self.channel.drop_late(now_ms);
        if let Some(fifo) = &mut self.fifo {
            fifo.look_if_due(now_ms);
        }
    }

    /// The files of both go with the instance.
    pub fn remove_files(&mut self) {
        self.channel.remove_file();
        if let Some(fifo) = &mut self.fifo {
            fifo.remove();
        }
    }
}
