//! The sources of commands other than signals: the master FIFO and the control socket, as one feature of the loop. It does not
//! know commands. The master runs it.

use bolide_contract::control::Control;
use bolide_supervision::error::StartError;
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;
use bolide_supervision::sockets::control_socket::ControlSocket;

use crate::control::fifo::Fifo;
use crate::owner::{Owner, Turn, Waits};
use crate::token::Token;

/// The FIFO, if configured, and the control socket.
#[derive(Debug)]
pub struct ControlEndpoints {
    pub fifo: Option<Fifo>,
    pub channel: ControlSocket,
}

impl ControlEndpoints {
    /// Opens the configured endpoints. Leaves nothing behind if that fails.
    ///
    /// # Errors
    /// A FIFO or a socket file can't be made.
    pub fn open(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> Result<ControlEndpoints, StartError> {
        let mut fifo = Fifo::open(&control.fifos, privileges, now_ms)?;
        let channel =
            ControlSocket::open(&control.channel, privileges).inspect_err(|_| fifo.iter_mut().for_each(Fifo::remove))?;
        Ok(ControlEndpoints { fifo, channel })
    }

    /// Opens the endpoints for a master whose workers already serve. A failure is logged and does not affect the other endpoint;
    /// the FIFO is tried again later.
    pub fn take_over(control: &Control, privileges: Option<&Privileges>, now_ms: u64) -> ControlEndpoints {
        let fifo = Fifo::open_or_log(&control.fifos, privileges, now_ms);
        let channel = ControlSocket::open(&control.channel, privileges).unwrap_or_else(|error| {
            log_sink::line(&error.to_string());
            ControlSocket::default()
        });
        ControlEndpoints { fifo, channel }
    }

    /// Returns an empty set of endpoints, for a master that has not taken over its instance yet.
    pub fn none() -> ControlEndpoints {
        ControlEndpoints { fifo: None, channel: ControlSocket::default() }
    }

    /// Another master owns the instance from now on: only clients that have asked already are answered.
    pub fn hand_over(&mut self) {
        self.fifo = None;
        self.channel.close();
    }

    pub fn check_if_due(&mut self, now_ms: u64) {
        self.channel.drop_late(now_ms);
        if let Some(fifo) = &mut self.fifo {
            fifo.check_if_due(now_ms);
        }
    }

    /// Removes the files of both when the instance exits.
    pub fn remove_files(&mut self) {
        self.channel.remove_file();
        if let Some(fifo) = &mut self.fifo {
            fifo.remove();
        }
    }
}

impl Owner for ControlEndpoints {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        let fifo = self.fifo.iter().flat_map(Fifo::sources);
        let wake_ms = self.fifo.as_ref().map(Fifo::wake_ms).into_iter().chain(self.channel.wake_ms()).min();
        Waits::on(fifo.chain(self.channel.sources().map(|source| source.map(Token::Control))), wake_ms)
    }
}
