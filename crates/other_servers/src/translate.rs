//! Translates settings: each is converted to options of Bolide, kept until all are known, or refused with advice. It opens
//! nothing.

use bolide_options::catalog::catalog;
use bolide_options::row::Argument;
use bolide_options::server::Server;

use super::processes::GEVENT;
use super::row::{Meaning, ServerSetting};
use super::translation::{KeptSetting, MadeOption, SettingPlace, SettingRemark, Subject, Translation, UnixOption};
use super::values;

/// The default address of an application.
const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: &str = "8000";
/// The option with a certificate for the addresses of `http`.
pub const CERTIFICATE: &str = "tls-certificate";
/// gunicorn's default number of requests of a gevent worker.
const WORKER_CONNECTIONS: &str = "1000";

/// The file that is standard output.
const STANDARD_OUTPUT: &str = "/dev/stdout";

/// A setting that can't be translated: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub advice: String,
}

impl Translation {
    /// Translates one flag with its value, which is empty for a flag without one.
    ///
    /// # Errors
    /// Bolide does not support the flag or its value; the error says what to write instead.
    pub fn translate(&mut self, row: &ServerSetting, value: &str) -> Result<(), Refusal> {
        self.translate_at(row, value, SettingPlace { name: format!("--{}", row.flag), line: 0 })
    }

    /// Translates one setting under the name that it has at its place.
    pub(super) fn translate_at(&mut self, row: &ServerSetting, value: &str, place: SettingPlace) -> Result<(), Refusal> {
        let written = format!("{} {value}", place.name);
        let written = written.trim_end();
        self.place = place;
        let value = if value.is_empty() && row.argument == Argument::None { "true" } else { value };
        // A configuration that is written uses one name for an option.
        let same = || catalog().get(row.flag).map_or(row.flag, |row| row.name());
        let whose = server_list(row);
        let unsupported = |advice| Refusal { message: format!("`{written}` of {whose} is not supported"), advice };
        match row.meaning {
            Meaning::Same => {
                self.has_certificate |= same() == CERTIFICATE;
                self.add(same(), value);
            }
            Meaning::Listed(_) => {
                value.split(',').map(str::trim).filter(|one| !one.is_empty()).for_each(|one| self.add(same(), one));
            }
            Meaning::Worded(words, doubt) => match (words.iter().find(|(word, _)| *word == value), doubt(value)) {
                (Some((_, pairs)), _) => pairs.iter().for_each(|(name, value)| self.add(name, value)),
                (None, Some((message, advice))) => return Err(Refusal { message, advice }),
                (None, None) => self.add(same(), value),
            },
            Meaning::Option(name) => self.add(name, value),
            Meaning::Fixed(pairs) => pairs.iter().for_each(|(name, value)| self.add(name, value)),
            Meaning::Made(take, _) => return take(self, value).map_err(unsupported),
            Meaning::Kept(subject, normalize, _) => {
                let value = normalize(value).map_err(unsupported)?;
                self.keep(subject, &value);
            }
            Meaning::Done(_) => {}
            Meaning::Nothing(why) => self.note(format!("nothing to do: {why}")),
            Meaning::Refused(advice) => {
                return Err(Refusal {
                    message: format!("`{written}` is an option of {whose}, not of Bolide"),
                    advice: advice.to_owned(),
                });
            }
            Meaning::Taken(doubt, advice) => {
                let (message, advice) = doubt(value).unwrap_or_else(|| {
                    (format!("`--{}` of {whose} is not the `{}` of uWSGI and Bolide", row.flag, row.flag), advice.to_owned())
                });
                return Err(Refusal { message, advice });
            }
        }
        Ok(())
    }

    /// Whether there is a host without a port, in `--host` or in `--bind`.
    pub fn has_host_alone(&self) -> bool {
        let is_alone = |kept: &KeptSetting| match kept.subject {
            Subject::Host => true,
            Subject::Bind => kept.value.split(',').any(values::is_host),
            _ => false,
        };
        self.kept.iter().any(is_alone) && !self.has(Subject::Port)
    }

    /// Returns the options that depend on several settings, and the remarks for the user. `port` is the port if there is a host
    /// without one ([`Translation::needs_port`]).
    ///
    /// # Errors
    /// Settings contradict each other.
    pub fn finish(mut self, port: Option<u16>) -> Result<(Vec<MadeOption>, Vec<SettingRemark>), Refusal> {
        self.finish_addresses(port)?;
        self.finish_greenlets();
        self.finish_timeout();
        self.finish_dirty_apps();
        self.finish_logs();
        self.finish_statsd()?;
        self.finish_static_files()?;
        Ok((self.made, self.remarks))
    }

