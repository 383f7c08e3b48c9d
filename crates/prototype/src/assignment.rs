//! Builds the engine's [`Assignment`] from the master's boot message. It does not send or receive orders. Each worker runs it
//! once, before it serves.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use bolide_contract::boot::{Boot, BulkheadFiles, SessionFiles};
use bolide_contract::children::ChildKind;
use bolide_contract::recycling::Recycling;
use bolide_contract::settings::{Address, Listener, Protocol};
use bolide_engine::uwsgi_signals::SignalPort;
use bolide_engine::{Assignment, BulkheadLink, ConnectionQueue, ListeningSocket, SessionLinks};
use bolide_scoreboard::Scoreboard;
use bolide_scoreboard::bulkheads::BulkheadMemory;
use bolide_scoreboard::connection_queue::listener_id;
use bolide_scoreboard::session_owners::SessionOwners;
use bolide_scoreboard::session_pair::SessionPair;
use bolide_scoreboard::ticket_keys::TicketKeys;

use crate::handover::{close_on_exec, copied, set_non_blocking};

/// `max-requests` is reached up to this percentage earlier, differently in each worker, so that they do not all restart at the
/// same time.
const JITTER_PERCENT: u64 = 10;

/// The role of a new child of the prototype.
pub struct ForkedAs {
    pub row: u32,
    pub kind: ChildKind,
    /// From 1, within its kind.
    pub number: u32,
    /// It does not replace another child of its generation.
    pub is_first: bool,
    /// A worker whose generation was not accepted yet: it must answer a probe first.
    pub is_on_trial: bool,
}

/// The memory files that the master shares with workers.
pub struct SharedMemory<'a> {
    pub scoreboard: &'a OwnedFd,
    pub ticket_keys: Option<&'a OwnedFd>,
}

/// `control` is the worker's own control socket to the master.
pub fn assignment(boot: &Boot, memory: &SharedMemory<'_>, control: OwnedFd, worker: &ForkedAs) -> io::Result<Assignment> {
    set_non_blocking(&control)?;
    close_on_exec(control.as_raw_fd())?;
    let scoreboard = Scoreboard::attach(memory.scoreboard, boot.scoreboard_rows, boot.scoreboard_slots)?
        .within(boot.rows_in_use, boot.slots_in_use);
    let row = scoreboard.row(worker.row).ok_or(io::ErrorKind::NotFound)?;
    Ok(Assignment {
        settings: boot.settings.clone(),
        row: worker.row,
        worker: worker.number,
        scoreboard,
        signals: Arc::new(SignalPort::new(control.try_clone()?, row)),
        ticket_keys: memory.ticket_keys.map(TicketKeys::attach).transpose()?,
        control,
        listeners: listening_sockets(boot)?,
        queue: boot.connection_queue.map(queue).transpose()?,
        sessions: boot.sessions.as_ref().map(|files| sessions(files, worker.number)).transpose()?,
        bulkheads: boot.bulkheads.iter().map(bulkhead).collect::<io::Result<_>>()?,
        is_held: worker.is_on_trial && boot.settings.reloading.probe.is_some(),
        spans: boot.spans.map(copied).transpose()?,
        succession: None,
        // The language has attached them, and adds them.
        caches: &[],
        metrics: None,
        rate_limits: &[],
        worn_after: worn_after(&boot.settings.recycling, worker.number),
    })
}

fn queue([put, take]: [i32; 2]) -> io::Result<ConnectionQueue> {
    Ok(ConnectionQueue { put: copied(put)?, take: copied(take)? })
}

fn sessions(files: &SessionFiles, number: u32) -> io::Result<SessionLinks> {
    let pair = |[put, take]: &[i32; 2]| Ok(SessionPair { put: copied(*put)?, take: copied(*take)? });
    Ok(SessionLinks {
        owners: SessionOwners::attach(&copied(files.owners)?)?,
        pairs: files.pairs.iter().map(pair).collect::<io::Result<_>>()?,
        own_place: SessionFiles::place(number, files.side),
        side: files.side,
    })
}

fn bulkhead(files: &BulkheadFiles) -> io::Result<BulkheadLink> {
    let memory = BulkheadMemory::attach(&copied(files.memory)?)?;
    Ok(BulkheadLink { name: files.name.clone(), memory, bell: copied(files.bell)? })
}

fn listening_sockets(boot: &Boot) -> io::Result<Vec<ListeningSocket>> {
    let pairs = boot.settings.listeners.iter().zip(&boot.listeners);
    pairs
        .map(|(listener, handed)| {
            let (server_name, server_port) = name_and_port(listener, &handed.bound);
            let descriptor = copied(handed.descriptor)?;
            Ok(ListeningSocket {
                inode: listener_id(&descriptor)?,
                descriptor,
                protocol: listener.protocol,
                server_name,
                server_port,
                bound: handed.bound.clone(),
                origin: listener.origin.clone(),
                timeout_ms: listener.timeout_ms,
                tls: listener.tls.clone(),
                http2: listener.http2,
                redirects_to_https: listener.redirects_to_https,
                has_proxy_header: listener.has_proxy_header,
                may_lack_proxy_header: listener.may_lack_proxy_header,
                is_ours: handed.is_ours,
                is_tcp: !matches!(listener.address, Address::Unix(_) | Address::Abstract(_)),
            })
        })
        .collect()
}

/// SERVER_NAME is the host name, as in uWSGI; SERVER_PORT is the port of the socket, or that of the
/// scheme for HTTP at a UNIX socket: code that builds an address from it expects a number, which uWSGI gives it.
fn name_and_port(listener: &Listener, bound: &str) -> (String, String) {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned());
    let port = match listener.address {
        Address::Unix(_) | Address::Abstract(_) => String::new(),
        Address::Tcp { .. } | Address::Descriptor(_) | Address::Passed(_) => {
            bound.rsplit_once(':').map_or_else(String::new, |(_, port)| port.to_owned())
        }
    };
    let is_without = port.is_empty() && listener.protocol == Protocol::Http;
    let of_scheme = if listener.tls.is_some() { "443" } else { "80" };
    (name, if is_without { of_scheme.to_owned() } else { port })
}

/// The number of requests after which a worker asks for its replacement. With a delta, workers are spread already, so no jitter
/// is added.
fn worn_after(recycling: &Recycling, worker: u32) -> Option<u64> {
    let most = recycling.max_requests?;
    Some(match recycling.max_requests_delta {
        0 => with_jitter(most),
        delta => most.saturating_add(delta.saturating_mul(u64::from(worker.saturating_sub(1)))),
    })
}

/// Subtracts a jitter that depends on the pid: workers are forked one after the other, so their pids differ.
fn with_jitter(requests: u64) -> u64 {
    /// Multiplier of Knuth's multiplicative hash, which maps neighboring pids far apart.
    const SPREAD: u64 = 2_654_435_761;
    let spread = u64::from(std::process::id()).wrapping_mul(SPREAD) % 1000;
    requests - requests * JITTER_PERCENT * spread / 100_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_lets_later_workers_serve_more_and_without_one_up_to_a_tenth_is_cut_off() {
        let mut recycling = Recycling { max_requests: Some(1000), max_requests_delta: 50, ..Recycling::default() };
        assert_eq!([1, 2, 4].map(|worker| worn_after(&recycling, worker)), [Some(1000), Some(1050), Some(1150)]);
        recycling.max_requests_delta = 0;
        assert!((900..=1000).contains(&worn_after(&recycling, 3).expect("set")));
        recycling.max_requests = None;
        assert_eq!(worn_after(&recycling, 1), None);
    }
}
