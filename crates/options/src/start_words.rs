//! Decides in whose words an instance is started, for behavior that no single option decides: what `Transfer-Encoding` of an
//! application means, which of Python's loggers exist. It must not know the meaning of an option. Runs in the process that reads
//! the configuration.

use super::server::Server;

/// In whose words an instance is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartWords {
    /// uWSGI's: a file of options, or its options on the command line.
    #[default]
    Uwsgi,
    /// Those of other servers. A command line such as `--bind 127.0.0.1:8000 app:app` may be that of several. `are_typed`: it has
    /// an option of theirs, and not only the name of an application.
    OtherServers { servers: Vec<Server>, are_typed: bool },
}

impl StartWords {
    pub fn are_uwsgis(&self) -> bool {
        *self == StartWords::Uwsgi
    }

    /// Whether an option, or a configuration, of other servers says whose words these are.
    pub fn are_typed(&self) -> bool {
        matches!(self, StartWords::OtherServers { are_typed: true, .. })
    }

    pub fn may_be(&self, server: Server) -> bool {
        matches!(self, StartWords::OtherServers { servers, .. } if servers.contains(&server))
    }
}

/// What the options of a command line say about whose words they are.
#[derive(Debug)]
pub struct TypedWords {
    candidates: Vec<Server>,
    has_uwsgis: bool,
    has_other_servers: bool,
}

impl Default for TypedWords {
    fn default() -> TypedWords {
        TypedWords { candidates: Server::ALL.to_vec(), has_uwsgis: false, has_other_servers: false }
    }
}

impl TypedWords {
    /// Takes an option of these servers into account. One that no candidate has changes nothing: the line mixes servers.
    pub fn note_servers(&mut self, servers: &[Server]) {
        self.has_other_servers |= !servers.is_empty();
        if self.candidates.iter().any(|server| servers.contains(server)) {
            self.candidates.retain(|server| servers.contains(server));
        }
    }

    /// Takes an option of Bolide into account, which uWSGI and `servers` may have, too. A name of uWSGI and another server says
    /// nothing.
    pub fn note_own(&mut self, servers: &[Server], is_uwsgis: bool) {
        match (!is_uwsgis, servers.is_empty()) {
            (true, false) => self.note_servers(servers),
            (false, true) => self.has_uwsgis = true,
            (true, true) | (false, false) => {}
        }
    }

    /// Returns whose words a command line uses. `files` are the servers of configurations that are another server's,
    /// `has_own_file` tells that there is a file of options, and `has_application` that there is an application by itself on the
    /// command line, as that of every other server does.
    pub fn complete(self, files: Vec<Server>, has_own_file: bool, has_application: bool) -> StartWords {
        match self {
            _ if has_own_file => StartWords::Uwsgi,
            _ if !files.is_empty() => StartWords::OtherServers { servers: files, are_typed: true },
            TypedWords { has_other_servers: true, candidates, .. } => {
                StartWords::OtherServers { servers: candidates, are_typed: true }
            }
            TypedWords { has_uwsgis: false, candidates, .. } if has_application => {
                StartWords::OtherServers { servers: candidates, are_typed: false }
            }
            _ => StartWords::Uwsgi,
        }
    }
}
