//! What the kernel tells of a process by its number: whether it is a zombie, its parent, its CPU time, its memory. It changes
//! nothing. The master runs it, and the commands for a running instance.

use nix::unistd::{Pid, SysconfVar, sysconf};

/// A process has exited and waits for its parent to reap it.
pub fn is_zombie(pid: Pid) -> bool {
    process_state(pid.as_raw()).is_some_and(|(state, _)| state == "Z")
}

/// What one read tells of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessNumbers {
    /// Its parent.
    pub parent: i32,
    /// The clock tick of its start since the boot: with the pid, this names a process for ever.
    pub start: u64,
    /// The CPU time since its start, like [`cpu_ms_of`].
    pub cpu_ms: u64,
    /// Memory that it has, or shares with others.
    pub resident_bytes: u64,
}

/// What one read tells of a process; `None` if there is no such process.
pub fn numbers(pid: i32) -> Option<ProcessNumbers> {
    let text = numbers_of(pid)?;
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    // The numbers begin with field 3 (proc(5)).
    let field = |number: usize| text.split_whitespace().nth(number - 3);
    Some(ProcessNumbers {
        parent: field(4)?.parse().ok()?,
        start: field(22)?.parse().ok()?,
        cpu_ms: cpu_ms_in(&text)?,
        resident_bytes: field(24)?.parse::<u64>().ok()?.saturating_mul(page_bytes),
    })
}

/// The parent of a process, as the kernel tells it; `None` if there is no such process.
pub fn parent_of(pid: i32) -> Option<i32> {
    process_state(pid).map(|(_, parent)| parent)
}

/// The user IDs of a process: real, effective, saved and filesystem. `None`: there is no such process.
pub fn users_of(pid: i32) -> Option<[u32; 4]> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let numbers: Vec<u32> = line.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// The CPU time that a process has used since its start, in its own code and in the kernel, in milliseconds.
pub fn cpu_ms_of(pid: i32) -> Option<u64> {
    cpu_ms_in(&numbers_of(pid)?)
}

/// The time in which the threads of a process could have run and had no CPU, in nanoseconds, since each was started. `None`: the
/// kernel does not count it (`CONFIG_SCHED_INFO`), or the process has exited.
pub fn delayed_ns_of(pid: i32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // A thread may end while the others are read.
    let of_threads = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    of_threads.map(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).reduce(|sum, one| Some(sum? + one?))?
}

/// The CPU time of a thread since its start, like [`cpu_ms_of`].
pub fn thread_cpu_ms(pid: i32, thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    cpu_ms_in(text.rsplit_once(')')?.1)
}

/// The CPU time among the fields of a stat file from the third one on.
fn cpu_ms_in(text: &str) -> Option<u64> {
    let ticks_a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok())?;
    // Fields 14 and 15 (proc(5)); the numbers begin with field 3.
    let ticks = text.split_whitespace().skip(14 - 3).take(2).map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
    ticks.saturating_mul(1000).checked_div(ticks_a_second)
}

/// The state letter of a thread: `R` runs, `S` waits, `D` waits for a disk (proc(5)). `None` if it is gone.
pub fn thread_state(pid: i32, thread: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    text.rsplit_once(')').and_then(|(_, numbers)| numbers.trim_start().chars().next())
}

/// What a thread does, by its state letter (proc(5)).
pub fn state_in_words(state: char) -> &'static str {
    match state {
        'R' => "runs",
        'D' => "disk",
        'T' | 't' => "stopped",
        _ => "waits",
    }
}

/// Whether one of these signals, which were sent to this thread, still waits for it to run.
pub fn awaits_signal(pid: i32, thread: u32, signals: &[i32]) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).is_ok_and(|text| has_pending(&text, signals))
}

/// The set of pending signals of the thread in a status file: hexadecimal, with bit 0 for signal 1 (proc(5)).
fn has_pending(text: &str, signals: &[i32]) -> bool {
    let pending = text.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let set = pending.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default();
    signals.iter().any(|signal| set.checked_shr(signal.cast_unsigned().wrapping_sub(1)).is_some_and(|rest| rest & 1 == 1))
}

/// State letter and parent of a process.
fn process_state(pid: i32) -> Option<(String, i32)> {
    let text = numbers_of(pid)?;
    let mut numbers = text.split_whitespace();
    Some((numbers.next()?.to_owned(), numbers.next()?.parse().ok()?))
}

/// The fields of /proc/PID/stat from the third one on.
fn numbers_of(pid: i32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself hold any byte: what follows the last one is numbers (proc(5)).
    String::from_utf8_lossy(&bytes).rsplit_once(')').map(|(_, numbers)| numbers.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_read_from_the_kernel() {
        assert_eq!(parent_of(Pid::this().as_raw()), Some(Pid::parent().as_raw()));
        assert_eq!(parent_of(0), None);
        let own = nix::unistd::getuid().as_raw();
        assert_eq!((users_of(Pid::this().as_raw()), users_of(0)), (Some([own; 4]), None));
        let this = Pid::this().as_raw();
        assert!(thread_state(this, this as u32).is_some());
        assert_eq!(thread_state(this, 0), None);
        let told = numbers(this).expect("read");
        assert_eq!((told.parent, numbers(0)), (Pid::parent().as_raw(), None));
        assert!(told.start > 0 && told.resident_bytes > 100_000 && told.cpu_ms <= cpu_ms_of(this).expect("read"));
    }

    #[test]
    fn a_signal_that_a_thread_has_not_taken_yet_is_pending() {
        let status = "Name:\tpython3\nSigQ:\t1/30000\nSigPnd:\t0000080000000201\nShdPnd:\t0000000000000008\n";
        for (signals, is_pending) in
            [(&[1][..], true), (&[10], true), (&[44], true), (&[2, 44], true), (&[2, 4, 64], false), (&[0], false)]
        {
            assert_eq!(has_pending(status, signals), is_pending, "{signals:?}");
        }
        assert!(!has_pending("", &[1]));
        let this = Pid::this().as_raw();
        assert!(!awaits_signal(this, this as u32, &[libc::SIGUSR1]));
        assert!(!awaits_signal(this, 0, &[libc::SIGUSR1]));
    }

    #[test]
    fn the_cpu_time_of_a_process_grows_with_its_work() {
        let this = Pid::this().as_raw();
        let before = cpu_ms_of(this).expect("read");
        let mut sum = 0u64;
        let thread = nix::unistd::gettid().as_raw() as u32;
        assert!(thread_cpu_ms(this, thread).expect("read") <= cpu_ms_of(this).expect("read"));
        while cpu_ms_of(this).expect("read") < before + 20 {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(cpu_ms_of(0), None);
    }
}
