//! What the kernel tells of a process by its number: whether it is a zombie, and its parent. It changes nothing. The master runs it, and the
//! command for a running instance.

use nix::unistd::Pid;

/// A process has ended and waits for its parent to reap it.
pub fn is_zombie(pid: Pid) -> bool {
    process_state(pid.as_raw()).is_some_and(|(state, _)| state == "Z")
}

/// The parent of a process, as the kernel tells it; `None` if there is no such process.
pub fn parent_of(pid: i32) -> Option<i32> {
    process_state(pid).map(|(_, parent)| parent)
}

/// State letter and parent of a process.
fn process_state(pid: i32) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may itself hold any character: what follows the last one is numbers (proc(5)).
    let (_, numbers) = text.rsplit_once(')')?;
    let mut numbers = numbers.split_whitespace();
    Some((numbers.next()?.to_owned(), numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_read_from_the_kernel() {
        assert_eq!(parent_of(Pid::this().as_raw()), Some(Pid::parent().as_raw()));
        assert_eq!(parent_of(0), None);
    }
}
