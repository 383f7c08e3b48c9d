//! Finds the running instance that a command addresses, and asks it. A name may be a pid, a port or an address that it listens
//! at, a pidfile, a configuration or its name, a socket or a FIFO; without a name it is the instance of this directory. It does
//! not know commands. The command-line process runs it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bolide_command_line::Reading;
use bolide_configuration::instance_commands::{EXIT_NO_ANSWER, EXIT_NO_INSTANCE, EXIT_REFUSED};
use bolide_contract::control::Channel;
use bolide_supervision::files::guarded_files::{self, Rights};
use bolide_supervision::files::pidfile;
use bolide_supervision::text::{duration, printable};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::masters;

/// Time limit for an answer that does not wait for an event, in milliseconds.
pub const ANSWER_MS: u64 = 10_000;
/// Time limit for the answers of all instances that say who they are, in milliseconds: each command by a name waits for one that
/// is stopped.
const IDENTITY_MS: u64 = 5000;
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 4 * 1024 * 1024;
/// Instances that are asked at the same time by [`ask_all`]. Each needs a descriptor, of which a process has 1,024.
const MAX_ASKED_TOGETHER: usize = 200;
/// Bytes that one read takes of an answer.
const CHUNK_BYTES: usize = 64 * 1024;
/// File suffixes of configurations that the instance of a directory may have been started with.
const SUFFIXES: [&str; 7] = ["ini", "toml", "yaml", "yml", "json", "xml", "js"];

/// The instance that a command addresses.
#[derive(Debug)]
pub enum Located {
    /// It has a control socket; with its pid.
    Channel(UnixStream, i32),
    /// It has no known control socket; with its pid.
    Process(i32),
    /// It reads letters from this FIFO.
    Fifo(PathBuf),
}

/// Why no request was sent: an exit status and a message.
pub type Refusal = (i32, String);

/// Finds the instance of this name, or of this directory.
///
/// # Errors
/// There is none, or several, with what to name instead.
pub fn find(instance: Option<&str>) -> Result<Located, Refusal> {
    let Some(text) = instance else { return find_of_directory() };
    if let Some(pid) = text.parse::<i32>().ok().filter(|pid| *pid > 0) {
        // A pid that is not an instance's may be a port.
        return match channel_of(pid) {
            Some(stream) => Ok(Located::Channel(stream, pid)),
            None => of_address(text)?.map_or_else(|| of_pid(pid, &format!("pid {pid}")), Ok),
        };
    }
    let path = PathBuf::from(text);
    let Ok(found) = std::fs::metadata(&path) else {
        let none = || {
            let why = "there is no such file: specify a pidfile, a configuration, a pid or a port";
            Err((EXIT_NO_INSTANCE, format!("{text}: {why}")))
        };
        let found = match of_address(text)? {
            Some(found) => Some(found),
            None => of_site(text)?,
        };
        return found.map_or_else(none, Ok);
    };
    if found.file_type().is_socket() {
        let stream = UnixStream::connect(&path).map_err(|error| (EXIT_NO_INSTANCE, format!("{text}: {error}")))?;
        return of_stream(stream).ok_or_else(|| {
            (
                EXIT_NO_ANSWER,
                format!(
                    "{text}: the process that listens there can't be \
            determined"
                ),
            )
        });
    }
    if found.file_type().is_fifo() {
        return Ok(Located::Fifo(path));
    }
    match pid_of_file(&path) {
        Some(pid) => of_pid(pid, text),
        None => of_configuration(&path, text),
    }
}

