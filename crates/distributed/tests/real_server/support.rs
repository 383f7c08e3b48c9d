//! A redis-server for a test, a proxy that can be cut, and engines whose lines are kept.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bolide_contract::engine_row::EngineRow;
use bolide_distributed::{Address, Engine, Purpose};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far longer than any wait of a test that passes.
pub const TIMEOUT: Duration = Duration::from_secs(20);

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct Server {
    process: Child,
    pub directory: PathBuf,
    arguments: Vec<String>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// `arguments` are added to those of a server on a UNIX socket that writes every command to its disk.
    pub fn with(arguments: &[&str]) -> Server {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("bolide-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
        let process = launch(&directory, &arguments);
        Server { process, directory, arguments }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("SIGKILL");
        self.process.wait().expect("its end");
    }

    pub fn restart(&mut self) {
        self.kill();
        self.restart_after_kill();
    }

    pub fn restart_after_kill(&mut self) {
        self.process = launch(&self.directory, &self.arguments);
    }

    /// The server does not get CPU time, as on a machine that hangs.
    pub fn freeze(&self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGSTOP).expect("SIGSTOP");
    }

    pub fn thaw(&self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGCONT).expect("SIGCONT");
    }

    /// Sends a command by hand, and returns the first line of the answer.
    pub fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("a connection");
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("a command");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }
}

fn launch(directory: &Path, arguments: &[String]) -> Child {
    let socket = directory.join("s");
    let _ = fs::remove_file(&socket);
    let mut process = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"])
        .arg("--unixsocket")
        .arg(&socket)
        .arg("--dir")
        .arg(directory)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-server (apt-get install redis-server)");
    let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let is_ready = |line: &String| line.contains("eady to accept connections");
    lines.by_ref().map_while(Result::ok).find(is_ready).expect("redis-server did not start");
    // The rest is read until its end, so that the server never waits for a reader.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    process
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Forwards TCP to a server's UNIX socket. While it is cut, bytes are lost and both sides still see a connection.
pub struct Proxy {
    pub address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(server: &Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_cut = Arc::new(AtomicBool::new(false));
        let (socket, cut) = (server.socket(), is_cut.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                let (one, other) = (cut.clone(), cut.clone());
                std::thread::spawn(move || forward(from, to, &one));
                std::thread::spawn(move || forward(server, client, &other));
            }
        });
        Proxy { address, is_cut }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn forward(mut from: impl Read, mut to: impl Write, is_cut: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // A cut network loses what is on its way.
        if is_cut.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep_line(line: &str) {
    LINES.lock().expect("no panic").push(line.to_owned());
}

/// The lines about an engine so far.
pub fn lines_of(engine: &Engine) -> Vec<String> {
    let name = engine.address().to_string();
    LINES.lock().expect("no panic").iter().filter(|line| line.contains(&name)).cloned().collect()
}

/// An engine of this process, as if the process were another one for each call.
pub fn engine(url: &str) -> &'static Engine {
    // Two slow seconds on a busy machine are not an absence, unless a test expects it.
    let url = if url.contains('?') { url.to_owned() } else { format!("{url}?connect-ms=5000&answer-ms=5000") };
    let address = Address::parse(&url, Purpose::Jobs).expect("an address");
    Box::leak(Box::new(Engine::new(address, Box::leak(Box::<EngineRow>::default()), keep_line)))
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A listener that accepts, reads one request, answers with these bytes, and keeps the connection.
pub fn answering(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || answer_all(&mut client, &answer));
        }
    });
    url
}

fn answer_all(client: &mut TcpStream, answer: &[u8]) {
    let mut buffer = [0; 4096];
    while let Ok(1..) = client.read(&mut buffer) {
        if client.write_all(answer).is_err() {
            return;
        }
    }
}
