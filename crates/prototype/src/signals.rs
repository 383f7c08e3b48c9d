//! Signal handling of a prototype and its workers.
//!
//! A signal to every process of an instance (systemd's `KillMode=control-group`, a `kill` of the group, a stray `pkill`) must
//! have exactly the effect that the master gives it. So [`GROUP_SIGNALS`] do nothing here, except that the process reports
//! [`SINGLE_SIGNALS`]: the master knows whether it got the same signal, and what the signal means to one process. They are
//! caught, not ignored: programs that the application starts have the default actions, and so have its forks. Handlers that an
//! application sets itself stay.
//!
//! No worker outlives both master and prototype: the kernel signals the death of a worker's parent by [`orphan_signal`], and a
//! worker that has neither left is killed by its own timer after [`ORPHAN_KILL_MS`], whatever its threads are doing. This does
//! not need interpreters.
//!
//! The handlers make async-signal-safe calls only (signal-safety(7)). Prototypes and workers run it.

use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::Relaxed};

use bolide_contract::message::{GROUP_SIGNALS, Report, SINGLE_SIGNALS, TIMERS_REFUSED, helper_signal, orphan_signal, packet};
use libc::c_int;

/// Time after which a worker without master and prototype is killed, in milliseconds. All of Bolide must be gone within two
/// seconds.
pub const ORPHAN_KILL_MS: i64 = 1_000;

/// Signals of the group that a terminal sends too. They stay blocked if the application is debugged at a terminal.
const TERMINAL_SIGNALS: [c_int; 2] = [libc::SIGINT, libc::SIGHUP];
static AT_TERMINAL: AtomicBool = AtomicBool::new(false);

/// The process that has set its signals here, in contrast to processes that the application has forked.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The process' end of its control socket, and its row, which a prototype does not have.
static CONTROL: AtomicI32 = AtomicI32::new(-1);
static ROW: AtomicU32 = AtomicU32::new(NO_ROW);
const NO_ROW: u32 = u32::MAX;
/// The processes that may be a worker's parent.
static MASTER: AtomicI32 = AtomicI32::new(0);
static PROTOTYPE: AtomicI32 = AtomicI32::new(0);
/// The timer that kills an orphan: a `timer_t`, which the C library may define as any number, including 0.
static TIMER: AtomicUsize = AtomicUsize::new(NO_TIMER);
const NO_TIMER: usize = usize::MAX;

/// Replaces the default actions of the group's signals. The prototype calls it before it loads the application. The signals were
/// blocked before its exec, so none arrives too early.
///
/// # Errors
/// The error of `sigaction`.
pub fn in_prototype(control: BorrowedFd<'_>, master: i32, at_terminal: bool) -> io::Result<()> {
    AT_TERMINAL.store(at_terminal, Relaxed);
    CONTROL.store(control.as_raw_fd(), Relaxed);
    OWNER.store(nix::unistd::getpid().as_raw(), Relaxed);
    MASTER.store(master, Relaxed);
    for signal in GROUP_SIGNALS {
        catch_with_information(signal, on_group_signal)?;
    }
    block_group(false)
}

/// Sets the signals of a prototype that was forked from a worker, in which they were blocked before. Its handlers are there.
///
/// # Errors
/// The error of `pthread_sigmask`.
pub fn in_next_prototype(control: BorrowedFd<'_>) -> io::Result<()> {
    CONTROL.store(control.as_raw_fd(), Relaxed);
    ROW.store(NO_ROW, Relaxed);
    // A timer is not inherited (timer_create(2)).
    TIMER.store(NO_TIMER, Relaxed);
    OWNER.store(nix::unistd::getpid().as_raw(), Relaxed);
    block_group(false)
}

/// Blocks or unblocks the group's signals: around a fork, until the child has set its identity here.
///
/// # Errors
/// The error of `pthread_sigmask`.
pub fn block_group(block: bool) -> io::Result<()> {
    let stays_blocked = |signal: &c_int| AT_TERMINAL.load(Relaxed) && TERMINAL_SIGNALS.contains(signal);
    let signals = GROUP_SIGNALS.into_iter().filter(|signal| block || !stays_blocked(signal));
    mask(if block { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK }, signals)
}

/// Sets the signals of a worker or helper that was just forked. From here on it reports them itself, and does not outlive its
/// parents.
///
/// # Errors
/// The error of `timer_create`, `sigaction` or `prctl`.
pub fn in_worker(control: BorrowedFd<'_>, row: u32, prototype: i32) -> io::Result<()> {
    CONTROL.store(control.as_raw_fd(), Relaxed);
    ROW.store(row, Relaxed);
    PROTOTYPE.store(prototype, Relaxed);
    OWNER.store(nix::unistd::getpid().as_raw(), Relaxed);
    follow_parents()?;
    block_group(false)
}

/// From here on this process does not outlive its parents, whatever it is doing. A worker calls it at its start. A prototype
/// calls it when it is done, because its interpreter may take time to exit.
///
/// # Errors
/// The error of `timer_create`, `sigaction` or `prctl`.
pub fn follow_parents() -> io::Result<()> {
    TIMER.store(killing_timer()? as usize, Relaxed);
    catch(orphan_signal(), on_orphan_signal)?;
    mask(libc::SIG_UNBLOCK, [orphan_signal()])?;
    // SAFETY: the call takes numbers and asks for a signal that has its handler.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, orphan_signal() as libc::c_ulong, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // If a parent died before the kernel was asked, no signal comes.
    end_soon_if_orphaned();
    Ok(())
}

