//! Panics in a worker: a panic writes one line to the log and ends the process. A worker that has lost a thread, or left a turn
//! half done, would keep its connections without serving them. The master replaces a worker that has exited.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// From here on a panic ends this process. The worker of this number calls it at its start. A second call changes the number,
/// since a fork of a worker may be a worker too.
pub fn end_worker_at_a_panic(worker: u32) {
    static SET: Once = Once::new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.store(worker, Relaxed);
    SET.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            bolide_log::write_last(&bolide_log::framed(&described(NUMBER.load(Relaxed), panic)));
            std::process::abort();
        }));
    });
}

fn described(worker: u32, panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(String::new, |location| format!(" at {}:{}", location.file(), location.line()));
    let text = text_of(panic.payload()).replace(['\n', '\r'], " ");
    format!("worker {worker}: internal error: it panicked{place}: {text}; it exits and is replaced")
}

fn text_of(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no details are known")
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// Not a test by itself: the test below starts it as a process.
    #[test]
    #[ignore = "it ends its process"]
    fn a_worker_that_panics() {
        end_worker_at_a_panic(3);
        let caught = std::panic::catch_unwind(|| panic!("first line\nand second"));
        unreachable!("it went on with {caught:?}");
    }

    fn panicking() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the test's own program"));
        command.args(["--exact", "event_loop::panics::tests::a_worker_that_panics", "--ignored", "--nocapture"]);
        command
    }

    #[test]
    fn a_log_without_a_reader_does_not_keep_a_worker_that_panics() {
        // Like systemd's journal: a blocking socket that other processes share.
        let (mut log, _nobody_reads) = UnixStream::pair().expect("a pair");
        log.set_nonblocking(true).expect("set");
        while log.write(&[b'x'; 1000]).is_ok() {}
        log.set_nonblocking(false).expect("set");
        let mut worker = panicking().stdout(Stdio::null()).stderr(Stdio::from(OwnedFd::from(log))).spawn().expect("it runs");
        let end = Instant::now() + Duration::from_secs(20);
        let status = loop {
            match worker.try_wait().expect("a child") {
                Some(status) => break status.signal(),
                None if Instant::now() > end => break None,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let _is_over = worker.kill();
        assert_eq!(status, Some(libc::SIGABRT));
    }

    #[test]
    fn a_panic_is_one_line_and_the_end_even_where_it_would_be_caught() {
        let output = panicking().output().expect("it runs");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
        let log = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = log.lines().collect();
        let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
        assert!(line.starts_with("bolide: worker 3: internal error: it panicked at "), "{line}");
        assert!(line.ends_with(": first line and second; it exits and is replaced"), "{line}");
    }
}
