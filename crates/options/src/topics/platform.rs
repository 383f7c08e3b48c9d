//! Applies environment variables to an application on the command line if no option sets the same: `PORT` and `WEB_CONCURRENCY`,
//! which hosting platforms set, and the variables of `env-file`. It reads those files. Runs in the process that reads the
//! configuration.

use std::path::PathBuf;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::trust::code_variables;
use bolide_contract::settings::{Address, ApplicationSettings, Identity, Listener};

use crate::address;
use crate::context::Context;
use crate::topics::interpreter;
use crate::topics::interpreter::PythonDraft;
use crate::topics::processes::MAX_PROCESSES;

/// The port that a platform assigns; other Python servers then listen on all addresses.
const PORT: &str = "PORT";
/// The number of workers of an application on the command line, as with other Python servers and on hosting platforms.
pub const WEB_CONCURRENCY: &str = "WEB_CONCURRENCY";
/// A file that some programs read by default.
const USUAL_FILE: &str = ".env";

/// Returns the value of `PORT`, from the environment or from the files of `env-file`.
///
/// # Errors
/// The value is not a port, or a file can't be read.
pub fn port(host: &HostInfo, files: &[String]) -> Result<Option<u16>, Diagnostic> {
    let own = host.variable(PORT).map(str::to_owned);
    let mut found = own;
    for file in files {
        if found.is_some() {
            break;
        }
        let all = interpreter::variables(file, &Location::command_line(), host)?;
        found = all.into_iter().find(|(name, _)| name == PORT).map(|(_, value)| value);
    }
    found.filter(|text| !text.is_empty()).map(|text| port_of(&text)).transpose()
}

fn port_of(text: &str) -> Result<u16, Diagnostic> {
    text.trim().parse().map_err(|_| {
        Diagnostic::error(Some(&Location::environment(PORT)), format!("`{PORT} = {text}` is not a port"))
            .advise("0 to 65535; or unset it, or write `--http ADDRESS`")
    })
}

/// The default address of the server whose command line this is, or Bolide's.
fn address_of_server(context: &mut Context) -> Address {
    let Some(server) = context.read.server else { return address::default() };
    let (host, port) = server.default_address();
    let usual = Address::Tcp { host: host.to_owned(), port: port.parse().unwrap_or_default() };
    if usual != address::default() {
        let message = format!("listening on {host}:{port}, as {} does", server.command());
        let note = Diagnostic::note(Some(&Location::command_line()), message);
        context.diagnostics.push(note.advise("`--http ADDRESS` names another address"));
    }
    usual
}

/// Notes that an application on the command line is reachable from inside its container only: a mistake that shows elsewhere.
pub fn note_container(addresses: &[&Address], context: &mut Context) {
    let is_loopback = |address: &&Address| match address {
        Address::Tcp { host, .. } => host == "localhost" || host.starts_with("127.") || host == "::1" || host == "[::1]",
        _ => false,
    };
    let Some(Address::Tcp { host, port }) = addresses.first().filter(|_| addresses.iter().all(is_loopback)) else { return };
    if context.is_bare && context.host.is_container {
        let message = format!("{host}:{port} can be reached from inside this container only");
        let note = Diagnostic::note(Some(&Location::command_line()), message);
        context.diagnostics.push(note.advise(format!("write `--host 0.0.0.0 --port {port}` for connections from outside")));
    }
}

/// Notes that a configuration listens elsewhere than at the port that the platform assigns: no request would arrive.
pub fn note_unused_port(listeners: &[Listener], context: &mut Context) {
    let Some(assigned) = context.host.variable(PORT).and_then(|text| text.parse::<u16>().ok()).filter(|_| !context.is_bare)
    else {
        return;
    };
    let ports = listeners.iter().filter_map(|listener| match listener.address {
        Address::Tcp { port, .. } => Some((port, &listener.origin)),
        _ => None,
    });
    let ports: Vec<(u16, &String)> = ports.collect();
    if let Some((port, origin)) = ports.first().filter(|_| ports.iter().all(|(port, _)| *port != assigned)) {
        let message = format!("{PORT} = {assigned} is set and not used: {origin} listens on port {port}");
        let note = Diagnostic::note(Some(&Location::environment(PORT)), message);
        context.diagnostics.push(note.advise(format!("write `http = 0.0.0.0:$({PORT})` if a platform assigns the port")));
    }
}

