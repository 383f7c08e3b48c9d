//! Lints: diagnostics of `check` beyond those of startup, about probable mistakes in values, and about combinations of options
//! that are useless or harmful.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::pair::Pair;
use bolide_configuration::trust::Writer;
use bolide_contract::settings::logging::LogPlace;
use bolide_contract::settings::{Address, Interface, Settings};
use bolide_options::catalog::catalog;
use bolide_options::reader::Configuration;
use bolide_options::resolve::ciphers;
use bolide_options::row::{OptionRow, Setting, Status, Theme, Value};

use super::{log_patterns, places, rights, service_units};

/// Request headers with a few cookies reach this size.
const COMMON_HEAD_BYTES: i64 = 8192;
/// What shutdown takes beside the times that are configured: interpreters exit after the last request.
const STOP_MARGIN_SECONDS: u64 = 10;
/// More workers for each CPU than this compete for it.
const MAX_PROCESSES_PER_CPU: u32 = 8;

/// The configuration that the lints inspect, and the diagnostics that they report.
struct LintContext<'a> {
    read: &'a Configuration,
    host: &'a HostInfo,
    diagnostics: Vec<Diagnostic>,
}

/// Returns the diagnostics of all lints.
pub fn all(read: &Configuration, settings: Option<&Settings>, host: &HostInfo) -> Vec<Diagnostic> {
    let mut context = LintContext { read, host, diagnostics: Vec::new() };
    context.odd_values();
    context.overridden();
    context.combinations();
    context.missing_files(settings);
    context.diagnostics.extend(places::unread_sections(read));
    context.diagnostics.extend(log_patterns::of_uwsgi(&read.effects));
    context.identities();
    context.rights();
    if let Some(settings) = settings {
        context.writers(settings);
        context.sockets(settings);
        let ports = rights::of_ports(settings, |origin| context.located(origin));
        context.diagnostics.extend(ports);
        context.processes(settings);
        context.asynchronous(settings);
        context.certificates(settings);
        context.logs(settings);
        context.shutdown(settings);
    }
    context.diagnostics
}

