//! The handler of a fault that ends the worker (`crash-reports`): it collects the facts in a memory file, Python stacks included,
//! hands the file to the master, and lets the fault take its course, which is the handler that was there before it, such as the
//! application's own `faulthandler`, and a core file come as without it.
//!
//! It does not know about reports or directories. Workers run it. Until a fault happens it costs nothing; the handler itself
//! makes async-signal-safe calls only.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_contract::life::PerLife;
use bolide_contract::message::{self, Report, crash_signal};
use bolide_prototype::signals::keep_errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use pyo3::Python;

use crate::stack_signal;

/// The signals of faults.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];
/// Bytes of the handler's own stack: a fault may come from a full one.
const STACK_BYTES: usize = 128 * 1024;
/// Bytes that are copied of each file in /proc.
const MAX_COPIED_BYTES: usize = 256 * 1024;
const PIECE_BYTES: usize = 4096;

/// What the handler needs, made before any fault.
struct DyingProcess {
    memory: OwnedFd,
    control: OwnedFd,
    packet: [u8; message::PACKET_BYTES],
    dump_signal: i32,
    before: [libc::sigaction; FAULTS.len()],
}

static PLACE: PerLife<DyingProcess> = PerLife::new();
/// Only one fault is reported, and one request for stacks at a time.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Installs the handler.
///
/// # Errors
/// No memory or descriptor is left, or the language can't write stacks.
pub fn install(row: u32, control: &OwnedFd) -> io::Result<()> {
    let memory = memfd_create(c"bolide-crash", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let dump_signal = crash_signal() + 1;
    Python::attach(|py| stack_signal::register(py, dump_signal, Some(memory.as_raw_fd()), true))
        .map_err(|error| io::Error::other(error.to_string()))?;
    // SAFETY: all zeros are a valid value of this type of integers and null pointers.
    let mut before: [libc::sigaction; FAULTS.len()] = unsafe { std::mem::zeroed() };
    for (signal, place) in FAULTS.iter().zip(&mut before) {
        // SAFETY: the call writes the current action to `place`, and changes nothing.
        unsafe { libc::sigaction(*signal, std::ptr::null(), place) };
    }
    let packet = message::packet(&Report::Crashed { row, pid: std::process::id() });
    let place = DyingProcess { memory, control: control.try_clone()?, packet, dump_signal, before };
    PLACE.set(place).map_err(|_| io::Error::other("the handler is installed once only"))?;
    // It lives as long as the process.
    let stack = Box::leak(vec![0u8; STACK_BYTES].into_boxed_slice());
    let alternate = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the memory is never freed, and no other thread uses it.
    unsafe { libc::sigaltstack(&alternate, std::ptr::null_mut()) };
    // SAFETY: as above for zeros.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    for signal in FAULTS.into_iter().chain([crash_signal()]) {
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and makes async-signal-safe calls only.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes the handler away again, in a fork of a worker that becomes a prototype.
pub fn uninstall() {
    let Some(place) = PLACE.get() else { return };
    for (signal, before) in FAULTS.iter().zip(&place.before) {
        // SAFETY: the action is the one that the kernel has returned for this signal.
        unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
    }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    keep_errno(|| note_signal(signal, info, context));
}

fn note_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(place) = PLACE.get() else { return };
    if !IS_BUSY.swap(true, Ordering::Relaxed) {
        // SAFETY: the kernel passes a valid `siginfo_t`; an address in it is a number that is not followed.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
        collect(place, signal, code, address, program_counter(context));
        send(place);
        if signal == crash_signal() {
            IS_BUSY.store(false, Ordering::Relaxed);
        }
    }
    if let Some(number) = FAULTS.iter().position(|fault| *fault == signal) {
        // SAFETY: the action is the one that was in force before this handler; the signal comes again when the handler has
        // returned, and ends the process if nothing else was installed.
        unsafe {
            libc::sigaction(signal, &place.before[number], std::ptr::null_mut());
            libc::raise(signal);
        }
    }
}

/// Writes the facts, each part below a line that begins with `===`.
fn collect(place: &DyingProcess, signal: i32, code: i32, address: u64, counter: u64) {
    let memory = place.memory.as_raw_fd();
    // SAFETY: these calls take numbers only.
    let thread = unsafe {
        libc::ftruncate(memory, 0);
        libc::lseek(memory, 0, libc::SEEK_SET);
        libc::syscall(libc::SYS_gettid) as u64
    };
    let facts: [(&[u8], u64); 5] = [
        (b"signal ", signal.cast_unsigned().into()),
        (b"code ", u64::from(code.cast_unsigned())),
        (b"address ", address),
        (b"counter ", counter),
        (b"thread ", thread),
    ];
    put(memory, b"=== fault\n");
    for (name, value) in facts {
        put(memory, name);
        put_number(memory, value);
        put(memory, b"\n");
    }
    put(memory, b"=== python\n");
    // SAFETY: faulthandler's handler of this signal runs within the call, and writes to the file.
    unsafe { libc::raise(place.dump_signal) };
    for (title, path) in [
        (&b"\n=== status\n"[..], c"/proc/self/status"),
        (&b"=== limits\n"[..], c"/proc/self/limits"),
        (&b"=== maps\n"[..], c"/proc/self/maps"),
    ] {
        put(memory, title);
        copy(memory, path);
    }
}

/// Hands the file to the master. A full socket loses it: the process exits in any case.
fn send(place: &DyingProcess) {
    let mut slice = libc::iovec { iov_base: place.packet.as_ptr().cast_mut().cast(), iov_len: place.packet.len() };
    let mut space = [0u64; 4];
    // SAFETY: all zeros are a valid `msghdr`. The control message is written inside of `space`, which is long enough for one
    // descriptor and aligned for its head, and all pointers live through the call.
    unsafe {
        let mut head: libc::msghdr = std::mem::zeroed();
        head.msg_iov = &mut slice;
        head.msg_iovlen = 1;
        head.msg_control = space.as_mut_ptr().cast();
        head.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let control = libc::CMSG_FIRSTHDR(&head);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(place.memory.as_raw_fd());
        libc::sendmsg(place.control.as_raw_fd(), &head, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
    }
}

/// Copies a file of /proc.
fn copy(memory: RawFd, path: &std::ffi::CStr) {
    // SAFETY: the path is a string of C.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut piece = [0u8; PIECE_BYTES];
    let mut copied = 0;
    while file >= 0 && copied < MAX_COPIED_BYTES {
        // SAFETY: the buffer has this length.
        let length = unsafe { libc::read(file, piece.as_mut_ptr().cast(), piece.len()) };
        let Ok(length @ 1..) = usize::try_from(length) else { break };
        put(memory, &piece[..length]);
        copied += length;
    }
    if file >= 0 {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(file) };
    }
}

fn put(memory: RawFd, bytes: &[u8]) {
    // SAFETY: the bytes live through the call. What can't be written is missing in the report.
    unsafe { libc::write(memory, bytes.as_ptr().cast(), bytes.len()) };
}

fn put_number(memory: RawFd, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    put(memory, &digits[first..]);
}

/// The address of the instruction that has failed; 0 if it is unknown here.
fn program_counter(context: *mut libc::c_void) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel passes a valid `ucontext_t` to a handler with SA_SIGINFO.
    return unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] }.cast_unsigned();
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    return unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = context;
        0
    }
}