    /// Adds an option for a kept setting.
    pub(super) fn add_for(&mut self, kept: &KeptSetting, name: &str, value: &str) {
        self.place.clone_from(&kept.place);
        self.add(name, value);
    }

    /// Notes something about a kept setting.
    fn note_for(&mut self, kept: &KeptSetting, message: &str) {
        self.place.clone_from(&kept.place);
        self.note(message);
    }

    /// `--host` and `--port` form one address. A host alone in `--bind` gets the port of `--port`, as in daphne.
    fn finish_addresses(&mut self, usual_port: Option<u16>) -> Result<(), Refusal> {
        let binds = self.take_all(Subject::Bind);
        let plain = self.take_all(Subject::InsecureBind);
        let (host, port) = self.host_and_port();
        let named_port = port.as_ref().map(|port| port.value.clone());
        let addresses = || binds.iter().flat_map(|kept| kept.value.split(',').map(move |address| (kept, address)));
        let speaks_uwsgi = self.speaks_uwsgi(addresses().next().map(|(_, address)| address))?;
        let takes_port = host.is_none() && port.is_some() && addresses().any(|(_, address)| values::is_host(address));
        let is_secure = self.finish_insecure_addresses(&plain, binds.is_empty())?;
        for (kept, address) in addresses() {
            let port = named_port.as_deref().unwrap_or(DEFAULT_PORT);
            let (name, value) = bound(address, port)?;
            if let Some(path) = value.strip_prefix("unix:") {
                self.unix_sockets.push((UnixOption::Bind, kept.place.clone(), path.to_owned()));
            }
            let name = if is_secure { "https" } else { name };
            self.add_for(kept, if speaks_uwsgi { "uwsgi-socket" } else { name }, &value);
        }
        self.finish_unix_sockets(binds.is_empty());
        self.finish_host((host, port.filter(|_| !takes_port)), usual_port);
        Ok(())
    }

    /// A mask is for UNIX sockets; without one it has no effect. Returns whether it has become their mode.
    pub(super) fn finish_mask(&mut self, is_local: bool) -> bool {
        let Some(mask) = self.take_kept(Subject::Umask) else { return false };
        let (mode, is_decimal) = values::mode_of_mask(&mask.value);
        if is_decimal {
            self.place.clone_from(&mask.place);
            self.warn(match is_local {
                true => format!(
                    "it is a decimal number: the UNIX socket has the mode {mode}, as in gunicorn; write octal digits as `0o666`"
                ),
                false => {
                    "it has no effect without a UNIX socket, and it is a decimal number: write octal digits as `0o666`".to_owned()
                }
            });
        }
        if is_local {
            self.add_for(&mask, "chmod-socket", &mode);
        }
        is_local
    }

    /// Adds the address of `--host` and `--port`; without them, that of a self-signed certificate.
    fn finish_host(&mut self, (host, port): (Option<KeptSetting>, Option<KeptSetting>), usual_port: Option<u16>) {
        let signed = self.take_kept(Subject::SelfSigned);
        let (own_host, own_port) = self.server().map_or((DEFAULT_HOST, DEFAULT_PORT), Server::default_address);
        let Some(kept) = host.as_ref().or(port.as_ref()).or(signed.as_ref()).cloned() else { return };
        let usual_port = usual_port.map_or_else(|| own_port.to_owned(), |port| port.to_string());
        let address = values::host_and_port(
            host.as_ref().map_or(own_host, |host| &host.value),
            port.as_ref().map_or(&usual_port, |port| &port.value),
        );
        match signed {
            Some(_) => self.add_for(&kept, "https", &format!("{address},auto")),
            None => self.add_for(&kept, "http", &address),
        }
        match self.server() {
            Some(server) if host.is_none() && own_host != DEFAULT_HOST => {
                let whose = server.command();
                self.note(format!("listening on {address}, as {whose} does; `--host {DEFAULT_HOST}` is for this machine only"));
            }
            None if port.is_none() && usual_port == DEFAULT_PORT => {
                self.note(format!("listening on {address}; the default port of waitress-serve is 8080, and of flask run 5000"));
            }
            _ => {}
        }
    }

    /// Removes and returns host and port, unless the line contains a socket beside which they have no effect.
    fn host_and_port(&mut self) -> (Option<KeptSetting>, Option<KeptSetting>) {
        let only = self.take_kept(Subject::OnlySocket);
        let (host, port) = (self.take_kept(Subject::Host), self.take_kept(Subject::Port));
        // daphne has `--fd` and `--port`, and opens both.
        let only = only.filter(|only| host.is_some() || only.place.name == "--uds");
        match (only, host.as_ref().or(port.as_ref())) {
            (Some(only), Some(first)) => {
                self.note_for(first, &format!("nothing to do: only the socket of `{}` is opened", only.place.name));
                (None, None)
            }
            _ => (host, port),
        }
    }