/// Sets the signals of a helper. The signal that tells it to read its orders ends its waits; a language may set a handler of its
/// own.
///
/// # Errors
/// The error of `sigaction`.
pub fn in_helper() -> io::Result<()> {
    catch_with(helper_signal(), on_helper_signal, 0)
}

extern "C" fn on_helper_signal(_: c_int) {}

extern "C" fn on_group_signal(signal: c_int, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    keep_errno(|| {
        if !is_owner() {
            // A child of the application: act as if no handler had been set. The signal is raised again and delivered when this
            // handler returns.
            // SAFETY: both calls take numbers; the default action does not run our code.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            return;
        }
        if SINGLE_SIGNALS.contains(&signal) {
            // SAFETY: the kernel passes valid information to a handler with SA_SIGINFO; every signal by kill(2) has a sender.
            let sender = unsafe { if (*information).si_code <= 0 { (*information).si_pid() } else { 0 } };
            send(&Report::GotSignal { row: ROW.load(Relaxed), signal: signal.unsigned_abs(), sender: sender.unsigned_abs() });
        }
    });
}

/// Asks the master for a worker to replace this one, which goes on serving until then. In a prototype, and in a process that the
/// application has forked, it does nothing. Async-signal-safe.
pub fn ask_for_replacement() {
    let row = ROW.load(Relaxed);
    if row != NO_ROW && is_owner() {
        send(&Report::Worn { row, pid: OWNER.load(Relaxed) as u32 });
    }
}

/// Sends a report. Async-signal-safe.
fn send(report: &Report) {
    let control = CONTROL.load(Relaxed);
    if control < 0 {
        return;
    }
    let report = packet(report);
    // If the master does not read, the report is dropped; it can be sent again.
    // SAFETY: the bytes are ours for the call, which does not block and does not raise SIGPIPE.
    unsafe { libc::send(control, report.as_ptr().cast(), report.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
}

extern "C" fn on_orphan_signal(_: c_int) {
    keep_errno(end_soon_if_orphaned);
}

fn end_soon_if_orphaned() {
    // SAFETY: the call can't fail and does not have arguments.
    let parent = unsafe { libc::getppid() };
    let timer = TIMER.load(Relaxed);
    if !is_owner() || timer == NO_TIMER || parent == MASTER.load(Relaxed) || parent == PROTOTYPE.load(Relaxed) {
        return;
    }
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: ORPHAN_KILL_MS / 1000, tv_nsec: ORPHAN_KILL_MS % 1000 * 1_000_000 },
    };
    // SAFETY: this process (its owner) created the timer, which is never deleted; the time is ours for the call.
    unsafe { libc::timer_settime(timer as libc::timer_t, 0, &raw const once, null_mut()) };
}

pub(crate) fn is_owner() -> bool {
    // SAFETY: the call can't fail and does not have arguments.
    unsafe { libc::getpid() == OWNER.load(Relaxed) }
}

/// Restores `errno` after a handler: the interrupted code may be about to read it.
pub fn keep_errno(body: impl FnOnce()) {
    // SAFETY: the C library returns a pointer that belongs to the calling thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; it is valid for as long as the thread lives.
    let before = unsafe { *place };
    body();
    // SAFETY: as above.
    unsafe { *place = before };
}

pub(crate) fn catch(signal: c_int, handler: extern "C" fn(c_int)) -> io::Result<()> {
    // System calls of the application that a signal interrupts are restarted.
    catch_with(signal, handler, libc::SA_RESTART)
}

fn catch_with(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) -> io::Result<()> {
    set_action(signal, handler as *const () as usize, flags)
}

/// Sets a handler that gets the signal's value and sender. Interrupted system calls are restarted.
pub(crate) fn catch_with_information(
    signal: c_int,
    handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void),
) -> io::Result<()> {
    set_action(signal, handler as *const () as usize, libc::SA_RESTART | libc::SA_SIGINFO)
}

/// `handler` is a function of the type that the flags ask for.
fn set_action(signal: c_int, handler: usize, flags: c_int) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags | libc::SA_ONSTACK;
    // SAFETY: the handler is a function of the right type that makes async-signal-safe calls only.
    if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn mask(how: c_int, signals: impl IntoIterator<Item = c_int>) -> io::Result<()> {
    // SAFETY: the set is initialized before it is used; the numbers are signals.
    let error = unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// A timer that sends SIGKILL. Created ahead: `timer_settime` is async-signal-safe, `timer_create` is not.
fn killing_timer() -> io::Result<libc::timer_t> {
    // SAFETY: all zeroes is a valid `sigevent`, whose fields are set below.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGKILL;
    let mut timer: libc::timer_t = null_mut();
    // SAFETY: both pointers are to locals that live through the call.
    if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } < 0 {
        let error = io::Error::last_os_error();
        let has_none = error.kind() == io::ErrorKind::WouldBlock;
        return Err(if has_none { io::Error::other(format!("{TIMERS_REFUSED} ({error})")) } else { error });
    }
    Ok(timer)
}
