//! The socket of `stats`, bound as those that are served are bound. The master runs it, at the start.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bolide_contract::settings::{Listener, Protocol};
use bolide_contract::sockets::SocketTuning;
use bolide_contract::statistics::StatisticsServer;
use bolide_contract::tls::Http2;

use crate::error::StartError;
use crate::listeners::{ADDRESS_WAIT_MS, Endpoint, bind_when_free, taken_over};
use crate::privileges::Privileges;

/// Connections that the kernel keeps waiting there.
const BACKLOG: u32 = 100;

/// Binds it.
///
/// # Errors
/// An address that can't be had.
pub fn bind(server: &StatisticsServer, owner: Option<&Privileges>) -> Result<(OwnedFd, Endpoint), StartError> {
    let until = Instant::now() + Duration::from_millis(ADDRESS_WAIT_MS);
    let listener = listener(server);
    bind_when_free(&listener, &[], owner, until).map_err(|message| trouble(&listener, &message))
}

/// Takes the socket that the master before us has handed over, which is not ours yet.
///
/// # Errors
/// It is none.
pub fn take(server: &StatisticsServer, socket: OwnedFd) -> Result<(OwnedFd, Endpoint), StartError> {
    let listener = listener(server);
    let endpoint = taken_over(&socket, &listener).map_err(|message| trouble(&listener, &message))?;
    Ok((socket, endpoint))
}

fn trouble(listener: &Listener, message: &str) -> StartError {
    StartError::new(format!("{}: stats: {message}", listener.origin))
}

fn listener(server: &StatisticsServer) -> Listener {
    Listener {
        address: server.address.clone(),
        protocol: Protocol::Http,
        backlog: BACKLOG,
        mode: server.mode,
        owner: None,
        timeout_ms: 0,
        tls: None,
        http2: Http2::default(),
        redirects_to_https: None,
        has_proxy_header: false,
        tuning: SocketTuning::default(),
        origin: server.origin.clone(),
    }
}
