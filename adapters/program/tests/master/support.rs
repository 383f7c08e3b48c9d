//! An instance under test: the program `bolide` with the fake prototype of `tests/master/fake`. Every wait is on a condition and
//! bounded; nothing outlives its test. It does not know promises. The test process runs it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bolide_scoreboard::{Entry, Meters, Recorder, Row, Slot, TEXT_BYTES};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkdtemp};

/// Longer than any condition takes, however busy the machine is.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A running master, with the directory of its test.
pub struct Instance {
    directory: PathBuf,
    master: Child,
}

/// The answer of a fake worker about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub number: u32,
    pub generation: u32,
    pub pid: i32,
    pub parent: i32,
}

impl Instance {
    /// Starts the program `bolide` with these options, for one application and one free port of 127.0.0.1. Its Python package
    /// `bolide` has the fake prototype, which obeys `orders`. `{directory}` in an option is the directory of the test.
    pub fn start(orders: &str, options: &[&str]) -> Instance {
        let directory = new_directory();
        let package = directory.join("bolide");
        std::fs::create_dir(&package).expect("made");
        std::fs::write(package.join("__init__.py"), "").expect("written");
        let prototype = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/master/fake/prototype.py");
        std::fs::copy(prototype, package.join("prototype.py")).expect("copied");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bolide"));
        command.args(["app:application", "--http-socket", "127.0.0.1:0", "--vacuum", "--processes", "1"]);
        command.args(options.iter().map(|option| option.replace("{directory}", &directory.display().to_string())));
        command.env("PYTHONPATH", &directory);
        if options.contains(&"--uid") {
            // A Python in the home of the user that runs the tests is not accessible to other users: the system's comes first.
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("/usr/local/bin:/usr/bin:{path}"));
        }
        Instance::run(directory, orders, command)
    }

    fn run(directory: PathBuf, orders: &str, mut command: Command) -> Instance {
        std::fs::write(directory.join("orders.json"), orders).expect("written");
        std::fs::write(directory.join("events.txt"), "").expect("written");
        for name in ["", "events.txt", "orders.json"] {
            // Some tests run workers as another user.
            let permissions = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
            std::fs::set_permissions(directory.join(name), permissions).expect("set");
        }
        let log = std::fs::File::create(directory.join("stderr.txt")).expect("made");
        command
            .env("FAKE_DIRECTORY", &directory)
            .env("FAKE_LAYOUT", layout())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let master = command.spawn().expect("the master starts");
        Instance { directory, master }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.master.id() as i32)
    }

    /// Returns the log so far, in whole lines, without the timestamps of the server.
    pub fn log(&self) -> String {
        let text = whole_lines(&self.directory.join("stderr.txt"));
        text.split_inclusive('\n').map(without_time).collect()
    }

    /// Returns the lines that the fake prototype and its workers wrote.
    pub fn events(&self) -> Vec<String> {
        let text = whole_lines(&self.directory.join("events.txt"));
        text.lines().map(str::to_owned).collect()
    }

    pub fn count_events(&self, start: &str) -> usize {
        self.events().iter().filter(|event| event.starts_with(start)).count()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the master lives");
    }

    /// Changes the behavior of later prototypes and workers.
    pub fn order(&self, orders: &str) {
        std::fs::write(self.directory.join("orders.json"), orders).expect("written");
    }

    pub fn touch(&self, name: &str) {
        std::fs::write(self.directory.join(name), "").expect("written");
    }

    pub fn wait_log(&self, text: &str) {
        self.wait(&format!("the log says `{text}`"), || self.log().contains(text).then_some(()));
    }

    pub fn wait_event(&self, start: &str) {
        self.wait(&format!("the event `{start}`"), || (self.count_events(start) > 0).then_some(()));
    }

    /// Waits until the condition returns a value.
    pub fn wait<T>(&self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(found) = condition() {
                return found;
            }
            assert!(Instant::now() < until, "in vain: {what}\n--- log\n{}\n--- events\n{}", self.log(), self.events().join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the first address that the log reports as listening.
    pub fn address(&self) -> String {
        self.wait("an address to open", || {
            let log = self.log();
            let (_, rest) = log.split_once("listening on http://")?;
            rest.contains('\n').then(|| rest.lines().next().unwrap_or_default().to_owned())
        })
    }

    /// Returns a connection on which a request was sent, for a request without an immediate answer.
    pub fn request(&self, line: &str) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(TEST_TIMEOUT)).ok()?;
        stream.write_all(format!("{line}\n").as_bytes()).ok()?;
        Some(stream)
    }

    /// Returns the answer to a request, or `None` if the worker exited instead.
    pub fn text(&self, line: &str) -> Option<String> {
        read_line(&self.request(line)?)
    }

    pub fn ask(&self, line: &str) -> Option<Answer> {
        parse(&self.text(line)?)
    }

    /// Asks until the worker with that number answers.
    pub fn ask_worker(&self, number: u32) -> Answer {
        self.wait("an answer of one worker", || self.ask("who").filter(|answer| answer.number == number))
    }

    /// Returns the exit status, once the master has exited.
    pub fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.master.try_wait().expect("waited for") {
                return status;
            }
            assert!(Instant::now() < until, "the master does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn last_line(&self) -> String {
        self.log().lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if matches!(self.master.try_wait(), Ok(None)) {
            kill(self.pid(), Signal::SIGQUIT).unwrap_or_default();
            let until = Instant::now() + Duration::from_secs(10);
            while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.master.kill().unwrap_or_default();
            self.master.wait().map(|_| ()).unwrap_or_default();
        }
        std::fs::remove_dir_all(&self.directory).unwrap_or_default();
    }
}

