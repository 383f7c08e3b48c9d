//! Recognizes the server whose command line was typed, since its defaults then apply: by options that only some servers have, and
//! by the words of flask and fastapi. It must not know the meaning of an option. Runs in the process that reads the command line.

use bolide_configuration::host_info::HostInfo;
use bolide_options::project;
use bolide_options::server::Server;

use super::{Subject, Translation, servers_of};

/// The variable with flask's application, and those with its address.
pub const FLASK_APP: &str = "FLASK_APP";
const FLASK_ADDRESS: [(&str, Subject); 2] = [("FLASK_RUN_HOST", Subject::Host), ("FLASK_RUN_PORT", Subject::Port)];

/// The servers that the line may belong to.
#[derive(Debug)]
pub struct LineOwner {
    candidates: Vec<Server>,
}

impl Default for LineOwner {
    fn default() -> LineOwner {
        LineOwner { candidates: Server::ALL.to_vec() }
    }
}

impl LineOwner {
    /// Takes an option into account that is not one of Bolide's: only servers that have it remain.
    pub fn note(&mut self, name: &str) {
        let servers = servers_of(name);
        self.keep(|server| servers.contains(&server));
    }

    /// Only these servers remain.
    pub fn keep(&mut self, is_possible: impl Fn(Server) -> bool) {
        self.candidates.retain(|server| is_possible(*server));
    }

    /// Returns whether the line contains an option of another server, and may be that of one which writes request lines to
    /// standard output.
    pub fn logs_to_stdout(&self) -> bool {
        let is_known = self.candidates.len() < Server::ALL.len();
        is_known
            && self.candidates.iter().any(|server| matches!(server, Server::Uvicorn | Server::Granian | Server::FastApi))
            && !self.candidates.contains(&Server::Gunicorn)
    }

    /// Returns the server if the line can be only one server's. `words` are the positional arguments, and `has_app` tells that
    /// flask's `--app` is there.
    pub fn server(&self, words: &[String], has_app: bool, host: &HostInfo) -> Option<Server> {
        match (self.candidates.as_slice(), words.split_first()) {
            // These two have a word of their own, and a flag alone, such as `--verbose`, must not open an address to everybody.
            ([server], _) if !matches!(server, Server::Flask | Server::FastApi) => Some(*server),
            (candidates, Some((first, rest))) if first == "run" => match candidates {
                [server] => Some(*server),
                _ => of_words(rest.first(), has_app, host).filter(|server| candidates.contains(server)),
            },
            _ => None,
        }
    }
}

/// `flask run` names its application before `run` or in the environment, and `fastapi run` names a file after it. Without any,
/// the framework of the application in the directory decides.
fn of_words(named: Option<&String>, has_app: bool, host: &HostInfo) -> Option<Server> {
    if named.is_none() && (has_app || host.variable(FLASK_APP).is_some()) {
        return Some(Server::Flask);
    }
    let found = match named {
        Some(file) => project::find_in_file(&host.directory.join(file)),
        None => project::find_in_directory(&host.directory).into_iter().next(),
    };
    match found?.framework? {
        "Flask" if named.is_none() => Some(Server::Flask),
        "FastAPI" => Some(Server::FastApi),
        _ => None,
    }
}

/// Adds flask's address from the environment, which `flask run` reads, unless the line contains one.
pub fn add_flask_address(to: &mut Translation, host: &HostInfo) {
    for (variable, subject) in FLASK_ADDRESS {
        let value = host.variable(variable).filter(|value| !value.is_empty() && !to.has(subject));
        if let Some(value) = value {
            to.keep_of_variable(subject, variable, value);
        }
    }
}
