//! What a panic in a worker comes to: one line in the log, and the worker's end. A worker of which a thread has gone, or a turn was
//! left half done, would keep its connections and serve none of them; one that has ended is replaced.

use std::any::Any;
use std::panic::PanicHookInfo;

/// From here on a panic ends this process. The worker's call, when it begins.
pub fn end_worker_at_a_panic(worker: u32) {
    std::panic::set_hook(Box::new(move |panic| {
        write_unlocked(&described(worker, panic));
        std::process::abort();
    }));
}

fn described(worker: u32, panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(String::new, |location| format!(" at {}:{}", location.file(), location.line()));
    let text = text_of(panic.payload()).replace(['\n', '\r'], " ");
    format!("bolide: worker {worker}: internal error: it panicked{place}: {text}; the worker ends and is replaced\n")
}

fn text_of(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no more is known")
}

/// Past the log's writer: this thread may have locked it. A log that takes nothing now must not keep the process.
fn write_unlocked(line: &str) {
    if let Some(log) = bolide_log::descriptor() {
        let _ = nix::unistd::write(log, line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Not a test by itself: what the process does that the test below starts.
    #[test]
    #[ignore = "it ends its process"]
    fn a_worker_that_panics() {
        end_worker_at_a_panic(3);
        let caught = std::panic::catch_unwind(|| panic!("first line\nand second"));
        unreachable!("it went on with {caught:?}");
    }

    #[test]
    fn a_panic_is_one_line_and_the_end_even_where_it_would_be_caught() {
        let program = std::env::current_exe().expect("the test's own program");
        let output = Command::new(program)
            .args(["--exact", "panics::tests::a_worker_that_panics", "--ignored", "--nocapture"])
            .output()
            .expect("it runs");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
        let log = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = log.lines().collect();
        let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
        assert!(line.starts_with("bolide: worker 3: internal error: it panicked at "), "{line}");
        assert!(line.ends_with(": first line and second; the worker ends and is replaced"), "{line}");
    }
}
