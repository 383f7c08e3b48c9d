//! What has been read of another server's command line. Most flags become options at once; those that mean something together (`--host` and
//! `--port`) are kept until all are known. Plain data: what becomes of a flag is said in `taking`.

use super::server::Server;

/// An option of ours and its value.
pub type MadePair = (String, String);

/// What has been read of another server's command line.
#[derive(Debug, Default)]
pub struct Translation {
    server: Option<Server>,
    pub(super) made: Vec<MadePair>,
    pub(super) notes: Vec<String>,
    pub(super) host: Option<String>,
    pub(super) port: Option<String>,
    /// Addresses as gunicorn writes them.
    pub(super) binds: Vec<String>,
    /// gunicorn's protocol of these.
    pub(super) protocol: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) worker_class: Option<String>,
    pub(super) quiet: bool,
    pub(super) has_access_log: bool,
    pub(super) daemon: bool,
    pub(super) error_log: Option<String>,
    pub(super) statsd: (Option<String>, Option<String>),
    pub(super) static_routes: Vec<String>,
    pub(super) static_folders: Vec<String>,
}

impl Translation {
    /// Of the command line of a server; `None` is our own, where any of them may have been meant.
    pub fn new(server: Option<Server>) -> Translation {
        Translation { server, ..Translation::default() }
    }

    /// The options that have come about since this was asked last, in their order.
    pub fn drain(&mut self) -> Vec<MadePair> {
        std::mem::take(&mut self.made)
    }

    /// There is a host without a port.
    pub fn needs_port(&self) -> bool {
        self.host.is_some() && self.port.is_none()
    }

    /// Our own `--protocol` is gunicorn's where there is a `--bind`, and no `--socket` that uWSGI's would be about.
    pub fn speak(&mut self, protocol: Option<String>) {
        self.protocol = protocol;
    }

    /// Addresses were named as gunicorn names them.
    pub fn binds_addresses(&self) -> bool {
        !self.binds.is_empty()
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.made.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub(super) fn server(&self) -> Option<Server> {
        self.server
    }
}
