//! What becomes of flags: each is made into options of ours, kept until all are known, or refused with what to write. It opens nothing.

use super::row::{Flag, Meaning};
use super::translation::{MadePair, Translation};
use super::values;
use crate::catalogue::row::Argument;

/// Where an application is served if nothing says otherwise.
const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: &str = "8000";
/// Worker classes of gunicorn that tell it that they live while requests wait.
const WAITING_CLASSES: [&str; 4] = ["uvicorn", "asgi", "gthread", "gevent"];

/// What could not be taken over: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub advice: String,
}

impl Translation {
    /// Takes one flag with its value, which is empty for one that has none.
    ///
    /// # Errors
    /// What has no meaning here, with what to write instead.
    pub fn take(&mut self, flag: &Flag, value: &str) -> Result<(), Refusal> {
        let written = written(flag, value);
        let value = if value.is_empty() && flag.argument == Argument::None { "true" } else { value };
        let whose = whose(flag);
        match flag.meaning {
            Meaning::Same => self.add(flag.name, value),
            Meaning::Mostly(doubt) => match doubt(value) {
                Some((message, advice)) => return Err(Refusal { message, advice }),
                None => self.add(flag.name, value),
            },
            Meaning::Worded(words, doubt) => match (words.iter().find(|(word, _)| *word == value), doubt(value)) {
                (Some((_, pairs)), _) => pairs.iter().for_each(|(name, value)| self.add(name, value)),
                (None, Some((message, advice))) => return Err(Refusal { message, advice }),
                (None, None) => self.add(flag.name, value),
            },
            Meaning::Option(name) => self.add(name, value),
            Meaning::Fixed(pairs) => pairs.iter().for_each(|(name, value)| self.add(name, value)),
            Meaning::Made(take, _) => {
                return take(self, value)
                    .map_err(|advice| Refusal { message: format!("`{written}` of {whose} has no meaning here"), advice });
            }
            Meaning::Nothing(_) => {}
            Meaning::Refused(advice) => {
                return Err(Refusal {
                    message: format!("`{written}` is an option of {whose}, and none of Bolide"),
                    advice: advice.to_owned(),
                });
            }
            Meaning::Taken(doubt, advice) => {
                let (message, advice) = doubt(value).unwrap_or_else(|| {
                    (format!("`--{}` of {whose} is not the `{}` of uWSGI and Bolide", flag.name, flag.name), advice.to_owned())
                });
                return Err(Refusal { message, advice });
            }
        }
        Ok(())
    }

    /// The options that needed all flags to be known, and what their author should know. `port` is the one to serve at where there is a
    /// host and no port ([`Translation::needs_port`]).
    ///
    /// # Errors
    /// Flags that do not go together.
    pub fn finish(mut self, port: Option<u16>) -> Result<(Vec<MadePair>, Vec<String>), Refusal> {
        self.finish_addresses(port)?;
        self.finish_timeout();
        if self.quiet && !self.has_access_log {
            self.add("disable-logging", "true");
        }
        match (self.daemon, self.error_log.take()) {
            (true, file) => self.add("daemonize", file.as_deref().unwrap_or("/dev/null")),
            (false, Some(file)) => self.add("logto", &file),
            (false, None) => {}
        }
        match std::mem::take(&mut self.statsd) {
            (Some(host), prefix) => {
                let prefix = prefix.filter(|prefix| !prefix.is_empty()).map(|prefix| format!(",{prefix}")).unwrap_or_default();
                self.add("stats-push", &format!("statsd:{host}{prefix}"));
            }
            (None, Some(prefix)) if !prefix.is_empty() => {
                let message = format!("`--statsd-prefix {prefix}` has no `--statsd-host` beside it");
                return Err(Refusal { message, advice: "write `--statsd-host HOST:PORT` too".to_owned() });
            }
            (None, _) => {}
        }
        self.finish_static_files()?;
        Ok((self.made, self.notes))
    }