impl PythonDraft {
    /// `env` takes precedence over a file.
    pub fn environment(&mut self, application: &ApplicationSettings) -> Vec<(String, String)> {
        let set = &application.environment;
        let is_set = |name: &String| set.iter().any(|(key, _)| key == name) || application.removed_variables.contains(name);
        let mut all: Vec<(String, String)> = self.file_variables.drain(..).filter(|(name, _)| !is_set(name)).collect();
        all.extend(set.iter().cloned());
        all
    }

    /// The variables that programs of root don't get, if the application has another user.
    pub fn foreign_variables(&self, identity: &Identity, context: &mut Context) -> Vec<String> {
        let host = context.host;
        let Some(writer) = host.trust.served(identity) else { return Vec::new() };
        let is_foreign = |(path, _): &&(PathBuf, Vec<String>)| code_variables::is_foreign(path, writer);
        let mut found = Vec::new();
        for (path, names) in self.choosing_variables.iter().filter(|(_, names)| !names.is_empty()).filter(is_foreign) {
            let message = format!("{} are not passed to programs that root executes", names.join(", "));
            let advice = format!("another user may write {}; `env = {}=…` passes it", path.display(), names[0]);
            context.diagnostics.push(Diagnostic::note(None, message).advise(advice));
            found.extend(names.iter().cloned());
        }
        found
    }

    /// A variable of the environment, or of the files of `env-file`.
    fn variable(&self, name: &str, context: &Context) -> Option<String> {
        let of_file = || self.file_variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        context.host.variable(name).or_else(of_file).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Returns the default address of an application on the command line, and what set it.
    pub fn default_address(&self, context: &mut Context) -> (Address, Location) {
        match self.variable(PORT, context).map(|text| port_of(&text)) {
            Some(Ok(port)) => {
                let location = Location::environment(PORT);
                context.diagnostics.push(Diagnostic::note(Some(&location), format!("PORT: listening on 0.0.0.0:{port}")));
                (Address::Tcp { host: "0.0.0.0".to_owned(), port }, location)
            }
            Some(Err(diagnostic)) => {
                context.diagnostics.push(diagnostic);
                (address::default(), Location::command_line())
            }
            None => (address_of_server(context), Location::command_line()),
        }
    }

    pub fn web_concurrency(&self, context: &mut Context) -> Option<u32> {
        let text = self.variable(WEB_CONCURRENCY, context)?;
        let most = u32::try_from(MAX_PROCESSES).unwrap_or(u32::MAX);
        let number = text.trim().parse().ok().filter(|number| (1..=most).contains(number));
        let location = Location::environment(WEB_CONCURRENCY);
        context.diagnostics.push(match number {
            Some(number) => Diagnostic::note(Some(&location), format!("WEB_CONCURRENCY: starting {number} workers")),
            None => Diagnostic::error(Some(&location), format!("`{WEB_CONCURRENCY} = {text}` is not a number of workers"))
                .advise(format!("1 to {most}; or unset it")),
        });
        number
    }

    /// Some programs read `.env` by default, so a note says that it is not read here.
    pub fn note_env_file(&self, context: &mut Context) {
        if !self.has_environment_file && context.host.directory.join(USUAL_FILE).is_file() {
            let message = format!("there is a `{USUAL_FILE}` here, which is not read");
            let advice = format!("write `--env-file {USUAL_FILE}` to set its variables");
            context.diagnostics.push(Diagnostic::note(Some(&Location::command_line()), message).advise(advice));
        }
    }
}
