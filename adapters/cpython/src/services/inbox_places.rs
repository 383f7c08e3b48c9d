//! The inboxes of the instance as this process sees them: the table of those that listen, their sockets, and putting a message
//! into one. It does not know Python, or where a message comes from. Every process that loads the application runs it.
//!
//! No publisher waits for a slow listener, whose missed messages are counted in the table.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::boot::Boot;
use bolide_memory::inboxes::{ChannelBit, InboxTable};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::attachment::attached;
use super::inbox_packets::{Outgoing, Put, wake};

/// Memory files that wait in an inbox and in all inboxes, about: publishers look before they put one in. Each has up to
/// [`super::inbox_packets::MAX_MESSAGE_BYTES`], and is a descriptor in flight. The kernel allows a user as many of these as a
/// process may have files open (unix(7)), usually 1024, and connections that move and orders of the master need some of them.
const MAX_FILES_IN_INBOX: u64 = 16;
const MAX_FILES_IN_FLIGHT: u64 = 128;

/// The ends of each inbox, in the order of the table: to put into, and to take from. The master keeps copies of both.
static SOCKETS: OnceLock<Vec<[RawFd; 2]>> = OnceLock::new();

/// The number of this process' inbox plus 1, and the pid that holds it: a child that the application forks has none.
static OWN: AtomicU64 = AtomicU64::new(0);

/// Keeps the sockets of the inboxes. The prototype calls it once, and its children inherit them.
pub fn attach(boot: &Boot) {
    let names = boot.settings.services.inboxes.iter().flat_map(|inboxes| inboxes.queue_names());
    let sockets = names.map_while(|name| {
        let files = boot.message_queues.iter().find(|files| files.name == name)?;
        Some([files.put, files.take])
    });
    SOCKETS.get_or_init(|| sockets.collect());
    // Processes whose prototype was killed with them.
    if let Some(table) = table() {
        (0..table.count()).for_each(|number| table.release_if_gone(number, is_gone));
    }
}

pub fn is_gone(pid: u32) -> bool {
    kill(Pid::from_raw(pid.cast_signed()), None) == Err(Errno::ESRCH)
}

/// Frees the inbox of a process of this prototype that has exited.
pub fn note_end(pid: u32) {
    if let Some(table) = table() {
        table.release(pid);
    }
}

/// `None` without `publish`.
pub fn table() -> Option<&'static InboxTable<'static>> {
    attached()?.inboxes.as_ref()
}

/// Empty without `publish`.
pub fn sockets() -> Option<&'static [[RawFd; 2]]> {
    SOCKETS.get().map(Vec::as_slice)
}

/// The number of this process' inbox.
pub fn own() -> Option<usize> {
    let own = OWN.load(Relaxed);
    let number = (own & 0xffff_ffff).checked_sub(1)?;
    ((own >> 32) == u64::from(std::process::id())).then_some(number as usize)
}

/// This process holds the inbox of this number from now on, or none.
pub fn set_own(number: Option<usize>) {
    OWN.store(number.map_or(0, |number| u64::from(std::process::id()) << 32 | (number as u64 + 1)), Relaxed);
}

/// Puts a message into the inbox of this number, without waiting.
///
/// # Errors
/// Errors of the socket.
pub fn put(table: &InboxTable<'_>, number: usize, inbox: RawFd, outgoing: &Outgoing<'_>) -> io::Result<Put> {
    let has_room = !outgoing.has_file() || table.files(number) < MAX_FILES_IN_INBOX && table.files_of_all() < MAX_FILES_IN_FLIGHT;
    let outcome = if has_room { outgoing.put(inbox)? } else { Put::Full };
    if outcome == Put::Done {
        table.note_put(number, outgoing.has_file());
    }
    Ok(outcome)
}

/// Counts a message that did not fit.
pub fn miss(table: &InboxTable<'_>, number: usize, inbox: RawFd, bit: ChannelBit) {
    table.note_missed(number, bit);
    table.release_if_gone(number, is_gone);
    // Its reader may have emptied the inbox in the meantime, and would not look at the counter before the next message.
    wake(inbox);
}
