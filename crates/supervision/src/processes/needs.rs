//! What the kernel and the limits of this process must allow: looked at before anything is started. A worker that lacked one of
//! them would end at its start and be forked again for ever, or the master would end without a word.
//!
//! It does not know options. The process that becomes the master runs it.

use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::socket::{SockFlag, accept4};
use nix::sys::timer::Timer;
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

use bolide_contract::message::TIMERS_REFUSED;

use crate::error::StartError;

/// The least stack of the main thread, in bytes: about three times what reading a configuration takes.
const MIN_STACK_BYTES: u64 = 1 << 20;
/// No descriptor: `accept4` reports it, unless the kernel refuses the call itself.
const NO_DESCRIPTOR: RawFd = -1;

/// Makes a system call, and drops what it gives.
type Trial = fn() -> Result<(), Errno>;

/// Raises the limit of the stack if it is too small. The kernel looks at it whenever the main thread's stack grows, so it counts
/// immediately.
///
/// # Errors
/// The hard limit is too small.
pub fn ensure_stack() -> Result<(), StartError> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return Ok(()) };
    if soft >= MIN_STACK_BYTES {
        return Ok(());
    }
    // Root may raise the hard limit too.
    setrlimit(Resource::RLIMIT_STACK, MIN_STACK_BYTES, hard.max(MIN_STACK_BYTES)).map_err(|errno| {
        let (has, least) = (hard >> 10, MIN_STACK_BYTES >> 10);
        let kind = errno.desc();
        StartError::new(format!("the stack has at most {has} KiB, and {least} KiB are needed ({kind}): raise `ulimit -s`"))
    })
}

/// Looks for the calls without which no process of an instance can work.
///
/// # Errors
/// The kernel refuses one of them.
pub fn check() -> Result<(), StartError> {
    let calls: [(&str, Trial); 4] = [
        ("epoll_create1", || Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(drop)),
        ("eventfd2", || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map(drop)),
        ("timerfd_create", || TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).map(drop)),
        ("accept4", || accept4(NO_DESCRIPTOR, SockFlag::SOCK_CLOEXEC).map(drop)),
    ];
    for (name, call) in calls {
        // Other errors, such as EMFILE, are reported where the call is needed.
        if let Err(errno @ (Errno::ENOSYS | Errno::EPERM | Errno::EACCES)) = call() {
            return Err(StartError::new(format!(
                "the kernel refuses the system call `{name}`: {}: allow it in the seccomp profile (systemd's \
                `SystemCallFilter=`), or run a kernel that has it; no worker can run without it",
                errno.desc()
            )));
        }
    }
    check_timer()
}

/// Each prototype and worker has a timer, which counts among the pending signals of its user.
fn check_timer() -> Result<(), StartError> {
    let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
    match Timer::new(nix::time::ClockId::CLOCK_MONOTONIC, event) {
        // It is deleted without having been set.
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN) => Err(StartError::new(TIMERS_REFUSED)),
        Err(errno) => Err(StartError::new(format!("the kernel refuses the system call `timer_create`: {}", errno.desc()))),
    }
}
