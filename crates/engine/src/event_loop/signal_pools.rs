//! The pools of uWSGI's signals in the poll of a worker: pipes that several workers read. A worker whose threads are all inside
//! of calls does not come to read, so that a free worker does. It does not know about handlers. Workers run it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};

use crate::app::Language;
use crate::event_loop::worker_state::Shared;
use crate::logging::access_log::complain;
use crate::scheduling::connections::Key;

/// Takes signals from this pipe too.
pub(crate) fn join_signal_pool<L: Language>(shared: &Shared<L>, pipe: OwnedFd) {
    shared.note_own(&pipe);
    shared.signals.join_pool(pipe);
    if !shared.is_held.load(Relaxed) && !shared.worker.is_paused() && !shared.worker.is_draining() {
        watch_signal_pools(shared);
    }
}

/// Registers the pools with the poll. Each signal wakes all workers that are idle: the kernel may tell one alone, which may begin
/// a long request before it looks.
pub(crate) fn watch_signal_pools<L: Language>(shared: &Shared<L>) {
    shared.signals.take_from_pools(true);
    shared.signals.for_each_pool(|pool| match shared.poll.add(pool, EpollEvent::new(EpollFlags::EPOLLIN, Key::SIGNALS.0)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => complain(shared.worker.number, &format!("can't watch for signals: {errno}")),
    });
}

/// Does not take signals from pools any more: others do.
pub(crate) fn leave_signal_pools<L: Language>(shared: &Shared<L>) {
    shared.signals.take_from_pools(false);
    shared.signals.for_each_pool(|pool| {
        let _may_be_unknown = shared.poll.delete(pool.as_fd());
    });
}
