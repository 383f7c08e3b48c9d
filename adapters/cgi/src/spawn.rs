//! Executes a program: fork without a copy of the memory, setup of the child, exec. It does not know requests. Workers run it.
//!
//! The child shares the worker's memory until its exec, and the worker's thread waits for that (CLONE_VFORK), as posix_spawn does
//! it. A copy of the page tables would cost more than the rest of a small program. The child's code makes system calls only.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Pid;

/// Size of the child's stack in bytes, until its exec.
const STACK_BYTES: usize = 64 * 1024;
/// The highest signal number of Linux.
const MAX_SIGNAL: c_int = 64;
/// The kernel's sigaction of the default action is all zeros (SIG_DFL, no flags, an empty mask), in a structure of at most this
/// size on any machine.
const DEFAULT_ACTION: [u64; 8] = [0; 8];
/// Size of the kernel's signal set in bytes.
const SIGNAL_SET_BYTES: usize = MAX_SIGNAL as usize / 8;
/// The exit status of a child that could not execute its program. No one reads it.
const NOT_EXECUTED: c_int = 127;
/// Descriptors below this are closed one by one where the kernel lacks close_range(2), which Linux 5.9 has.
const MAX_CLOSED: c_int = 4096;
/// Executes a script that does not say its interpreter, as execvp(3) does.
const SHELL: &CStr = c"/bin/sh";

/// What is executed.
#[derive(Debug)]
pub struct Launch {
    /// The program, and its arguments after it.
    pub arguments: Vec<CString>,
    /// `NAME=VALUE`
    pub variables: Vec<CString>,
    /// The working directory.
    pub directory: CString,
}

/// Descriptors 0, 1 and 2 of the program.
pub struct StandardStreams<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub error: BorrowedFd<'a>,
}

/// A running program.
#[derive(Debug)]
pub struct Child {
    /// It is also the number of the program's process group.
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

/// The part of the setup that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Fork,
    Setup,
    Directory,
    Exec,
}

/// Executes programs. A worker has one.
pub struct Spawner {
    stack: Box<[MaybeUninit<u128>]>,
    /// Signals that are not at their default action in this process. A handler must not run in the child, and SIGPIPE is not
    /// ignored in the program.
    changed_signals: Vec<c_int>,
}

/// What the child needs, prepared before it exists.
struct Plan<'a> {
    streams: [c_int; 3],
    directory: *const c_char,
    file: *const c_char,
    arguments: *const *const c_char,
    shell_arguments: *const *const c_char,
    variables: *const *const c_char,
    changed_signals: &'a [c_int],
    parent: libc::pid_t,
    failure: Option<(Step, c_int)>,
}

impl Spawner {
    /// # Errors
    /// A system call fails.
    pub fn new() -> io::Result<Spawner> {
        // The descriptors of a program's streams are above 2, so none of them is overwritten while they get their numbers.
        loop {
            let empty = empty_file()?;
            if empty.as_raw_fd() > 2 {
                break;
            }
            // It keeps the number for the life of the process.
            std::mem::forget(empty);
        }
        let stack = vec![MaybeUninit::<u128>::uninit(); STACK_BYTES / size_of::<u128>()].into_boxed_slice();
        Ok(Spawner { stack, changed_signals: changed_signals() })
    }