/// Asks the instance of this name, or of this directory, a question that changes nothing, such as `status`. Returns the pid of
/// its master and the answer.
///
/// # Errors
/// There is no such instance, it has no control socket, or does not answer; with an exit status.
pub fn ask_about(instance: Option<&str>, question: &Value) -> Result<(i32, Value), Refusal> {
    let (stream, pid) = match find(instance)? {
        Located::Channel(stream, pid) => (stream, pid),
        Located::Process(pid) => {
            let why = format!("process {pid}: its control socket is not known here; specify its `control-socket`");
            return Err((EXIT_NO_ANSWER, why));
        }
        Located::Fifo(path) => {
            let why = format!("{}: a FIFO does not answer; specify the pidfile or the configuration", path.display());
            return Err((EXIT_NO_ANSWER, why));
        }
    };
    let answer = converse(stream, question, Some(ANSWER_MS)).map_err(|error| no_answer(pid, &error))?;
    if answer["ok"] == true {
        return Ok((pid, answer));
    }
    Err((EXIT_REFUSED, format!("master {pid}: {}", printable(answer["message"].as_str().unwrap_or("it refuses")))))
}

/// Asks several instances the same question at the same time, by the pids of their masters. Returns what `read` makes of each
/// answer. Those that have no control socket here, or do not answer within `most_ms`, are missing.
pub fn ask_all<T>(pids: &[i32], question: &Value, most_ms: u64, read: impl Fn(&Value) -> T) -> HashMap<i32, T> {
    let mut answers = HashMap::new();
    for together in pids.chunks(MAX_ASKED_TOGETHER) {
        let until = Instant::now() + Duration::from_millis(most_ms);
        let asked = |pid: &i32| {
            let mut stream = channel_within(*pid, until.saturating_duration_since(Instant::now()))?;
            stream.write_all(format!("{question}\n").as_bytes()).ok()?;
            Some((*pid, stream))
        };
        let streams: Vec<(i32, UnixStream)> = together.iter().filter_map(asked).collect();
        let answered = streams.into_iter().filter_map(|(pid, stream)| {
            let answer: Value = serde_json::from_slice(&line_until(stream, until)?).ok()?;
            (answer["ok"] != false).then(|| (pid, read(&answer)))
        });
        answers.extend(answered);
    }
    answers
}

/// Reads a line. After the end of the time it takes only what has arrived: a master may be another user's, and send single
/// bytes for ever.
fn line_until(mut stream: UnixStream, until: Instant) -> Option<Vec<u8>> {
    let (mut line, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    while (line.len() as u64) < MAX_ANSWER_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => stream.set_nonblocking(true).ok()?,
            false => stream.set_read_timeout(Some(left)).ok()?,
        }
        match stream.read(&mut chunk) {
            Ok(0) => return None,
            Ok(count) => line.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The time may have passed while this answer arrived.
            Err(error) if error.kind() == ErrorKind::WouldBlock && !left.is_zero() => {}
            Err(_) => return None,
        }
        if line.ends_with(b"\n") {
            return Some(line);
        }
    }
    None
}

/// Why a question has no answer, with an exit status.
pub fn no_answer(pid: i32, error: &std::io::Error) -> Refusal {
    let why = match error.kind() {
        std::io::ErrorKind::WouldBlock => format!("no answer within {}", duration(ANSWER_MS)),
        _ => "no answer: it belongs to another user, or has exited in the meantime".to_owned(),
    };
    (EXIT_NO_ANSWER, format!("master {pid}: {why}"))
}

/// Returns the pid in a small file that contains nothing else.
fn pid_of_file(path: &Path) -> Option<i32> {
    let text = guarded_files::read_text(path, pidfile::MAX_BYTES, Rights::Own).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

fn of_pid(pid: i32, named: &str) -> Result<Located, Refusal> {
    if let Some(stream) = channel_of(pid) {
        return Ok(Located::Channel(stream, pid));
    }
    masters::check(Pid::from_raw(pid)).map_err(|why| (EXIT_NO_INSTANCE, format!("{named}: {why}")))?;
    Ok(Located::Process(pid))
}

/// Finds the instance that listens on a port, or at an address as it is logged or as `host:port`.
fn of_address(text: &str) -> Result<Option<Located>, Refusal> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_port && !text.contains(':') {
        return Ok(None);
    }
    let is_it = |address: &str| {
        let place = address.split_once("://").map_or(address, |(_, place)| place).trim_end_matches('/');
        address == text || place == text || is_port && place.rsplit_once(':').is_some_and(|(_, own)| own == port)
    };
    only_one(running(), |identity| texts_of(identity, "addresses").any(is_it), text)
}

