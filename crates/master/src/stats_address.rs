//! The socket of `stats`, bound as those that are served are bound. The master runs it, at the start.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bolide_contract::settings::{Listener, Protocol};
use bolide_contract::sockets::SocketTuning;
use bolide_contract::statistics::StatisticsServer;
use bolide_contract::tls::Http2;

use crate::error::StartError;
use crate::listeners::{ADDRESS_WAIT_MS, Endpoint, bind_when_free};
use crate::privileges::Privileges;

/// Connections that the kernel keeps waiting there.
const BACKLOG: u32 = 100;

/// Binds it.
///
/// # Errors
/// An address that can't be had.
pub fn bind(server: &StatisticsServer, owner: Option<&Privileges>) -> Result<(OwnedFd, Endpoint), StartError> {
    let listener = Listener {
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
    };
    let until = Instant::now() + Duration::from_millis(ADDRESS_WAIT_MS);
    bind_when_free(&listener, &[], owner, until)
        .map_err(|message| StartError::new(format!("{}: stats: {message}", listener.origin)))
}