    /// Executes a program in a process group of its own. It dies with this thread.
    ///
    /// # Errors
    /// The step that failed, and its error.
    pub fn start(&mut self, launch: &Launch, streams: &StandardStreams<'_>) -> Result<Child, (Step, io::Error)> {
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let arguments = pointers(&launch.arguments);
        let variables = pointers(&launch.variables);
        let mut shell_arguments = vec![SHELL.as_ptr()];
        shell_arguments.extend_from_slice(&arguments);
        let mut plan = Plan {
            streams: [streams.input.as_raw_fd(), streams.output.as_raw_fd(), streams.error.as_raw_fd()],
            directory: launch.directory.as_ptr(),
            file: arguments[0],
            arguments: arguments.as_ptr(),
            shell_arguments: shell_arguments.as_ptr(),
            variables: variables.as_ptr(),
            changed_signals: &self.changed_signals,
            parent: nix::unistd::getpid().as_raw(),
            failure: None,
        };
        let mut pidfd: c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        // SAFETY: the stack lives as long as the spawner and is used by one child at a time, because this thread waits for its
        // exec or its end. All signals are blocked in the meantime, so no handler of ours runs in the child. The child reads the
        // plan and the strings, which live until then, and writes `failure`, which this thread reads afterwards.
        let (pid, errno) = unsafe {
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            let mut all = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            let top = self.stack.as_mut_ptr_range().end;
            let plan: *mut Plan<'_> = &raw mut plan;
            let pid = libc::clone(become_program, top.cast(), flags, plan.cast(), &raw mut pidfd);
            let errno = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
            (pid, errno)
        };
        if pid < 0 {
            return Err((Step::Fork, errno));
        }
        // SAFETY: the kernel has opened the descriptor for us (CLONE_PIDFD, Linux 5.2).
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let child = Child { pid: Pid::from_raw(pid), pidfd };
        // SAFETY: the child has executed its program or has ended, so only this thread uses the plan. It was written through a
        // pointer that the compiler does not follow.
        match unsafe { (&raw const plan.failure).read_volatile() } {
            None => Ok(child),
            Some((step, errno)) => {
                let _ = nix::sys::wait::waitpid(child.pid, None);
                Err((step, io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// A file to read nothing from. A jail may lack /dev/null.
///
/// # Errors
/// No descriptor is left.
pub fn empty_file() -> io::Result<File> {
    File::open("/dev/null").or_else(|_| Ok(memfd_create(c"bolide-cgi", MFdFlags::MFD_CLOEXEC)?.into()))
}

/// The signals whose action may not be the default one. The C library keeps some for itself and does not tell their actions,
/// which may be inherited.
fn changed_signals() -> Vec<c_int> {
    let is_changed = |signal: &c_int| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the call only fills the structure, which is read if it has succeeded.
        unsafe {
            libc::sigaction(*signal, std::ptr::null(), action.as_mut_ptr()) != 0
                || action.assume_init().sa_sigaction != libc::SIG_DFL
        }
    };
    (1..=MAX_SIGNAL).filter(is_changed).collect()
}

extern "C" fn become_program(plan: *mut c_void) -> c_int {
    // SAFETY: the caller of clone(2) has passed the plan, and waits.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let step = set_up(plan);
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    plan.failure = Some((step, errno));
    // SAFETY: the call does not return, and runs nothing of the parent's.
    unsafe { libc::_exit(NOT_EXECUTED) }
}

/// Sets the child up and executes the program. Returns the step that failed, with its error in `errno`.
fn set_up(plan: &Plan<'_>) -> Step {
    // SAFETY: plain system calls on numbers and on strings that live until the exec. They change only what belongs to the child:
    // it shares neither descriptors nor signal actions nor the working directory with its parent.
    unsafe {
        if libc::setpgid(0, 0) < 0
            || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) < 0
            || libc::getppid() != plan.parent
        {
            return Step::Setup;
        }
        for (number, stream) in plan.streams.into_iter().enumerate() {
            if libc::dup2(stream, number as c_int) < 0 {
                return Step::Setup;
            }
        }
        if libc::syscall(libc::SYS_close_range, 3 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint) < 0 {
            for descriptor in 3..MAX_CLOSED {
                libc::close(descriptor);
            }
        }
        for signal in plan.changed_signals {
            // The kernel's own call, because the C library refuses the signals that it keeps for itself.
            libc::syscall(libc::SYS_rt_sigaction, *signal, DEFAULT_ACTION.as_ptr(), std::ptr::null::<u64>(), SIGNAL_SET_BYTES);
        }
        if libc::chdir(plan.directory) < 0 {
            return Step::Directory;
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::execve(plan.file, plan.arguments, plan.variables);
        if *libc::__errno_location() == libc::ENOEXEC {
            libc::execve(SHELL.as_ptr(), plan.shell_arguments, plan.variables);
        }
    }
    Step::Exec
}