impl LintContext<'_> {
    /// Returns the last effect of an option.
    fn last(&self, name: &str) -> Option<&Pair> {
        self.read.effects.iter().rev().find(|pair| catalog().get(&pair.key).is_some_and(|row| row.name() == name))
    }

    /// Returns the last number that an option was given.
    fn number(&self, name: &str) -> Option<(i64, &Pair)> {
        self.last(name)
            .and_then(|pair| pair.value.as_deref().map(|text| (bolide_configuration::values::number(text).value, pair)))
    }

    fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|pair| bolide_configuration::values::switch(pair.value.as_deref()).on)
    }

    /// Returns whether the file contains something that uWSGI does not understand, so that it is meant for Bolide.
    fn is_ours(&self) -> bool {
        self.read.effects.iter().any(|pair| {
            catalog().get(&pair.key).is_some_and(|row| {
                let is_auto = pair.value.as_deref() == Some("auto") && matches!(row.value, Value::NumberOrAuto { .. });
                row.home == "bolide" || is_auto
            })
        })
    }

    /// Checks the certificates that are served, and their names.
    fn certificates(&mut self, settings: &Settings) {
        let shown = settings.listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificates);
        for certificate in shown {
            let Some(files) = &certificate.files else { continue };
            let asked_for = match certificate.names.as_slice() {
                [] => String::new(),
                names => format!(", sent to clients that ask for {}", names.join(", ")),
            };
            let about = bolide_configuration::certificates::describe(certificate);
            let location = self.located(&certificate.origin);
            self.diagnostics.push(
                Diagnostic::note(Some(&location), format!("the certificate {} is {about}{asked_for}", files.chain.display()))
                    .local(),
            );
        }
        self.keys_of_others(settings);
        self.port_to_go_to(settings);
        self.ciphers();
    }

    /// Compares how long shutdown may take with what the service manager allows, and reports a `drain-quiet` without effect.
    fn shutdown(&mut self, settings: &Settings) {
        let lifecycle = &settings.lifecycle;
        if let Some(pair) = self.last("drain-quiet").filter(|_| lifecycle.drain_delay_ms.is_none()) {
            let finding = Diagnostic::warning(Some(&pair.location), "`drain-quiet` has no effect without `drain-delay`");
            self.diagnostics.push(finding.advise("set `drain-delay` to the longest time, in seconds"));
        } else if let (Some(pair), Some(quiet_ms), Some(delay_ms)) =
            (self.last("drain-quiet"), lifecycle.drain_quiet_ms, lifecycle.drain_delay_ms)
            && quiet_ms >= delay_ms
        {
            let message = "`drain-quiet` is not shorter than `drain-delay`: the drain never begins before its end";
            self.diagnostics.push(Diagnostic::warning(Some(&pair.location), message));
        }
        let files: BTreeSet<_> = self.read.files.iter().map(|file| self.host.directory.join(file)).collect();
        let (delay_s, mercy_s) = (lifecycle.drain_delay_ms.unwrap_or(0).div_ceil(1000), lifecycle.reload_mercy_ms.div_ceil(1000));
        for unit in service_units::of(&files, self.host) {
            let Some(allowed_s) = unit.stop_ms.map(|stop_ms| stop_ms / 1000) else { continue };
            if unit.is_notified || allowed_s > delay_s + mercy_s {
                continue;
            }
            let times = if delay_s == 0 {
                format!("`reload-mercy` ({mercy_s} s)")
            } else {
                format!("`drain-delay` and `reload-mercy` ({delay_s} + {mercy_s} s)")
            };
            let place = self.last("drain-delay").or(self.last("reload-mercy")).map(|pair| pair.location.clone());
            let message = format!("{} kills the instance after {allowed_s} s, before the end of {times}", unit.name);
            let advice = format!(
                "set `TimeoutStopSec={}` in the unit, or `Type=notify`, with which Bolide tells systemd how long it takes",
                delay_s + mercy_s + STOP_MARGIN_SECONDS
            );
            self.diagnostics.push(Diagnostic::warning(place.as_ref(), message).advise(advice).local());
        }
    }

    /// Reports destinations of lines that may have no reader. A pipe is not opened here: to a reader that waits for a writer,
    /// this would look like its end.
    fn logs(&mut self, settings: &Settings) {
        let path_of = |path: &std::path::PathBuf| self.host.directory.join(path);
        let pipe = |path: &std::path::PathBuf| {
            let is_pipe = path_of(path).metadata().is_ok_and(|found| found.file_type().is_fifo());
            is_pipe.then(|| format!("{} is a named pipe, which may have no reader", path.display()))
        };
        let absent = settings.logging.targets.iter().filter_map(|target| match &target.place {
            LogPlace::Unix(path) => {
                let is_there = path_of(path).metadata().is_ok_and(|found| found.file_type().is_socket());
                (!is_there).then(|| format!("there is no socket {} now", path.display()))
            }
            LogPlace::File(path) => pipe(path),
            _ => None,
        });
        let absent: Vec<String> = absent.chain(settings.logging.file.as_ref().and_then(pipe)).collect();
        let location =
            ["logger", "req-logger", "logto"].iter().find_map(|name| self.last(name)).map(|pair| pair.location.clone());
        for message in absent {
            let advice = "startup does not wait for it: up to 1 MiB of lines is kept in each process until it is there";
            self.diagnostics.push(Diagnostic::note(location.as_ref(), message).advise(advice).local());
        }
    }

    /// Reports keys that every user of the machine may read, although only the user that starts the instance needs to.
    fn keys_of_others(&mut self, settings: &Settings) {
        /// The read permission of others (inode(7)).
        const OTHERS_READ: u32 = 0o004;
        let shown = settings.listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificates);
        for (files, origin) in shown.filter_map(|one| Some((one.files.as_ref()?, &one.origin))) {
            if !std::fs::metadata(&files.key).is_ok_and(|found| found.mode() & OTHERS_READ != 0) {
                continue;
            }
            let location = self.located(origin);
            let message = format!("every user of this machine may read the key {}", files.key.display());
            self.diagnostics
                .push(Diagnostic::warning(Some(&location), message).advise("remove their access: `chmod 600`").local());
        }
    }

    /// `http-to-https` without a port redirects to 443, where perhaps no socket listens.
    fn port_to_go_to(&mut self, settings: &Settings) {
        let is_there = |wanted: u16| {
            let mut listeners = settings.listeners.iter().filter(|listener| listener.tls.is_some());
            listeners.any(|listener| matches!(listener.address, Address::Tcp { port, .. } if port == wanted))
        };
        for listener in &settings.listeners {
            let Some(port) = listener.redirects_to_https.filter(|&port| !is_there(port)) else { continue };
            let location = self.located(&listener.origin);
            let message = format!("clients are redirected to port {port}, but no address here speaks HTTPS on it");
            self.diagnostics.push(
                Diagnostic::note(Some(&location), message)
                    .advise("write `http-to-https = ADDRESS,PORT` unless another port leads here"),
            );
        }
    }

    /// Reports what remains of each list of ciphers, which OpenSSL would interpret differently.
    fn ciphers(&mut self) {
        let is_address = |pair: &&Pair| {
            catalog().get(&pair.key).is_some_and(|row| matches!(row.name(), "https" | "https-socket" | "ssl-socket"))
        };
        for pair in self.read.effects.iter().filter(is_address) {
            let text = pair.value.as_deref().and_then(|value| value.split(',').nth(3)).filter(|text| !text.is_empty());
            let Some((text, read)) = text.and_then(|text| ciphers::read(text).map(|read| (text, read))) else { continue };
            let count = read.openssl_names.len();
            let message = format!("of `{text}` {count} are available with TLS 1.2: {}", read.openssl_names.join(", "));
            self.diagnostics.push(Diagnostic::note(Some(&pair.location), message));
        }
    }

    /// Returns the location from which an origin was formatted, with its line.
    fn located(&self, origin: &str) -> Location {
        let found = self.read.effects.iter().find(|pair| pair.location.to_string() == origin);
        found.map_or_else(|| Location::file(origin, 0), |pair| pair.location.clone())
    }

    /// Reports quotes and comments that are part of the value.
    fn odd_values(&mut self) {
        let mut found = Vec::new();
        for pair in &self.read.effects {
            let (Some(text), Some(row)) = (&pair.value, catalog().get(&pair.key)) else { continue };
            if !matches!(row.status, Status::Supported(_)) || !matches!(row.value, Value::Text | Value::Path | Value::List) {
                continue;
            }
            // Only the value of `KEY=VALUE` may have them.
            let bare = text.split_once('=').filter(|_| row.name() == "env").map_or(text.as_str(), |(_, value)| value);
            let quoted = |quote: char| {
                [text.as_str(), bare].iter().any(|text| text.len() > 1 && text.starts_with(quote) && text.ends_with(quote))
            };
            if quoted('"') || quoted('\'') {
                found.push(
                    Diagnostic::warning(Some(&pair.location), format!("`{text}`: the quotes are part of the value"))
                        .advise("leave them out"),
                );
            } else if text.contains(" #") || text.contains(" ;") {
                found.push(
                    Diagnostic::warning(Some(&pair.location), format!("`{text}`: the comment is part of the value"))
                        .advise("put the comment on a line of its own"),
                );
            }
        }
        self.diagnostics.extend(found);
    }

    /// Reports options with a single value that were set several times.
    fn overridden(&mut self) {
        let mut last: HashMap<&str, &Pair> = HashMap::new();
        for pair in &self.read.effects {
            let Some(row) = catalog().get(&pair.key) else { continue };
            if row.is_several || row.value == Value::Special || !matches!(row.status, Status::Supported(_)) {
                continue;
            }
            if let Some(earlier) = last.insert(row.name(), pair)
                && earlier.value != pair.value
            {
                self.diagnostics.push(Diagnostic::note(
                    Some(&earlier.location),
                    format!("`{}` has no effect: it is set again at {}", earlier.key, pair.location),
                ));
            }
        }
    }

    fn combinations(&mut self) {
        let mut found = Vec::new();
        if let Some(pair) = self.last("harakiri").filter(|_| !self.is_on("master") && !self.is_ours()) {
            let diagnostic =
                Diagnostic::note(Some(&pair.location), "`harakiri` works here; in uWSGI it does nothing without `master = true`");
            found.push(diagnostic.advise("set `master = true` too, if uWSGI still reads this file"));
        }
        let tuning = ["compress-types", "compress-min-size", "compress-level"].into_iter().find_map(|name| self.last(name));
        if let Some(pair) = tuning.filter(|_| self.last("compress").is_none()) {
            let diagnostic =
                Diagnostic::warning(Some(&pair.location), format!("`{}` has no effect: nothing is compressed", pair.key));
            found.push(diagnostic.advise("write `compress = gzip,br,zstd`, or as many of them as are wanted"));
        }
        if let Some((bytes, pair)) = self.number("buffer-size").filter(|&(bytes, _)| bytes < COMMON_HEAD_BYTES) {
            let diagnostic = Diagnostic::warning(
                Some(&pair.location),
                format!("`buffer-size = {bytes}` is below what requests with a few cookies need"),
            );
            found.push(diagnostic.advise("leave it out: the default is 65536"));
        }
        // With a mount, `callable` may be meant for the mount.
        if let (Some(callable), Some(named), None) =
            (self.last("callable"), self.last("asgi").or(self.last("module")), self.last("mount"))
            && named.value.as_deref().is_some_and(|text| text.contains(':'))
        {
            found.push(Diagnostic::warning(
                Some(&callable.location),
                format!("`callable` has no effect: `{}` at {} names its own", named.key, named.location),
            ));
        }
        self.diagnostics.extend(found);
    }

    fn missing_files(&mut self, settings: Option<&Settings>) {
        let chdir = self
            .last("chdir")
            .and_then(|pair| pair.value.as_deref())
            .map_or_else(|| self.host.directory.clone(), |path| self.host.directory.join(path));
        let mut found = places::missing_directories(self.read, settings, &self.host.directory, &chdir);
        for pair in &self.read.effects {
            let Some(row) = catalog().get(&pair.key) else { continue };
            let (name, text) = (row.name(), pair.value.as_deref().unwrap_or_default());
            if matches!(row.status, Status::Supported(Setting::Watch(..))) && !text.is_empty() && !chdir.join(text).exists() {
                let message = format!("`{text}`: there is no file {} yet", chdir.join(text).display());
                found.push(Diagnostic::note(Some(&pair.location), message).advise("it is waited for").local());
                continue;
            }
            let (path, what) = match name {
                "wsgi-file" => (chdir.join(text), "file"),
                "asgi" => match bolide_options::resolve::asgi_file(text) {
                    Some(file) => (chdir.join(file), "file"),
                    None => continue,
                },
                "virtualenv" => (chdir.join(text), "directory"),
                "pythonpath" if text.contains(':') && !chdir.join(text).exists() => {
                    let diagnostic =
                        Diagnostic::warning(Some(&pair.location), format!("`{text}` is one directory with a colon in its name"));
                    found.push(diagnostic.advise(format!("write a line `{} = …` for each directory", pair.key)));
                    continue;
                }
                _ => continue,
            };
            if !text.is_empty() && !path.exists() {
                let message = format!("`{text}`: there is no {what} {}", path.display());
                found.push(Diagnostic::warning(Some(&pair.location), message).local());
            }
        }
        self.diagnostics.extend(found);
    }

    /// Reports users and groups that this machine does not have.
    fn identities(&mut self) {
        type Known = fn(&str) -> bool;
        let user: Known = |name| nix::unistd::User::from_name(name).is_ok_and(|found| found.is_some());
        let group: Known = |name| nix::unistd::Group::from_name(name).is_ok_and(|found| found.is_some());
        let options = [
            ("uid", "user", user),
            ("gid", "group", group),
            ("immediate-uid", "user", user),
            ("immediate-gid", "group", group),
            ("add-gid", "group", group),
        ];
        let mut names = Vec::new();
        for (option, what, is_known) in options {
            if let Some(pair) = self.last(option) {
                names.push((pair, pair.value.as_deref().unwrap_or_default(), what, is_known));
            }
        }
        if let Some(pair) = self.last("chown-socket") {
            let (owner, owners) = pair
                .value
                .as_deref()
                .unwrap_or_default()
                .split_once(':')
                .unwrap_or((pair.value.as_deref().unwrap_or_default(), ""));
            names.extend([(pair, owner, "user", user), (pair, owners, "group", group)]);
        }
        let is_strange = |text: &str, is_known: Known| !text.is_empty() && text.parse::<u32>().is_err() && !is_known(text);
        let found =
            names.into_iter().filter(|(_, text, _, is_known)| is_strange(text, *is_known)).map(|(pair, text, what, _)| {
                let value = pair.value.as_deref().unwrap_or_default();
                let message = format!("`{} = {value}`: there is no {what} `{text}` here", pair.key);
                let advice = "startup fails with it; create it, or write a number";
                Diagnostic::warning(Some(&pair.location), message).advise(advice).local()
            });
        let found: Vec<Diagnostic> = found.collect();
        self.diagnostics.extend(found);
    }

    /// Reports users and groups that only root can change to.
    fn rights(&mut self) {
        let users = ["uid", "immediate-uid"].into_iter().filter_map(|name| rights::of_user(self.last(name)?));
        let groups = ["gid", "immediate-gid"].into_iter().filter_map(|name| rights::of_group(self.last(name)?));
        let found: Vec<Diagnostic> = users.chain(groups).collect();
        self.diagnostics.extend(found);
    }

    /// Reports files that root reads and that the user of `uid` may write.
    fn writers(&mut self, settings: &Settings) {
        let used = self.host.trust.take_used();
        // A check by the user of `uid` itself reports nothing, since only a startup as root is affected.
        let own = nix::unistd::geteuid();
        let writer = Writer::of(&settings.identity).filter(|writer| own.is_root() || own.as_raw() != writer.user());
        let (Some(writer), Some(pair)) = (writer, self.last("uid")) else { return };
        if settings.confinement.user.is_some() {
            return;
        }
        let python = self.host.python.as_deref();
        let found = writer
            .warnings(&used, python, &self.host.imports, settings.reloading.program.as_deref())
            .into_iter()
            .map(|(message, advice)| Diagnostic::warning(Some(&pair.location), message).advise(advice).local());
        let found: Vec<Diagnostic> = found.collect();
        self.diagnostics.extend(found);
    }

    fn sockets(&mut self, settings: &Settings) {
        let mut found = Vec::new();
        for (index, listener) in settings.listeners.iter().enumerate() {
            if let Some(earlier) = settings.listeners[..index].iter().find(|other| other.address == listener.address) {
                found.push(Diagnostic::warning(
                    None,
                    format!("{}: this address is already served, see {}", listener.origin, earlier.origin),
                ));
            }
        }
        if !settings.listeners.iter().any(|listener| matches!(listener.address, Address::Unix(_))) {
            for name in ["chmod-socket", "chown-socket"] {
                if let Some(pair) = self.last(name) {
                    found.push(Diagnostic::note(
                        Some(&pair.location),
                        format!("`{}` has no effect: no socket here is a file", pair.key),
                    ));
                }
            }
        }
        self.diagnostics.extend(found);
        self.socket_of_one_user(settings);
    }

    /// Reports a socket that a reverse proxy of another user can't connect to, which answers 502 then: connect(2) to a socket
    /// file needs the right to write to it, and the usual umask leaves that to its owner.
    fn socket_of_one_user(&mut self, settings: &Settings) {
        if ["umask", "uid"].iter().any(|name| self.last(name).is_some()) {
            return;
        }
        let file = settings.listeners.iter().find_map(|listener| match (&listener.address, listener.mode, &listener.owner) {
            (Address::Unix(path), None, None) => Some((path, &listener.origin)),
            _ => None,
        });
        if let Some((path, origin)) = file {
            let location = self.located(origin);
            let message = format!("only the user that starts Bolide can connect to the socket {}", path.display());
            let advice = "for a reverse proxy of another user, set `chown-socket = USER:GROUP` with its group, and \
                `chmod-socket = 660`";
            self.diagnostics.push(Diagnostic::note(Some(&location), message).advise(advice));
        }
    }

    /// Reports options of asynchronous applications if there is no such application.
    fn asynchronous(&mut self, settings: &Settings) {
        if settings.applications.iter().any(|application| application.interface != Interface::Wsgi) {
            return;
        }
        for pair in &self.read.effects {
            let is_for_asgi = |row: &OptionRow| {
                row.theme == Theme::Asynchronous && row.name() != "asgi" && matches!(row.status, Status::Supported(_))
            };
            if catalog().get(&pair.key).is_some_and(is_for_asgi) {
                let message = format!("`{}` has no effect: `interface = wsgi` says that no application is ASGI", pair.key);
                self.diagnostics.push(Diagnostic::note(Some(&pair.location), message));
            }
        }
    }

    fn processes(&mut self, settings: &Settings) {
        let (processes, cpus) = (settings.workers.processes, settings.workers.cpus);
        if let Some(pair) = self.last("processes").filter(|_| processes > cpus.saturating_mul(MAX_PROCESSES_PER_CPU)) {
            let diagnostic = Diagnostic::warning(
                Some(&pair.location),
                format!("`{} = {processes}` is far more than the {cpus} CPUs here", pair.key),
            );
            self.diagnostics
                .push(diagnostic.advise("`processes = auto` follows the machine; `threads` help with requests that wait"));
        }
    }
}
