//! From what the master handed down to what the engine serves with. It knows no order; each worker runs it once, before it serves.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use bolide_contract::boot::Boot;
use bolide_contract::scoreboard::Scoreboard;
use bolide_contract::settings::{Address, Listener};
use bolide_contract::ticket_keys::TicketKeys;
use bolide_engine::{Assignment, ListeningSocket};

use crate::handover::{close_on_exec, copied, set_non_blocking};

/// `max-requests` is reached up to this share earlier, differently in each worker, so that they don't all leave at once.
const JITTER_PERCENT: u64 = 10;

/// What a new worker is to be.
pub struct Worker {
    pub row: u32,
    /// 1 and up.
    pub number: u32,
}

/// The memory files that the master shares with workers.
pub struct SharedMemory<'a> {
    pub scoreboard: &'a OwnedFd,
    pub ticket_keys: Option<&'a OwnedFd>,
}

/// `control` is the worker's own line to the master.
pub fn assignment(boot: &Boot, memory: &SharedMemory<'_>, control: OwnedFd, worker: &Worker) -> io::Result<Assignment> {
    set_non_blocking(&control)?;
    close_on_exec(control.as_raw_fd())?;
    Ok(Assignment {
        settings: boot.settings.clone(),
        row: worker.row,
        worker: worker.number,
        scoreboard: Scoreboard::attach(memory.scoreboard, boot.scoreboard_rows, boot.scoreboard_slots)?
            .within(boot.rows_in_use, boot.slots_in_use),
        ticket_keys: memory.ticket_keys.map(TicketKeys::attach).transpose()?,
        control,
        listeners: listening_sockets(boot)?,
        worn_after: boot.settings.lifecycle.max_requests.map(with_jitter),
    })
}

fn listening_sockets(boot: &Boot) -> io::Result<Vec<ListeningSocket>> {
    let pairs = boot.settings.listeners.iter().zip(&boot.listeners);
    pairs
        .map(|(listener, handed)| {
            let (server_name, server_port) = name_and_port(listener, &handed.bound);
            Ok(ListeningSocket {
                descriptor: copied(handed.descriptor)?,
                protocol: listener.protocol,
                server_name,
                server_port,
                bound: handed.bound.clone(),
                timeout_ms: listener.timeout_ms,
                tls: listener.tls.clone(),
                http2: listener.http2,
                redirects_to_https: listener.redirects_to_https,
                has_proxy_header: listener.has_proxy_header,
                is_ours: handed.is_ours,
                is_tcp: !matches!(listener.address, Address::Unix(_) | Address::Abstract(_)),
            })
        })
        .collect()
}

/// SERVER_NAME is the machine's name, as in uWSGI; SERVER_PORT is that of the socket.
fn name_and_port(listener: &Listener, bound: &str) -> (String, String) {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned());
    let port = match listener.address {
        Address::Unix(_) | Address::Abstract(_) => String::new(),
        Address::Tcp { .. } | Address::Descriptor(_) | Address::Passed(_) => {
            bound.rsplit_once(':').map_or_else(String::new, |(_, port)| port.to_owned())
        }
    };
    (name, port)
}

/// A number of this process' own: workers are forked one after the other, so their pids differ.
fn with_jitter(requests: u64) -> u64 {
    /// Multiplier of Knuth's multiplicative hash: neighbouring pids come out far apart.
    const SPREAD: u64 = 2_654_435_761;
    let spread = u64::from(std::process::id()).wrapping_mul(SPREAD) % 1000;
    requests - requests * JITTER_PERCENT * spread / 100_000
}
