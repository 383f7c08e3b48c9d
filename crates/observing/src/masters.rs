//! Whether a process is a running master, ours or uWSGI's: a pid in a file may belong to any program by now. The process of the
//! command line runs it.

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The name of this server.
const OURS: &str = "bolide";
/// The name of the server that may still be running.
const UWSGI: &str = "uwsgi";

/// Checks that a process is a server to which a signal may be sent.
///
/// # Errors
/// The reason why it is not, as text.
pub fn check(pid: Pid) -> Result<(), String> {
    let name = name_of(pid).ok_or_else(|| format!("process {pid} does not exist: the instance has exited"))?;
    if is_ours(pid, &name) {
        return Ok(());
    }
    Err(format!("process {pid} is `{name}`, not Bolide: the file is a leftover of an instance that has exited"))
}

/// Returns the name of a process (/proc/PID/comm), or `None` if it does not exist or is a zombie.
fn name_of(pid: Pid) -> Option<String> {
    if bolide_supervision::process_state::is_zombie(pid) {
        return None;
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Returns whether a process is a master of ours or of uWSGI. Our master may have any name (`procname-master`), and any program
/// may lie in a directory with our name, so the blocked termination signals decide. uWSGI's master is recognized by its name.
fn is_ours(pid: Pid, name: &str) -> bool {
    let file_of = |file: &str| format!("/proc/{pid}/{file}");
    let read =
        |file: &str| std::fs::read(file_of(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let program = std::fs::read_link(file_of("exe")).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let has = |text: &str, server: &str| text.to_ascii_lowercase().contains(server);
    let knows_ours = || [name, &program, &read("cmdline"), &read("maps")].iter().any(|text| has(text, OURS));
    let command = read("cmdline");
    let first = command.split('\0').next().unwrap_or_default();
    let is_uwsgi = [name, first, &program].iter().any(|text| text.rsplit('/').next().is_some_and(|last| has(last, UWSGI)));
    is_uwsgi || blocks_termination_signals(&read("status")) && knows_ours()
}

/// Returns whether the status of a process (proc(5)) shows SIGHUP and SIGTERM as blocked: our master reads them from a
/// descriptor.
fn blocks_termination_signals(status: &str) -> bool {
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|hexadecimal| u64::from_str_radix(hexadecimal.trim(), 16).ok()).unwrap_or(0);
    [Signal::SIGHUP, Signal::SIGTERM].iter().all(|signal| blocked & 1 << (*signal as i32 - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_master_only_if_it_has_blocked_termination_signals() {
        for (status, wanted) in [
            ("Name:\tx\nSigBlk:\t0000000000004001\nSigIgn:\t0000000000000000\n", true),
            ("SigBlk:\tfffffffe7ffbfeff\n", true),
            ("SigBlk:\t0000000000004000\n", false),
            ("SigBlk:\t0000000000000001\n", false),
            ("SigBlk:\t0000000000000000\n", false),
            ("SigBlk:\tno number\n", false),
            ("", false),
        ] {
            assert_eq!(blocks_termination_signals(status), wanted, "{status}");
        }
        // A program with our name is not a master without the blocked signals. The test does not use its own process, because its
        // first thread blocks every signal while it creates another thread.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let is_taken_for_ours = is_ours(Pid::from_raw(other.id().cast_signed()), "bolide");
        other.kill().expect("killed");
        other.wait().expect("reaped");
        assert!(!is_taken_for_ours);
    }
}
