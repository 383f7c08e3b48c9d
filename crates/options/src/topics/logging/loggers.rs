//! `logger`, `req-logger` and the rules that send lines to them: parsed one by one, and combined at the end, when all names are
//! known. It opens nothing. Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::SYSLOG_SOCKET;
use bolide_configuration::pair::Pair;
use bolide_contract::logging::{
    LineEncoding, LineFrame, LinePattern, LogFlow, LogFlows, LogPlace, LogTarget, Logging, MAX_LOGS, PackedForm,
};

use crate::context::normalized;
use crate::topics::logging::log_packing::{self, Encoder, Step};

/// Priority of syslog lines, as uWSGI sends them: severity information, facility `daemon`.
const INFORMATION: u8 = 6;
const DAEMON: u8 = 3;
/// `<29>`: uWSGI's remote syslog sends every line as a notice of `daemon`.
const REMOTE_PRIORITY: u8 = 29;
const REMOTE_PORT: u16 = 514;
/// The socket of the journal, which uses the format of syslog.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/dev-log";

/// Facilities of syslog by name (RFC 3164 section 4.1.1).
const FACILITIES: &[(&str, u8)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("security", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Loggers that are not supported, with the alternative.
const ELSEWHERE: &[(&str, &str)] = &[
    ("redislog", "send lines to a log shipper (`logger = socket:HOST:PORT`, `logger = syslog`) that writes to Redis"),
    ("mongodblog", "send lines to a log shipper (`logger = socket:HOST:PORT`, `logger = syslog`) that writes to MongoDB"),
    ("zeromq", "use `logger = socket:HOST:PORT`, or a log shipper that reads a file"),
    ("graylog2", "use `log-json = true` and a log shipper that reads a file, or `logger = socket:HOST:PORT`"),
    ("crypto", "let the log shipper encrypt what it sends"),
    ("rrdtool", "it draws numbers, which are available as statistics: `stats`"),
];

/// The loggers as configured.
#[derive(Debug, Default)]
pub struct Loggers {
    pub messages: LoggerDraft,
    pub requests: LoggerDraft,
}

/// The loggers of one kind of lines.
#[derive(Debug, Default)]
pub struct LoggerDraft {
    loggers: Vec<LoggerRequest>,
    /// `logto` with an address.
    log: Option<LoggerRequest>,
    routes: Vec<(String, LinePattern, Location)>,
    encoders: Vec<(Option<String>, Step, Location)>,
    pub drains: Vec<LinePattern>,
    pub filters: Vec<LinePattern>,
}

/// A logger: its target, or `None` for the log itself.
#[derive(Debug)]
struct LoggerRequest {
    name: Option<String>,
    target: Option<LogTarget>,
    most_bytes: Option<u64>,
    backup: Option<PathBuf>,
    /// It is one of `logger`, and not that of `logto`.
    is_loggers: bool,
    location: Option<Location>,
}

/// A regular expression, compiled by the crate `log`. An invalid one disables its rule and not startup: its error is a warning.
pub fn expression(text: &str, pair: &Pair) -> Result<LinePattern, Diagnostic> {
    let warned = |(why, advice): (String, &str)| {
        let message = format!("`{} = {}` has no effect: `{text}` {why}", pair.key, pair.value.as_deref().unwrap_or_default());
        Diagnostic::warning(Some(&pair.location), message).advise(advice)
    };
    bolide_routes::for_lines(text).map(|(matches, except)| LinePattern { matches, except }).map_err(warned)
}

impl LoggerDraft {
    /// `[NAME ]KIND[:ARGUMENT]`
    ///
    /// Returns a warning if the lines take another way than the one that is asked for.
    pub fn add_logger(&mut self, text: &str, pair: &Pair, host_name: &str) -> Result<Option<Diagnostic>, Diagnostic> {
        let is_name = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let (name, rest) = match text.split_once(' ') {
            Some((name, rest)) if is_name(name) => (Some(name.to_owned()), rest),
            _ => (None, text),
        };
        let (kind, argument) = rest.split_once(':').unwrap_or((rest, ""));
        let mut asked = LoggerRequest {
            name,
            target: None,
            most_bytes: None,
            backup: None,
            is_loggers: true,
            location: Some(pair.location.clone()),
        };
        let mut warning = None;
        asked.target = match kind.trim() {
            "stdio" => None,
            "file" => Some(plain(LogPlace::File(asked.file(argument, pair)?))),
            "fd" => Some(plain(LogPlace::Descriptor(argument.trim().parse().map_err(|_| wrong(pair, "write fd:NUMBER"))?))),
            "pipe" if argument.is_empty() => return Err(wrong(pair, "write pipe:COMMAND")),
            "pipe" => Some(plain(LogPlace::Program(argument.to_owned()))),
            "socket" => Some(socket(argument, pair)?),
            "syslog" => Some(syslog(argument, SYSLOG_SOCKET, pair, &mut warning)),
            "systemd" => Some(syslog(argument, JOURNAL_SOCKET, pair, &mut warning)),
            "python" => {
                warning = Some(python(pair));
                None
            }
            "rsyslog" => Some(remote_syslog(argument, pair, host_name)?),
            other => return Err(elsewhere(other, pair)),
        };
        self.loggers.push(asked);
        Ok(warning)
    }

    /// Adds the file of `logto`, set at this place.
    pub fn add_file(&mut self, path: PathBuf, location: Option<Location>) {
        let target = Some(plain(LogPlace::File(path)));
        self.loggers.push(LoggerRequest { name: None, target, most_bytes: None, backup: None, is_loggers: false, location });
    }

    /// Sets or clears the address of `logto`.
    pub fn send_to(&mut self, address: Option<&String>, pair: &Pair) {
        self.log = address.map(|address| LoggerRequest {
            name: None,
            target: Some(plain(LogPlace::Udp(address.clone()))),
            most_bytes: None,
            backup: None,
            is_loggers: false,
            location: Some(pair.location.clone()),
        });
    }

    /// `NAME EXPRESSION`
    pub fn add_route(&mut self, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
        let (name, pattern) = text.split_once(' ').ok_or_else(|| wrong(pair, "write NAME and a regular expression"))?;
        self.routes.push((name.to_owned(), expression(pattern, pair)?, pair.location.clone()));
        Ok(())
    }

    /// `KIND[:NAME][ ARGUMENT]`
    pub fn add_encoder(&mut self, text: &str, pair: &Pair) -> Result<(), Diagnostic> {
        let (head, argument) = text.split_once(' ').unwrap_or((text, ""));
        let (kind, only) = head.split_once(':').map_or((head, None), |(kind, only)| (kind, Some(only.to_owned())));
        let argument = argument.to_owned();
        let step = match kind {
            "prefix" => Step::Line(LineEncoding::Prefix(argument)),
            "suffix" => Step::Line(LineEncoding::Suffix(argument)),
            "format" => Step::Line(LineEncoding::Format(argument)),
            "json" => Step::Line(LineEncoding::Json(argument)),
            "gzip" => Step::Pack(PackedForm::Gzip),
            "compress" => Step::Pack(PackedForm::Zlib),
            // Each line ends with a line end here anyway.
            "nl" => return Ok(()),
            _ => return Err(wrong(pair, "the encoders are prefix, suffix, nl, format, json, gzip and compress")),
        };
        self.encoders.push((only, step, pair.location.clone()));
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.loggers.is_empty()
            && self.routes.is_empty()
            && self.encoders.is_empty()
            && self.drains.is_empty()
            && self.filters.is_empty()
    }

    /// The only file, if it takes all lines: it is equivalent to the file of `logto`.
    fn only_file(&self) -> Option<&LoggerRequest> {
        let is_only = self.routes.is_empty() && self.encoders.is_empty() && self.drains.is_empty() && self.filters.is_empty();
        let [asked] = self.loggers.as_slice() else { return None };
        let is_file = matches!(asked.target, Some(LogTarget { place: LogPlace::File(_), .. })) && asked.name.is_none();
        Some(asked).filter(|_| is_only && is_file)
    }

    fn usual(&self, first: usize) -> Vec<usize> {
        let numbers = self.loggers.iter().scan(first, |next, asked| {
            *next += usize::from(asked.target.is_some());
            Some((asked, if asked.target.is_some() { *next - 1 } else { 0 }))
        });
        numbers.filter(|(asked, _)| asked.name.is_none()).map(|(_, number)| number).collect()
    }

    fn named(&self, first: usize) -> Vec<(&str, usize)> {
        let numbers = self.loggers.iter().scan(first, |next, asked| {
            *next += usize::from(asked.target.is_some());
            Some((asked, if asked.target.is_some() { *next - 1 } else { 0 }))
        });
        numbers.filter_map(|(asked, number)| Some((asked.name.as_deref()?, number))).collect()
    }

    /// Returns the flow of these lines, still without its encoders, and the encoders.
    fn flow(&self, first: usize, names: &[(&str, usize)]) -> Result<(LogFlow, Vec<Encoder>), Diagnostic> {
        let number = |name: &str, location: &Location| {
            names.iter().find(|(known, _)| *known == name).map(|(_, number)| *number).ok_or_else(|| {
                Diagnostic::error(Some(location), format!("no logger is called `{name}`"))
                    .advise(format!("write `logger = {name} KIND:…`"))
            })
        };
        let routes = self.routes.iter().map(|(name, pattern, location)| Ok((pattern.clone(), number(name, location)?)));
        let encoders = self.encoders.iter().map(|(only, step, location)| {
            let only = only.as_deref().map(|name| number(name, location)).transpose()?;
            Ok(Encoder { only, step: step.clone(), location: location.clone() })
        });
        let encoders = encoders.collect::<Result<_, Diagnostic>>()?;
        let flow = LogFlow {
            drains: self.drains.clone(),
            filters: self.filters.clone(),
            routes: routes.collect::<Result<_, Diagnostic>>()?,
            usual: self.usual(first),
            encoders: Vec::new(),
        };
        Ok((flow, encoders))
    }
}

impl Loggers {
    /// Numbers the logs, and replaces names by these numbers in the rules.
    pub fn complete(mut self, directory: &Path, logging: &mut Logging) -> Result<(), Diagnostic> {
        let log = self.messages.log.take();
        self.messages.loggers.extend(log);
        if let Some(asked) = self.messages.only_file().filter(|_| logging.takes_all_output) {
            if let Some(LogTarget { place: LogPlace::File(path), .. }) = &asked.target {
                logging.file = Some(normalized(&directory.join(path)));
                logging.files.is_loggers = asked.is_loggers;
            }
            logging.files.most_bytes = asked.most_bytes.or(logging.files.most_bytes);
            logging.files.backup =
                asked.backup.as_ref().map(|path| normalized(&directory.join(path))).or(logging.files.backup.take());
            self.messages.loggers.clear();
        }
        if self.messages.is_empty() && self.requests.is_empty() {
            return Ok(());
        }
        let all = || self.messages.loggers.iter().chain(&self.requests.loggers);
        let count = |draft: &LoggerDraft| draft.loggers.iter().filter(|asked| asked.target.is_some()).count();
        let first_of_requests = 1 + count(&self.messages);
        if let Some(asked) = all().nth(MAX_LOGS - 1) {
            let message = format!("there are more than {} loggers", MAX_LOGS - 1);
            return Err(Diagnostic::error(asked.location.as_ref(), message).advise("let several routes share one"));
        }
        let mut names = self.requests.named(first_of_requests);
        names.extend(self.messages.named(1));
        let (mut messages, mut encoders) = self.messages.flow(1, &names)?;
        let mut packings = vec![log_packing::encode(&mut messages, &encoders)?];
        let mut requests = None;
        if !self.requests.is_empty() {
            let (mut flow, own) = self.requests.flow(first_of_requests, &names)?;
            packings.push(log_packing::encode(&mut flow, &own)?);
            encoders.extend(own);
            requests = Some(flow);
        }
        for asked in all() {
            logging.files.most_bytes = logging.files.most_bytes.or(asked.most_bytes);
            let backup = asked.backup.as_ref().map(|path| normalized(&directory.join(path)));
            logging.files.backup = logging.files.backup.take().or(backup);
            if let Some(mut target) = asked.target.clone() {
                if let LogPlace::File(path) | LogPlace::Unix(path) = &mut target.place {
                    *path = normalized(&directory.join(&path));
                }
                logging.targets.push(target);
            }
        }
        log_packing::pack(&mut logging.targets, &packings, &encoders)?;
        logging.flows = Some(LogFlows { messages, requests });
        Ok(())
    }
}

impl LoggerRequest {
    /// A path, or `logfile=PATH,maxsize=BYTES,backupname=PATH`.
    fn file(&mut self, argument: &str, pair: &Pair) -> Result<PathBuf, Diagnostic> {
        let advice = "write file:PATH, or file:logfile=PATH,maxsize=BYTES,backupname=PATH";
        if argument.is_empty() {
            return Err(wrong(pair, advice));
        }
        if !argument.contains('=') {
            return Ok(argument.into());
        }
        let mut path = None;
        for word in argument.split(',') {
            match word.split_once('=') {
                Some(("logfile", value)) => path = Some(PathBuf::from(value)),
                Some(("maxsize", value)) => self.most_bytes = Some(value.parse().map_err(|_| wrong(pair, advice))?),
                Some(("backupname", value)) => self.backup = Some(value.into()),
                _ => return Err(wrong(pair, advice)),
            }
        }
        path.ok_or_else(|| wrong(pair, advice))
    }
}

fn plain(place: LogPlace) -> LogTarget {
    LogTarget { place, frame: LineFrame::Plain, packing: None }
}

/// `HOST:PORT` or a path, with an optional prefix after a comma.
fn socket(argument: &str, pair: &Pair) -> Result<LogTarget, Diagnostic> {
    let (address, prefix) = argument.split_once(',').map_or((argument, None), |(address, prefix)| (address, Some(prefix)));
    let place = match address {
        "" => return Err(wrong(pair, "write socket:HOST:PORT or socket:PATH")),
        address if address.contains(':') => LogPlace::Udp(address.to_owned()),
        path => LogPlace::Unix(path.into()),
    };
    Ok(LogTarget { place, frame: prefix.map_or(LineFrame::Plain, |prefix| LineFrame::Prefix(prefix.to_owned())), packing: None })
}

/// The loggers of Python's `logging` are in the processes of the application, and lines come from others too.
fn python(pair: &Pair) -> Diagnostic {
    let text = pair.value.as_deref().unwrap_or_default();
    let message = format!("`{} = {text}`: lines go to the log itself, not to a logger of Python", pair.key);
    Diagnostic::warning(Some(&pair.location), message).advise(format!("write `{} = file:PATH` for a file of their own", pair.key))
}

/// `IDENT,FACILITY`; both are optional. As in uWSGI, an unknown facility is `daemon`.
fn syslog(argument: &str, socket: &str, pair: &Pair, warning: &mut Option<Diagnostic>) -> LogTarget {
    let (tag, facility) = argument.split_once(',').unwrap_or((argument, "daemon"));
    let facility = match FACILITIES.iter().find(|(name, _)| *name == facility) {
        Some((_, number)) => *number,
        None if facility.is_empty() => DAEMON,
        None => {
            let message = format!("there is no facility `{facility}`: `daemon` is used, as in uWSGI");
            let unknown = Diagnostic::warning(Some(&pair.location), message);
            *warning = Some(unknown.advise("the facilities are daemon, user, mail, auth, cron, local0 to local7 and others"));
            DAEMON
        }
    };
    let tag = if tag.is_empty() { "uwsgi" } else { tag }.to_owned();
    let frame = LineFrame::Syslog { priority: facility * 8 + INFORMATION, tag };
    LogTarget { place: LogPlace::Unix(socket.into()), frame, packing: None }
}

/// `HOST[:PORT][,TEXT]`, where the text is inserted between time and line. The default is the machine's name and `uwsgi`.
fn remote_syslog(argument: &str, pair: &Pair, host_name: &str) -> Result<LogTarget, Diagnostic> {
    let (address, text) = argument.split_once(',').map_or((argument, None), |(address, text)| (address, Some(text)));
    if address.is_empty() {
        return Err(wrong(pair, "write rsyslog:HOST:PORT"));
    }
    let place = LogPlace::Udp(if address.contains(':') { address.to_owned() } else { format!("{address}:{REMOTE_PORT}") });
    let tag = text.map_or_else(|| format!("{host_name} uwsgi"), str::to_owned);
    Ok(LogTarget { place, frame: LineFrame::Syslog { priority: REMOTE_PRIORITY, tag }, packing: None })
}

fn wrong(pair: &Pair, advice: &str) -> Diagnostic {
    let text = pair.value.as_deref().unwrap_or_default();
    Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not understood", pair.key)).advise(advice)
}

fn elsewhere(kind: &str, pair: &Pair) -> Diagnostic {
    match ELSEWHERE.iter().find(|(name, _)| *name == kind) {
        Some((_, instead)) => {
            let message = format!("`{}`: there is no logger `{kind}`", pair.key);
            Diagnostic::error(Some(&pair.location), message).advise(*instead)
        }
        None => wrong(pair, "the loggers are file, fd, stdio, socket, pipe, syslog, rsyslog and systemd"),
    }
}
