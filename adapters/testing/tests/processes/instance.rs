//! A master of the test language, under the control of a test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bolide_testing::gates::TEST_TIMEOUT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkdtemp};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bolide-testing");
/// The file of [`Instance::of_file`], in the instance's directory.
const FILE: &str = "bolide.ini";

/// A running master, with a directory of its test.
pub struct Instance {
    pub directory: PathBuf,
    pub master: Child,
}

impl Instance {
    pub fn start(options: &[&str]) -> Instance {
        Instance::start_in(new_directory(), options)
    }

    /// An instance that reads these lines from a file, again at each reload.
    pub fn of_file(lines: &str) -> Instance {
        let directory = new_directory();
        write_file(&directory, lines);
        let file = directory.join(FILE).display().to_string();
        let instance = Instance::start_in(directory, &["--ini", &file]);
        instance.wait_for_log("bolide: ready");
        instance
    }

    fn start_in(directory: PathBuf, options: &[&str]) -> Instance {
        let log = std::fs::File::create(directory.join("log")).expect("made");
        let mut command = Command::new(PROGRAM);
        command.args(["--http-socket", "127.0.0.1:0", "--chdir"]).arg(&directory).args(options);
        let master = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the master starts");
        Instance { directory, master }
    }

    pub fn rewrite_file(&self, lines: &str) {
        write_file(&self.directory, lines);
    }

    /// Sends it a command from another process. Returns whether that succeeded.
    pub fn command(&self, command: &str) -> bool {
        let mut teller = Command::new(PROGRAM);
        teller.args([command, &self.pid().to_string()]).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it lives");
    }

    pub fn ready(options: &[&str]) -> Instance {
        let instance = Instance::start(options);
        instance.wait_for_log("bolide: ready");
        instance
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub fn wait_for_log(&self, text: &str) {
        self.wait(text, || self.log().contains(text).then_some(()));
    }

    pub fn wait<T>(&self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(found) = condition() {
                return found;
            }
            assert!(Instant::now() < until, "in vain: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn connect(&self) -> TcpStream {
        let log = self.log();
        let line = log.lines().find_map(|line| line.split_once("listening on http://")).expect("it listens").1;
        let stream = TcpStream::connect(line.trim()).expect("connected");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("set");
        stream
    }

    /// Returns the body of the answer to a request on a connection of its own.
    pub fn get(&self, target: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {target} HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.master.id() as i32)
    }

    pub fn prototype(&self) -> Pid {
        self.wait("one prototype", || only(&children(self.pid())))
    }

    /// Stops it normally, and removes its directory.
    pub fn stop(mut self) -> ExitStatus {
        self.end()
    }

    /// Stops it normally, and keeps its directory.
    pub fn end(&mut self) -> ExitStatus {
        let processes: Vec<Pid> =
            children(self.pid()).into_iter().flat_map(|child| [vec![child], children(child)].concat()).collect();
        self.signal(Signal::SIGTERM);
        let status = self.wait_for_end();
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process} is left\n{}", self.log());
        }
        assert!(!self.log().contains("internal error"), "{}", self.log());
        status
    }

    pub fn wait_for_end(&mut self) -> ExitStatus {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.master.try_wait().expect("ours") {
                return status;
            }
            assert!(Instant::now() < until, "it does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A failed test leaves it running.
        let _has_ended = self.master.kill();
        let _has_ended = self.master.wait();
        std::fs::remove_dir_all(&self.directory).unwrap_or_default();
    }
}

pub fn children(process: Pid) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|number| number.parse().ok()).map(Pid::from_raw).collect()
}

pub fn only(pids: &[Pid]) -> Option<Pid> {
    if let [pid] = pids { Some(*pid) } else { None }
}

fn new_directory() -> PathBuf {
    mkdtemp(&std::env::temp_dir().join("bolide-testing-XXXXXX")).expect("a new directory")
}

fn write_file(directory: &Path, lines: &str) {
    std::fs::write(directory.join(FILE), format!("[uwsgi]\n{lines}\n")).expect("written");
}
