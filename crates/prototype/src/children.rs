//! The workers and helpers that a prototype has forked, and their ends. It knows nothing of orders. The prototype runs it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bolide_contract::message::Report;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags, WaitOptions, pidfd_open, waitpid};

/// The children that are not known to have ended.
#[derive(Default)]
pub struct Children {
    alive: Vec<Child>,
}

struct Child {
    row: u32,
    pid: Pid,
    /// Becomes readable when the child has exited (pidfd_open(2)).
    descriptor: OwnedFd,
}

impl Children {
    pub fn is_empty(&self) -> bool {
        self.alive.is_empty()
    }

    /// Adds a forked worker or helper.
    pub fn add(&mut self, row: u32, pid: Pid) -> io::Result<()> {
        let descriptor = watch(pid)
            .map_err(|error| io::Error::new(error.kind(), format!("a worker can't be watched (pidfd_open): {error}")))?;
        self.alive.push(Child { row, pid, descriptor });
        Ok(())
    }

    /// Forgets all children: a new child must not watch its siblings.
    pub fn forget(&mut self) {
        self.alive.clear();
    }

    /// Removes the exited children, and returns the reports of their ends.
    pub fn take_ended(&mut self) -> Vec<Report> {
        let mut ended = Vec::new();
        self.alive.retain(|child| match wait_status(child.pid) {
            Some(status) => {
                ended.push(Report::Ended { row: child.row, pid: child.pid.as_raw() as u32, status });
                false
            }
            None => true,
        });
        ended
    }

    /// The pidfds to poll for the next end.
    pub fn waits(&self) -> Vec<PollFd<'_>> {
        self.alive.iter().map(|child| PollFd::new(child.descriptor.as_fd(), PollFlags::POLLIN)).collect()
    }

    pub fn kill(&self) {
        for child in &self.alive {
            // A child that has just ended does not need signals, and keeps its pid until it is reaped.
            let _ = kill(child.pid, Signal::SIGKILL);
        }
    }
}

/// The raw wait status of an exited child. A child that can't be waited for was reaped by the application: status 0.
fn wait_status(pid: Pid) -> Option<u32> {
    let pid = process::Pid::from_raw(pid.as_raw())?;
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => Some(status.as_raw().cast_unsigned()),
        Err(Errno::CHILD) => Some(0),
        Ok(None) | Err(_) => None,
    }
}

/// A pidfd, which becomes readable when the child has exited.
fn watch(pid: Pid) -> Result<OwnedFd, Errno> {
    pidfd_open(process::Pid::from_raw(pid.as_raw()).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollTimeout, poll};

    #[test]
    #[expect(clippy::zombie_processes, reason = "the table under test waits for them")]
    fn the_end_of_a_worker_is_heard_of_once_with_its_status() {
        let mut children = Children::default();
        for (row, script) in [(3, "exit 7"), (4, "kill -9 $$"), (5, "kill -44 $$")] {
            let child = std::process::Command::new("/bin/sh").args(["-c", script]).spawn().expect("started");
            children.add(row, Pid::from_raw(child.id() as i32)).expect("watched");
        }
        let mut ended = Vec::new();
        while !children.is_empty() {
            poll(&mut children.waits(), PollTimeout::NONE).expect("polled");
            ended.extend(children.take_ended());
        }
        ended.sort_by_key(|report| match report {
            Report::Ended { row, .. } => *row,
            other => panic!("{other:?}"),
        });
        let statuses: Vec<Option<u32>> = ended
            .iter()
            .map(|report| match report {
                Report::Ended { status, .. } => Some(*status),
                _ => None,
            })
            .collect();
        // The last one is a real-time signal.
        assert_eq!(statuses, [Some(0x700), Some(9), Some(44)]);
        assert!(children.take_ended().is_empty());
    }
}
