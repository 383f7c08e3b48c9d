//! The permission to read this process' memory, for the one process that the master names (`bolide trace`, `bolide profile`).
//!
//! Where Yama restricts the reading of other processes (`ptrace_scope = 1`), only the process itself can allow it. The master
//! asks for it by a real-time signal, which works from any state: its handler runs on any thread, also while C code holds the
//! interpreter, and makes one system call. The permission ends with its reader. Prototypes, workers and helpers run it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bolide_contract::message::reader_signal;
use libc::{c_int, c_void, siginfo_t};

use crate::signals;

/// Signals with a wrong secret after which none is believed any more: guessing a number of 32 bits is in vain.
const MAX_WRONG: u32 = 16;

/// The secret of the instance; 0: there is none.
static SECRET: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU32 = AtomicU32::new(0);

/// Sets the handler. The prototype calls it before it loads the application; its forks inherit it.
///
/// # Errors
/// The error of `sigaction`.
pub fn allow_by_signal(secret: u32) -> io::Result<()> {
    SECRET.store(secret, Relaxed);
    signals::catch_with_information(reader_signal(), on_reader_signal)
}

extern "C" fn on_reader_signal(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    signals::keep_errno(|| {
        // SAFETY: the kernel passes a valid structure to a handler that is set with SA_SIGINFO. The value is read only if its
        // sender has set one.
        let value = unsafe {
            if (*info).si_code != libc::SI_QUEUE {
                return;
            }
            (*info).si_value().sival_ptr as u64
        };
        let (secret, reader) = ((value >> 32) as u32, value as u32);
        if !signals::is_owner() || WRONG.load(Relaxed) >= MAX_WRONG {
            return;
        }
        if secret == 0 || secret != SECRET.load(Relaxed) {
            WRONG.fetch_add(1, Relaxed);
            return;
        }
        // A kernel without Yama does not know the call: there it is not needed.
        // SAFETY: numbers only; the call is a plain system call.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(reader), 0, 0, 0) };
    });
}