    /// `--host` and `--port` are one address; a host alone in `--bind` takes the port that `--port` names, as daphne has it.
    fn finish_addresses(&mut self, usual_port: Option<u16>) -> Result<(), Refusal> {
        let binds = std::mem::take(&mut self.binds);
        let (host, port) = (self.host.take(), self.port.take());
        let speaks_uwsgi = self.speaks_uwsgi(binds.first())?;
        let takes_port = host.is_none() && port.is_some() && binds.iter().any(|bind| values::is_host(bind));
        for bind in &binds {
            let port = port.as_deref().unwrap_or(DEFAULT_PORT);
            let (name, value) = values::address(bind, port)
                .map_err(|advice| Refusal { message: format!("`--bind {bind}` is no address"), advice })?;
            self.add(if speaks_uwsgi { "uwsgi-socket" } else { name }, &value);
        }
        if (host.is_some() || port.is_some()) && !takes_port {
            let host = host.as_deref().unwrap_or(DEFAULT_HOST);
            let usual_port = usual_port.map_or_else(|| DEFAULT_PORT.to_owned(), |port| port.to_string());
            let address = values::host_and_port(host, &port.unwrap_or(usual_port));
            self.add("http", &address);
        }
        Ok(())
    }

    /// Whether what `--bind` names speaks the uwsgi protocol, as gunicorn's `--protocol` has it.
    fn speaks_uwsgi(&mut self, bind: Option<&String>) -> Result<bool, Refusal> {
        let (Some(protocol), Some(bind)) = (self.protocol.take(), bind) else { return Ok(false) };
        match protocol.as_str() {
            "uwsgi" => Ok(true),
            "http" | "http11" => Ok(false),
            _ => Err(Refusal {
                message: format!("`--protocol {protocol}` is for the addresses of `--socket`, and `--bind {bind}` is HTTP"),
                advice: format!("write `--socket ADDRESS --protocol {protocol}`"),
            }),
        }
    }

    /// gunicorn's `--timeout` is about a worker that is silent. A sync worker is so while it is busy with a request; the others go on
    /// to tell that they live, however long their requests take.
    fn finish_timeout(&mut self) {
        let Some(timeout) = self.timeout.take() else { return };
        let waits = self.worker_class.as_ref().is_some_and(|class| WAITING_CLASSES.iter().any(|waiting| class.contains(waiting)));
        match waits {
            true => self.note(format!(
                "`--timeout {timeout}` limits no request of such workers in gunicorn, so it limits none here: `--harakiri {timeout}` does, and `loop-stall` shows a loop that is blocked"
            )),
            false => self.add("harakiri", &timeout),
        }
    }

    /// granian's routes and folders belong together in their order.
    fn finish_static_files(&mut self) -> Result<(), Refusal> {
        let (routes, folders) = (std::mem::take(&mut self.static_routes), std::mem::take(&mut self.static_folders));
        if folders.len() < routes.len() {
            let message = format!("`--static-path-route {}` has no `--static-path-mount` of its own", routes[folders.len()]);
            return Err(Refusal { message, advice: "write `--static-map /ROUTE=FOLDER` for each".to_owned() });
        }
        if folders.len() > 1 && folders.len() != routes.len() {
            let message = format!("`--static-path-mount {}` has no `--static-path-route` of its own", folders[routes.len()]);
            return Err(Refusal { message, advice: "write `--static-map /ROUTE=FOLDER` for each".to_owned() });
        }
        let routes = routes.iter().map(String::as_str).chain(["/static"]);
        let maps: Vec<String> = folders.iter().zip(routes).map(|(folder, route)| format!("{route}={folder}")).collect();
        maps.iter().for_each(|map| self.add("static-map", map));
        Ok(())
    }
}

/// The flag as it was typed.
fn written(flag: &Flag, value: &str) -> String {
    match value {
        "" => format!("--{}", flag.name),
        value => format!("--{} {value}", flag.name),
    }
}

/// The servers of a flag: "gunicorn and hypercorn".
pub(super) fn whose(flag: &Flag) -> String {
    let names: Vec<&str> = flag.servers.iter().map(|server| server.command()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
