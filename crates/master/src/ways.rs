//! The ways to a running master that are not signals: its fifo and its control socket, as one feature of the loop. It knows nothing of what is
//! asked. The master runs it.

use bolide_contract::control::Control;
use bolide_supervision::error::StartError;
use bolide_supervision::logs::log_sink;
use bolide_supervision::polling::Source;
use bolide_supervision::processes::privileges::Privileges;
use bolide_supervision::sockets::control_socket::ControlSocket;

use crate::fifo::Fifo;
use crate::token::Token;

/// The ways to the master that are not signals.
#[derive(Debug)]
pub struct Ways {
    pub fifo: Option<Fifo>,
    pub channel: ControlSocket,
}

impl Ways {
    /// Opens what the settings ask for; nothing is left where that fails.
    ///
    /// # Errors
    /// A pipe or a socket file can't be made.
    pub fn open(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> Result<Ways, StartError> {
        let mut fifo = Fifo::open(&control.fifos, privileges, now_ms)?;
        let channel =
            ControlSocket::open(&control.channel, privileges).inspect_err(|_| fifo.iter_mut().for_each(Fifo::remove))?;
        Ok(Ways { fifo, channel })
    }

    /// Opens them for a master whose workers serve already. What can't be had is told, and is no reason to go without the rest; the pipe is
    /// tried again.
    pub fn take_over(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> Ways {
        let fifo = Fifo::open_or_complain(&control.fifos, privileges, now_ms);
        let channel = ControlSocket::open(&control.channel, privileges).unwrap_or_else(|error| {
            log_sink::line(&error.to_string());
            ControlSocket::default()
        });
        Ways { fifo, channel }
    }

    /// None, for a master whose instance is another's still.
    pub fn none() -> Ways {
        Ways { fifo: None, channel: ControlSocket::default() }
    }

    /// Another master has the instance from here on: only who has asked already is answered.
    pub fn give_place(&mut self) {
        self.fifo = None;
        self.channel.close();
    }

    pub fn sources(&self) -> impl Iterator<Item = Source<'_, Token>> {
        self.fifo.iter().flat_map(Fifo::sources).chain(self.channel.sources().map(|source| source.map(Token::Control)))
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
