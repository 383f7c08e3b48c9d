//! The queues of messages for mules, and the inboxes of processes that listen to channels: socket pairs that the master makes,
//! and whose both ends it keeps, so that messages in them survive while their mule does not run, over reloads, deaths and
//! upgrades. It never reads a message. The master runs it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use bolide_contract::boot::MessageQueueFiles;
use bolide_contract::settings::Settings;
use bolide_contract::sharing::Inboxes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, send, setsockopt, socketpair, sockopt};

/// The queues by their names.
#[derive(Debug, Default)]
pub struct MessageQueues {
    list: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    name: String,
    put: OwnedFd,
    take: OwnedFd,
}

impl MessageQueues {
    /// Returns the queues that a previous master has handed over.
    pub fn handed(files: Vec<(String, OwnedFd, OwnedFd)>) -> MessageQueues {
        MessageQueues { list: files.into_iter().map(|(name, put, take)| Queue { name, put, take }).collect() }
    }

    /// Makes the queues that settings need beside those that are there, and gives all of them the configured size. Returns lines
    /// for the log.
    ///
    /// # Errors
    /// No socket can be made.
    pub fn extend_for(&mut self, settings: &Settings) -> io::Result<Vec<String>> {
        for name in needed(settings) {
            if self.list.iter().all(|queue| queue.name != name) {
                let kind = SockType::SeqPacket;
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                let (put, take) = socketpair(AddressFamily::Unix, kind, None, flags).map_err(no_socket)?;
                self.list.push(Queue { name, put, take });
            }
        }
        let mut lines = Vec::new();
        let inboxes = settings.services.inboxes.as_ref();
        let of_inboxes = inboxes.map(|inboxes| inboxes.bytes.unwrap_or(Inboxes::BYTES));
        for (option, wanted, are_inboxes) in
            [("mule-msg-size = ", settings.mules.queue_bytes, false), ("publish-inbox-size = ", of_inboxes, true)]
        {
            let Some(bytes) = wanted else { continue };
            let mut smallest = bytes;
            for queue in self.list.iter().filter(|queue| Inboxes::is_queue_name(&queue.name) == are_inboxes) {
                smallest = smallest.min(resize(queue.put.as_fd(), bytes)?);
            }
            if smallest < bytes {
                lines.push(format!(
                    "{option}{bytes}: the kernel allows a queue of at most {smallest} bytes: raise net.core.wmem_max"
                ));
            }
        }
        Ok(lines)
    }

    /// Drops the queues that settings do not need. Returns a line for each that still had messages.
    pub fn keep_for(&mut self, settings: &Settings) -> Vec<String> {
        let needed = needed(settings);
        let mut lines = Vec::new();
        self.list.retain(|queue| {
            let is_needed = needed.contains(&queue.name);
            // The processes that listen keep their own copies of their inbox.
            let is_inbox = Inboxes::is_queue_name(&queue.name);
            if !is_needed && !is_inbox && has_messages(queue.take.as_fd()) {
                lines.push(format!("{} is no longer configured, so the messages in its queue are dropped", queue.name));
            }
            is_needed
        });
        lines
    }

    /// Puts a message into the queue of this name. Never waits. Returns false if the queue is full, or does not exist.
    pub fn put(&self, name: &str, message: &[u8]) -> bool {
        let queue = self.list.iter().find(|queue| queue.name == name);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        queue.is_some_and(|queue| send(queue.put.as_raw_fd(), message, flags).is_ok())
    }

    /// The descriptors, for the boot message and for a successor.
    pub fn files(&self) -> Vec<MessageQueueFiles> {
        let files = |queue: &Queue| MessageQueueFiles {
            name: queue.name.clone(),
            put: queue.put.as_raw_fd(),
            take: queue.take.as_raw_fd(),
        };
        self.list.iter().map(files).collect()
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.list.iter().flat_map(|queue| [queue.put.as_raw_fd(), queue.take.as_raw_fd()])
    }
}

fn no_socket(errno: Errno) -> io::Error {
    match errno {
        Errno::EMFILE | Errno::ENFILE => io::Error::other(format!(
            "{} for the queues of messages: raise the limit (max-fd, LimitNOFILE), or set fewer processes",
            errno.desc()
        )),
        errno => errno.into(),
    }
}

/// The names of the queues that settings need.
fn needed(settings: &Settings) -> Vec<String> {
    let inboxes = settings.services.inboxes.iter().flat_map(Inboxes::queue_names);
    settings.mules.queue_names(&settings.helpers).into_iter().chain(inboxes).collect()
}

/// Sets the size of a queue, for a root beyond the kernel's limit. Returns its size.
fn resize(put: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    // Only root may, and a master without that right still has the ordinary way.
    if setsockopt(&put, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(&put, sockopt::SndBuf, &bytes)?;
    }
    // The kernel doubles the number for its own overhead (socket(7)).
    Ok(getsockopt(&put, sockopt::SndBuf)? / 2)
}

fn has_messages(take: BorrowedFd<'_>) -> bool {
    // A socket that can't be polled is closed and has none.
    poll(&mut [PollFd::new(take, PollFlags::POLLIN)], PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::children::{Helper, Task};
    use bolide_contract::mules::Farm;
    use nix::sys::socket::recv;

    fn settings(mules: u32, farms: &[&str]) -> Settings {
        let mut settings = bolide_supervision::testing::settings();
        settings.helpers = (1..=mules).map(|number| Helper::new(Task::Mule { number, code: None })).collect();
        settings.mules.farms = farms.iter().map(|name| Farm { name: (*name).to_owned(), mules: vec![1] }).collect();
        settings
    }

    fn names(queues: &MessageQueues) -> Vec<String> {
        queues.files().into_iter().map(|files| files.name).collect()
    }

    #[test]
    fn queues_stay_while_they_are_configured_and_a_message_that_is_dropped_is_said() {
        let mut queues = MessageQueues::default();
        assert!(queues.extend_for(&settings(0, &["mail"])).expect("made").is_empty() && queues.files().is_empty());
        queues.extend_for(&settings(2, &["mail"])).expect("made");
        assert_eq!(names(&queues), ["mules", "mule 1", "mule 2", "farm mail"]);
        let before = queues.files();
        send(before[2].put, b"hello", MsgFlags::empty()).expect("sent");
        queues.extend_for(&settings(3, &[])).expect("made");
        assert_eq!(queues.files()[..4], before);
        assert!(queues.keep_for(&settings(3, &[])).is_empty());
        let mut bytes = [0; 9];
        assert_eq!(recv(queues.files()[2].take, &mut bytes, MsgFlags::MSG_PEEK), Ok(5));
        let lines = queues.keep_for(&settings(1, &[]));
        assert_eq!(lines, ["mule 2 is no longer configured, so the messages in its queue are dropped"]);
        assert_eq!(names(&queues), ["mules", "mule 1"]);
    }

    #[test]
    fn a_size_beyond_the_kernels_limit_is_said() {
        let mut queues = MessageQueues::default();
        let mut wanted = settings(1, &[]);
        wanted.mules.queue_bytes = Some(65_536);
        assert!(queues.extend_for(&wanted).expect("made").is_empty());
        wanted.mules.queue_bytes = Some(1 << 29);
        // Root is granted it.
        let lines = queues.extend_for(&wanted).expect("made");
        assert_eq!(lines.is_empty(), nix::unistd::getuid().is_root(), "{lines:?}");
    }
}