    /// Adds hypercorn's addresses without TLS, and returns whether those of `--bind` have TLS. Without a certificate there is no
    /// difference, and only `--bind` counts.
    fn finish_insecure_addresses(&mut self, plain: &[KeptSetting], is_alone: bool) -> Result<bool, Refusal> {
        let Some(first) = plain.first() else { return Ok(false) };
        if !self.has_certificate {
            self.note_for(first, "nothing to do: without a certificate only the addresses of `--bind` are opened");
            return Ok(false);
        }
        for (kept, address) in plain.iter().flat_map(|kept| kept.value.split(',').map(move |address| (kept, address))) {
            let (name, value) = bound(address, DEFAULT_PORT)?;
            self.add_for(kept, name, &value);
        }
        if is_alone {
            self.add_for(first, "https", &values::host_and_port(DEFAULT_HOST, DEFAULT_PORT));
        }
        Ok(true)
    }

    /// Returns whether the address of `--bind` speaks the uwsgi protocol, by gunicorn's `--protocol`.
    fn speaks_uwsgi(&mut self, bind: Option<&str>) -> Result<bool, Refusal> {
        let (Some(protocol), Some(bind)) = (self.take_kept(Subject::Protocol), bind) else { return Ok(false) };
        let protocol = values::protocol(&protocol.value).map_err(|advice| {
            let message =
                format!("`--protocol {}` is for the addresses of `--socket`, and `--bind {bind}` is HTTP", protocol.value);
            Refusal { message, advice }
        })?;
        Ok(protocol == "uwsgi")
    }

    /// gunicorn's gevent workers patch the standard library before they import the application.
    fn finish_greenlets(&mut self) {
        let connections = self.take_kept(Subject::WorkerConnections);
        let class = self.kept.iter().rev().find(|kept| kept.subject == Subject::WorkerClass).cloned();
        match (class.filter(|class| class.value == GEVENT), connections) {
            (Some(class), connections) => {
                match connections {
                    Some(connections) => self.add_for(&connections, "gevent", &connections.value),
                    None => self.add_for(&class, "gevent", WORKER_CONNECTIONS),
                }
                self.add_for(&class, "gevent-monkey-patch", "true");
                // An application of gunicorn's does not find a module `uwsgi`, so python-engineio uses the WebSocket in environ.
                self.add_for(&class, "gevent-websocket", "true");
            }
            (None, Some(connections)) => self.note_for(
                &connections,
                "nothing to do: it limits the requests of gevent's workers; `limit-concurrency` limits those of an ASGI worker",
            ),
            (None, None) => {}
        }
    }

    /// gunicorn's `timeout` limits how long a worker is silent. A sync worker is silent while it processes a request; the other
    /// classes report that they are alive however long their requests take. A sync worker with several threads is a gthread one.
    fn finish_timeout(&mut self) {
        let class = self.take_kept(Subject::WorkerClass);
        let threads = self.take_kept(Subject::Threads).map(|threads| threads.value);
        let Some(timeout) = self.take_kept(Subject::Timeout).filter(|timeout| timeout.value != "0") else { return };
        let is_sync = class.is_none_or(|class| class.value == "sync") && threads.is_none_or(|count| count == "1");
        let seconds = timeout.value.as_str();
        if is_sync {
            return self.add_for(&timeout, "harakiri", seconds);
        }
        let message = format!(
            "with these workers gunicorn's timeout is the silence of a worker, not the time of a request; `harakiri = \
            {seconds}` limits requests, and `loop-stall` reports a blocked event loop"
        );
        self.note_for(&timeout, &message);
    }

    /// As in gunicorn, dirty apps without workers start nothing, and neither do workers without apps.
    fn finish_dirty_apps(&mut self) {
        let apps = self.take_all(Subject::DirtyApps);
        let workers = self.take_kept(Subject::DirtyWorkers).filter(|workers| workers.value != "0");
        match (workers, apps.first()) {
            (Some(workers), Some(_)) => {
                self.add_for(&workers, "mules", &workers.value);
                apps.iter().for_each(|app| self.add_for(app, "mule-app", &app.value));
            }
            (Some(alone), None) => self.note_for(&alone, "nothing to do: there are no dirty apps for these workers"),
            (None, Some(alone)) => self.note_for(alone, "nothing to do: there are no dirty workers for these apps"),
            (None, None) => {}
        }
    }