/// Returns the first line that a worker sends, or `None` if it ended instead.
pub fn read_line(stream: &TcpStream) -> Option<String> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok().filter(|length| *length > 0)?;
    Some(line.trim().to_owned())
}

pub fn parse(line: &str) -> Option<Answer> {
    let numbers: Vec<i32> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [number, generation, pid, parent] = numbers[..] else { return None };
    Some(Answer { number: number as u32, generation: generation as u32, pid, parent })
}

/// Returns whether a process is alive. A zombie is not.
pub fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|text| !text.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

/// Returns the inode of the socket that listens on this IPv4 address.
pub fn listening_inode(address: &str) -> Option<String> {
    let address: std::net::SocketAddrV4 = address.parse().ok()?;
    // The kernel shows the four bytes as they are in memory, then the port.
    let shown = format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
    listening().find(|(bound, _)| *bound == shown).map(|(_, inode)| inode)
}

/// Returns the inodes of all listening sockets.
pub fn listening_inodes() -> Vec<String> {
    listening().map(|(_, inode)| inode).collect()
}

/// Returns addresses and inodes of listening IPv4 sockets, from /proc/net/tcp (proc(5)).
fn listening() -> impl Iterator<Item = (String, String)> {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let lines: Vec<Vec<String>> = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    lines.into_iter().filter_map(|words| match &words[..] {
        [_, bound, _, state, _, _, _, _, _, inode, ..] if state == "0A" => Some((bound.clone(), inode.clone())),
        _ => None,
    })
}

/// Returns the text of a file that is being written, without an incomplete last line.
fn whole_lines(path: &Path) -> String {
    let mut text = std::fs::read_to_string(path).unwrap_or_default();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    text
}

fn new_directory() -> PathBuf {
    mkdtemp(&std::env::temp_dir().join("bolide-master-test-XXXXXX")).expect("a temporary directory")
}

/// Returns a log line without the timestamp of the server.
pub fn without_time(line: &str) -> &str {
    match line.split_once("bolide: ") {
        Some((time, _)) if time.len() == "2026-11-22 13:40:00 ".len() => &line[time.len()..],
        _ => line,
    }
}

/// Returns the layout of the scoreboard for the fake worker: bytes of a row, of a slot, of a slot's meters, of an entry of its
/// ring and of the text of that, the offset of the text, and that of a row's pid.
fn layout() -> String {
    let sizes = [size_of::<Row>(), size_of::<Slot>(), size_of::<Meters>(), size_of::<Entry>()].into_iter();
    let sizes = sizes.chain([TEXT_BYTES, Recorder::TEXT_START, std::mem::offset_of!(Row, pid)]);
    sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(" ")
}
