//! The test language under the real master: prototype, workers, their ends and their replacements, with no interpreter anywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bolide_contract::message::EXIT_LOAD_FAILED;
use bolide_testing::gates::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkdtemp, mkfifo};

/// A running master, with a folder of its test.
struct Instance {
    folder: PathBuf,
    master: Child,
}

impl Instance {
    fn start(options: &[&str]) -> Instance {
        let folder = mkdtemp(&std::env::temp_dir().join("bolide-testing-XXXXXX")).expect("a new folder");
        let log = std::fs::File::create(folder.join("log")).expect("made");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bolide-testing"));
        command.args(["--http-socket", "127.0.0.1:0", "--chdir"]).arg(&folder).args(options);
        let master = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("the master starts");
        Instance { folder, master }
    }

    fn ready(options: &[&str]) -> Instance {
        let instance = Instance::start(options);
        instance.wait_for_log("bolide: ready");
        instance
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn wait_for_log(&self, text: &str) {
        self.wait(text, || self.log().contains(text).then_some(()));
    }

    fn wait<T>(&self, what: &str, condition: impl Fn() -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = condition() {
                return found;
            }
            assert!(Instant::now() < until, "in vain: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> TcpStream {
        let log = self.log();
        let line = log.lines().find_map(|line| line.split_once("listening at http://")).expect("it listens").1;
        let stream = TcpStream::connect(line.trim()).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    /// The body of the answer to a request on a connection of its own.
    fn get(&self, target: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {target} HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.master.id() as i32)
    }

    fn prototype(&self) -> Pid {
        self.wait("one prototype", || only(&children(self.pid())))
    }

    /// Ends it in order; nothing of it is left.
    fn stop(mut self) -> ExitStatus {
        let processes: Vec<Pid> =
            children(self.pid()).into_iter().flat_map(|child| [vec![child], children(child)].concat()).collect();
        kill(self.pid(), Signal::SIGTERM).expect("it lives");
        let status = self.wait_for_end();
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "{process} is left\n{}", self.log());
        }
        assert!(!self.log().contains("internal error"), "{}", self.log());
        status
    }

    fn wait_for_end(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
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
        // A test that failed leaves it running.
        let _has_ended = self.master.kill();
        let _has_ended = self.master.wait();
        std::fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

fn children(process: Pid) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|number| number.parse().ok()).map(Pid::from_raw).collect()
}

fn only(pids: &[Pid]) -> Option<Pid> {
    if let [pid] = pids { Some(*pid) } else { None }
}

#[test]
fn a_prototype_without_an_interpreter_loads_once_and_its_workers_serve() {
    for options in [
        &["--module", "testing", "--processes", "2"][..],
        &["--module", "testing"],
        &["--module", "testing", "--processes", "2", "--lazy-apps"],
    ] {
        let instance = Instance::ready(options);
        for _ in 0..5 {
            assert_eq!(instance.get("/echo"), "GET /echo\n");
        }
        assert!(instance.get("/stream/3/40000").len() >= 120_000);
        assert_eq!(children(instance.prototype()).len(), if options.len() > 2 { 2 } else { 1 });
        assert_eq!(instance.stop().code(), Some(0));
    }
}

#[test]
fn an_application_that_can_not_be_loaded_ends_the_start_and_says_why() {
    for options in [&["--module", "absent", "--master"][..], &["--module", "absent"]] {
        let mut instance = Instance::start(options);
        assert_eq!(instance.wait_for_end().code(), Some(EXIT_LOAD_FAILED), "{}", instance.log());
        assert!(instance.log().contains("the test language has no application"), "{}", instance.log());
    }
}

#[test]
fn a_worker_that_dies_is_replaced_from_the_prototype_and_its_status_is_told() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let prototype = instance.prototype();
    let before = children(prototype);
    kill(before[0], Signal::SIGKILL).expect("it lives");
    instance.wait("its replacement", || {
        let after = children(prototype);
        (after.len() == 2 && !after.contains(&before[0])).then_some(())
    });
    instance.wait_for_log("SIGKILL");
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_prototype_that_dies_is_replaced_and_no_request_is_lost() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let before = instance.prototype();
    kill(before, Signal::SIGKILL).expect("it lives");
    let new = || children(instance.pid()).into_iter().find(|child| *child != before && children(*child).len() == 2);
    instance.wait("a new prototype with its workers", || {
        assert_eq!(instance.get("/echo"), "GET /echo\n");
        new()
    });
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn a_reload_answers_what_is_in_a_call_of_the_old_generation() {
    let instance = Instance::ready(&["--module", "testing", "--processes", "2", "--threads", "2"]);
    let gate = instance.folder.join("gate");
    mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let mut slow = instance.connect();
    slow.write_all(b"GET /slow/gate HTTP/1.0\r\n\r\n").expect("sent");
    let before = instance.prototype();
    // Whoever opens the pipe waits until the application does: it is in the call then.
    let opened = std::thread::spawn(move || std::fs::File::options().write(true).open(gate));
    let opened = opened.join().expect("no panic").expect("opened");
    kill(instance.pid(), Signal::SIGHUP).expect("it lives");
    instance.wait("the new generation", || children(instance.pid()).into_iter().find(|child| *child != before));
    assert_eq!(instance.get("/echo"), "GET /echo\n");
    drop(opened);
    let answer = BufReader::new(slow).lines().last().expect("an answer").expect("text");
    assert_eq!(answer, "GET /slow/gate");
    instance.wait("the end of the old generation", || only(&children(instance.pid())).filter(|left| *left != before));
    assert_eq!(instance.stop().code(), Some(0));
}

#[test]
fn nothing_outlives_a_master_that_is_killed() {
    let mut instance = Instance::ready(&["--module", "testing", "--processes", "2"]);
    let prototype = instance.prototype();
    let all = [vec![prototype], children(prototype)].concat();
    instance.master.kill().expect("it lives");
    instance.master.wait().expect("ours");
    instance.wait("the end of all", || {
        // They are nobody's children now, or another process' whose business it is to wait for them: one that has ended has no program.
        let lives = |pid: &Pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        (!all.iter().any(lives)).then_some(())
    });
}