    fn finish_logs(&mut self) {
        let error_log = self.take_kept(Subject::ErrorLog);
        if let Some(log) = error_log.as_ref().filter(|log| log.value == STANDARD_OUTPUT) {
            self.add_for(log, "logger", "fd:1");
        }
        let error_log = error_log.filter(|log| !values::is_terminal(&log.value));
        self.finish_access_log(error_log.is_some());
        let captures_output = self.take_kept(Subject::CaptureOutput).is_some_and(|captures| captures.value != "false");
        match (self.take_kept(Subject::Daemon), error_log) {
            (Some(daemon), log) => {
                self.add_for(&daemon, "daemonize", log.as_ref().map_or("/dev/null", |log| &log.value));
            }
            (None, Some(log)) => {
                self.add_for(&log, "logto", &log.value);
                self.open_log_files();
                if !captures_output {
                    self.add_for(&log, "log-output", "false");
                }
            }
            (None, None) => {}
        }
    }

    /// `-` is standard output, whatever the file of the other lines is. gunicorn and hypercorn do not log requests without a file
    /// for them; here they do only if the other lines are at a terminal or in the service's log.
    fn finish_access_log(&mut self, has_error_log: bool) {
        let is_daemon = self.has(Subject::Daemon);
        let log = self.take_kept(Subject::AccessLog);
        match log.as_ref().map(|log| log.value.as_str()) {
            Some("-" | STANDARD_OUTPUT) if !is_daemon => log.iter().for_each(|log| self.add_for(log, "req-logger", "fd:1")),
            Some("/dev/stderr") if has_error_log && !is_daemon => {
                log.iter().for_each(|log| self.add_for(log, "req-logger", "fd:2"));
            }
            Some(file) if !values::is_terminal(file) => {
                log.iter().for_each(|log| self.add_for(log, "req-logger", &format!("file:{}", log.value)));
                self.open_log_files();
            }
            Some(_) => {}
            None if self.made.iter().any(|made| made.key == "disable-logging") => {}
            None if self.quiet || has_error_log => self.add("disable-logging", "true"),
            // uvicorn and granian write them to standard output.
            None if self.requests_on_stdout && !self.own.has_log => self.add("req-logger", "fd:1"),
            None => {}
        }
    }

    fn finish_statsd(&mut self) -> Result<(), Refusal> {
        let prefix = self.take_kept(Subject::StatsdPrefix).filter(|prefix| !prefix.value.is_empty());
        match (self.take_kept(Subject::StatsdHost), prefix) {
            (Some(host), prefix) => {
                let prefix = prefix.map(|prefix| format!(",{}", prefix.value)).unwrap_or_default();
                self.add_for(&host, "stats-push", &format!("statsd:{}{prefix}", host.value));
            }
            // gunicorn ignores it, too.
            (None, Some(prefix)) if self.server() != Some(Server::Gunicorn) => {
                return Err(Refusal {
                    message: format!("`--statsd-prefix {}` lacks a `--statsd-host`", prefix.value),
                    advice: "write `--statsd-host HOST:PORT` too".to_owned(),
                });
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// granian's routes and directories correspond to each other by their order.
    fn finish_static_files(&mut self) -> Result<(), Refusal> {
        let (routes, directories) = (self.take_all(Subject::StaticRoute), self.take_all(Subject::StaticDirectory));
        let alone = match (routes.get(directories.len()), directories.get(routes.len())) {
            (Some(route), _) => Some(format!("`--static-path-route {}` lacks its own `--static-path-mount`", route.value)),
            (None, Some(directory)) if directories.len() > 1 => {
                Some(format!("`--static-path-mount {}` lacks its own `--static-path-route`", directory.value))
            }
            _ => None,
        };
        if let Some(message) = alone {
            return Err(Refusal { message, advice: "write `--static-map /ROUTE=DIRECTORY` for each".to_owned() });
        }
        let routes = routes.iter().map(|route| route.value.as_str()).chain(["/static"]);
        for (directory, route) in directories.iter().zip(routes) {
            self.add_for(directory, "static-map", &format!("{route}={}", directory.value));
        }
        Ok(())
    }
}

/// Returns the option and its value for an address of `--bind`.
fn bound(address: &str, port: &str) -> Result<(&'static str, String), Refusal> {
    values::address(address, port).map_err(|advice| Refusal { message: format!("`--bind {address}` is not an address"), advice })
}

/// The servers of a setting: "gunicorn and hypercorn".
pub fn server_list(row: &ServerSetting) -> String {
    let names: Vec<&str> = row.servers.iter().map(|server| server.command()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