/// Finds the instance whose configuration has this name, with or without its ending: a site of an emperor.
fn of_site(text: &str) -> Result<Option<Located>, Refusal> {
    if text.contains('/') {
        return Ok(None);
    }
    let is_it = |path: PathBuf| [path.file_name(), path.file_stem()].into_iter().flatten().any(|name| name == text);
    only_one(running(), |identity| paths_of(identity, "configurations").any(is_it), text)
}

/// Connects to a master by its abstract socket name.
fn channel_of(pid: i32) -> Option<UnixStream> {
    channel_within(pid, Duration::from_millis(ANSWER_MS))
}

/// Connects like [`channel_of`], within a time: a master that is stopped accepts nothing, and its queue may be full. The peer's
/// pid is checked, because another process may have bound a name that looks like it.
fn channel_within(pid: i32, most: Duration) -> Option<UnixStream> {
    let most = TimeVal::milliseconds(i64::try_from(most.as_millis()).unwrap_or(i64::MAX).max(1));
    (0..Channel::MAX_ATTEMPTS).find_map(|attempt| {
        let address = UnixAddr::new_abstract(Channel::name_of(pid, attempt).as_bytes()).ok()?;
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).ok()?;
        // The kernel limits connect(2) by this time too.
        setsockopt(&socket, sockopt::SendTimeout, &most).ok()?;
        connect(socket.as_raw_fd(), &address).ok()?;
        let stream = UnixStream::from(socket);
        (peer_of(&stream)? == pid).then_some(stream)
    })
}

fn peer_of(stream: &UnixStream) -> Option<i32> {
    getsockopt(stream, sockopt::PeerCredentials).ok().map(|peer| peer.pid()).filter(|pid| *pid > 0)
}

fn of_stream(stream: UnixStream) -> Option<Located> {
    let pid = peer_of(&stream)?;
    Some(Located::Channel(stream, pid))
}

/// Finds the instance that has read a configuration. If no instance reports it, looks for the control socket and the pidfiles
/// that the configuration names.
fn of_configuration(path: &Path, named: &str) -> Result<Located, Refusal> {
    let wanted = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let has_read = |identity: &Value| {
        paths_of(identity, "configurations").any(|known| known.canonicalize().is_ok_and(|known| known == wanted))
    };
    if let Some(found) = only_one(running(), has_read, named)? {
        return Ok(found);
    }
    let arguments = [path.as_os_str().to_owned()];
    let environment: Vec<_> = std::env::vars_os().collect();
    let Ok(Reading::Run { settings, .. }) =
        bolide_command_line::read(&arguments, &environment, &bolide_configuration::launcher::Launcher::default())
    else {
        return Err((EXIT_NO_INSTANCE, format!("{named}: no running instance has read it, and it does not contain one itself")));
    };
    if let Channel::File(path) = &settings.control.channel
        && let Some(found) = UnixStream::connect(path).ok().and_then(of_stream)
    {
        return Ok(found);
    }
    let pids = pidfile::all(&settings).filter_map(pid_of_file);
    match pids.map(|pid| of_pid(pid, named)).find(Result::is_ok) {
        Some(found) => found,
        None => Err((EXIT_NO_INSTANCE, format!("{named}: no instance of it is running"))),
    }
}

/// Without a name: finds the instance of a configuration in this directory, or one that was started in this directory.
fn find_of_directory() -> Result<Located, Refusal> {
    let directory =
        std::env::current_dir().map_err(|error| (EXIT_NO_INSTANCE, format!("this directory can't be determined: {error}")))?;
    let is_here = |path: &Path| path.canonicalize().is_ok_and(|path| path == directory);
    let belongs = |identity: &Value| {
        let has_configuration =
            |path: PathBuf| path.parent().is_some_and(is_here) && SUFFIXES.iter().any(|suffix| ends_with(&path, suffix));
        identity["directory"].as_str().is_some_and(|known| is_here(Path::new(known)))
            || paths_of(identity, "configurations").any(has_configuration)
    };
    let instances = running();
    let others = list(&instances);
    match only_one(instances, belongs, "this directory")? {
        Some(found) => Ok(found),
        None => {
            let hint = if others.is_empty() {
                "none of your instances is running".to_owned()
            } else {
                format!("these are running:{others}")
            };
            Err((EXIT_NO_INSTANCE, format!("no instance was started in this directory, or with a configuration in it; {hint}")))
        }
    }
}

fn ends_with(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|found| found == suffix)
}

fn texts_of<'a>(identity: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    identity[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn paths_of(identity: &Value, key: &str) -> impl Iterator<Item = PathBuf> {
    texts_of(identity, key).map(PathBuf::from).collect::<Vec<_>>().into_iter()
}

fn only_one(instances: Vec<(i32, Value)>, is_meant: impl Fn(&Value) -> bool, named: &str) -> Result<Option<Located>, Refusal> {
    let meant: Vec<(i32, Value)> = instances.into_iter().filter(|(_, identity)| is_meant(identity)).collect();
    if meant.len() > 1 {
        let why = format!("{named}: several instances are running; choose one by its pid or its port:{}", list(&meant));
        return Err((EXIT_NO_INSTANCE, why));
    }
    Ok(meant.first().and_then(|(pid, _)| channel_of(*pid).map(|stream| Located::Channel(stream, *pid))))
}

/// Returns one instance in each line, for example `pid 123 at http://127.0.0.1:8000 (/srv/shop/uwsgi.ini)`.
fn list(instances: &[(i32, Value)]) -> String {
    let one = |(pid, identity): &(i32, Value)| {
        let configuration = paths_of(identity, "configurations").next().map(|path| path.display().to_string());
        let place = configuration.or_else(|| identity["directory"].as_str().map(str::to_owned)).unwrap_or_default();
        // Several instances of one directory differ in their addresses.
        let address = texts_of(identity, "addresses").next().map(|address| format!(" at {}", printable(address)));
        format!("\n  pid {pid}{} ({})", address.unwrap_or_default(), printable(&place))
    };
    instances.iter().map(one).collect()
}

/// Returns the masters that have an abstract socket name and answer us, with the identity that they report.
fn running() -> Vec<(i32, Value)> {
    // The last column is the name, with @ for its first byte (unix(7)).
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let names = String::from_utf8_lossy(&table);
    let mut pids: Vec<i32> = names
        .lines()
        .filter_map(|line| line.split_once(" @bolide/"))
        .filter_map(|(_, rest)| rest.split('.').next()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    // All at the same time: one that is stopped does not hold up the others.
    let mut identities = ask_all(&pids, &json!({"ask": "identity"}), IDENTITY_MS, Value::clone);
    pids.into_iter().filter_map(|pid| Some((pid, identities.remove(&pid)?))).collect()
}

/// Sends a question and returns the answer. `most_ms` limits the wait for it, in milliseconds.
///
/// # Errors
/// The instance has gone, does not answer in time, or its answer is not JSON.
pub fn converse(mut stream: UnixStream, question: &Value, most_ms: Option<u64>) -> std::io::Result<Value> {
    stream.set_read_timeout(most_ms.map(Duration::from_millis))?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_ANSWER_BYTES)).read_until(b'\n', &mut line)?;
    serde_json::from_slice(&line).map_err(|_| std::io::ErrorKind::UnexpectedEof.into())
}
