//! A lock between processes that survives its holder: a robust mutex of libc, beside the pid of the process that holds it. It
//! does not know what it protects. The master makes locks and recovers those of dead processes; every process may take them.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A lock in shared memory. Zeroed memory is not a lock yet: [`RobustLock::begin`] makes it one.
#[repr(C, align(64))]
pub struct RobustLock {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// The pid of the process that holds the lock. It is 0 while the lock is free, and for the moments between the mutex and this
    /// number, in which a process may die too.
    owner: AtomicU32,
    /// The pid of the last process that died inside the lock; 0 if none did.
    dead: AtomicU32,
    /// How many processes died inside the lock.
    deaths: AtomicU32,
}

// SAFETY: the mutex is made to be shared between threads and processes, and the rest is atomics.
unsafe impl Send for RobustLock {}
// SAFETY: as above.
unsafe impl Sync for RobustLock {}

/// The held lock. It is released when the guard is dropped.
#[derive(Debug)]
#[must_use = "the lock is released immediately"]
pub struct Guard<'a> {
    lock: &'a RobustLock,
    /// The last holder died inside the lock: its pid, or 0 if it died before it could write its pid. The data may be half
    /// changed, so repair it before anything else. A process that dies in the repair leaves the same mark to the next holder.
    pub left_by: Option<u32>,
    /// A guard is released by the thread that took it.
    _thread: std::marker::PhantomData<*const ()>,
}

/// What an exited process did with a lock.
#[derive(Debug)]
pub enum Left<'a> {
    /// It did not die inside of it.
    Free,
    /// It held it: the guard is for the repair.
    Held(Guard<'a>),
    /// It held it, and the next holder has repaired the data, or is about to.
    Recovered,
}

/// A lock that a process held when it died, and that has been repaired: the outcome of a recovery, for the log. A prototype has
/// it from each structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// What the lock protects: `the cache "sessions"`.
    pub what: String,
    /// What was lost with the process, as the end of a sentence: `the item that it wrote is dropped`. Empty: nothing.
    pub lost: String,
}

impl std::fmt::Debug for RobustLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RobustLock").field("owner", &self.owner).field("deaths", &self.deaths).finish_non_exhaustive()
    }
}

impl RobustLock {
    /// Makes a free lock of this memory. Call it before other processes know the memory, or when none of them can hold the lock:
    /// the locks in a file are made again at startup.
    ///
    /// # Errors
    /// The system has no robust mutexes.
    pub fn begin(&self) -> io::Result<()> {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attribute = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialized by the first call and destroyed by the last one; no process uses the mutex yet.
        let result = unsafe {
            check(libc::pthread_mutexattr_init(attribute))?;
            let made = check(libc::pthread_mutexattr_setpshared(attribute, libc::PTHREAD_PROCESS_SHARED))
                .and_then(|()| check(libc::pthread_mutexattr_setrobust(attribute, libc::PTHREAD_MUTEX_ROBUST)))
                // A thread that takes the lock twice gets an error instead of waiting for itself.
                .and_then(|()| check(libc::pthread_mutexattr_settype(attribute, libc::PTHREAD_MUTEX_ERRORCHECK)))
                .and_then(|()| check(libc::pthread_mutex_init(self.mutex.get(), attribute)));
            libc::pthread_mutexattr_destroy(attribute);
            made
        };
        for number in [&self.owner, &self.dead, &self.deaths] {
            number.store(0, Relaxed);
        }
        result
    }

    /// Waits for the lock, however long it takes.
    ///
    /// # Errors
    /// This thread holds the lock already (`EDEADLK`), or the memory is not a lock.
    #[inline]
    pub fn lock(&self) -> io::Result<Guard<'_>> {
        // SAFETY: a mutex that `begin` has made; every process maps the same memory.
        let taken = unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
        self.taken(taken)
    }

    /// Takes the lock if it is free. Returns `None` if another thread or process holds it.
    ///
    /// # Errors
    /// The memory is not a lock.
    #[inline]
    pub fn try_lock(&self) -> io::Result<Option<Guard<'_>>> {
        // SAFETY: as in `lock`.
        match unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } {
            libc::EBUSY => Ok(None),
            taken => self.taken(taken).map(Some),
        }
    }

    /// Waits for the lock up to this time. Returns `None` if another thread or process holds it still.
    ///
    /// # Errors
    /// As in [`RobustLock::lock`].
    pub fn lock_within(&self, time: Duration) -> io::Result<Option<Guard<'_>>> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
        let until = nix::sys::time::TimeSpec::from_duration(Duration::from(now) + time);
        // SAFETY: as in `lock`; the time lives through the call.
        match unsafe { libc::pthread_mutex_timedlock(self.mutex.get(), until.as_ref()) } {
            libc::ETIMEDOUT => Ok(None),
            taken => self.taken(taken).map(Some),
        }
    }

    /// Releases a lock whose guard was kept.
    ///
    /// # Errors
    /// This thread does not hold it (`EPERM`).
    #[inline]
    pub fn release(&self) -> io::Result<()> {
        let pid = own_pid();
        let was_ours = self.owner() == pid;
        if was_ours {
            self.owner.store(0, Relaxed);
        }
        // SAFETY: as in `lock`. The call fails for a thread that does not hold the mutex, since it is error-checking.
        check(unsafe { libc::pthread_mutex_unlock(self.mutex.get()) }).inspect_err(|_| {
            // Another thread of this process holds it.
            if was_ours {
                let _ = self.owner.compare_exchange(0, pid, Relaxed, Relaxed);
            }
        })
    }

    /// The pid of the process that holds the lock; 0 if it is free.
    pub fn owner(&self) -> u32 {
        self.owner.load(Relaxed)
    }

    /// The pid of the last process that died inside the lock, if one did.
    pub fn last_dead(&self) -> Option<u32> {
        Some(self.dead.load(Relaxed)).filter(|&pid| pid != 0)
    }

    /// How many processes died inside the lock since it was made.
    pub fn deaths(&self) -> u32 {
        self.deaths.load(Relaxed)
    }

    /// Takes over the lock of an exited process, if it died inside of it. It never waits. A lock that was left by a
    /// process whose pid is not written is taken for this one's.
    ///
    /// # Errors
    /// The memory is not a lock.
    pub fn recover(&self, pid: u32) -> io::Result<Left<'_>> {
        if [0, pid].contains(&self.owner())
            && let Some(mut guard) = self.try_lock()?
            && guard.left_by.is_some()
        {
            self.dead.store(pid, Relaxed);
            guard.left_by = Some(pid);
            return Ok(Left::Held(guard));
        }
        Ok(if self.last_dead() == Some(pid) { Left::Recovered } else { Left::Free })
    }

    #[inline]
    fn taken(&self, result: i32) -> io::Result<Guard<'_>> {
        let left_by = match result {
            0 => None,
            libc::EOWNERDEAD => Some(self.note_death()?),
            error => return Err(io::Error::from_raw_os_error(error)),
        };
        self.owner.store(own_pid(), Relaxed);
        Ok(Guard { lock: self, left_by, _thread: std::marker::PhantomData })
    }

    #[cold]
    fn note_death(&self) -> io::Result<u32> {
        let dead = self.owner();
        self.dead.store(dead, Relaxed);
        self.deaths.fetch_add(1, Relaxed);
        // SAFETY: this thread has just got the mutex from a dead holder. If it dies in the repair, the next one is told the same.
        check(unsafe { libc::pthread_mutex_consistent(self.mutex.get()) })?;
        Ok(dead)
    }
}

impl Guard<'_> {
    /// Keeps the lock beyond the guard: this thread is to call [`RobustLock::release`].
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.owner.store(0, Relaxed);
        // SAFETY: this thread holds the mutex, since the guard can't leave it.
        let released = unsafe { libc::pthread_mutex_unlock(self.lock.mutex.get()) };
        debug_assert_eq!(released, 0, "a lock is released by the thread that holds it");
    }
}

fn check(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The pid of this process; 0 before the first look and after a fork. A system call for each lock would cost more than the lock.
static PID: AtomicU32 = AtomicU32::new(0);

/// The pid of this process.
#[inline]
pub fn own_pid() -> u32 {
    match PID.load(Relaxed) {
        0 => look_up_pid(),
        pid => pid,
    }
}

#[cold]
fn look_up_pid() -> u32 {
    /// Called in the child of a fork.
    extern "C" fn forget() {
        PID.store(0, Relaxed);
    }
    /// Not a `Once`: a fork while another thread is in it would leave one that the child waits for without end. Two threads that
    /// register the function are harmless.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    let pid = std::process::id();
    // SAFETY: the function only stores a number, which any thread may do at any time.
    let is_registered = IS_REGISTERED.load(Relaxed) || unsafe { libc::pthread_atfork(None, None, Some(forget)) } == 0;
    // Without memory for the function, a child could not tell that the number is its parent's.
    if is_registered {
        IS_REGISTERED.store(true, Relaxed);
        PID.store(pid, Relaxed);
    }
    pid
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::boot::MemoryKind;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, Pid, fork};

    use crate::mapping::{Identity, Mapping};

    const IDENTITY: Identity = Identity { kind: MemoryKind::Locks, version: 1, shape: 0, bytes: size_of::<RobustLock>() };

    /// A lock that children of this process share.
    fn lock() -> &'static RobustLock {
        let (mapping, _memory) = Mapping::create("test", &IDENTITY).expect("made");
        let mapping: &'static Mapping = Box::leak(Box::new(mapping));
        // SAFETY: the memory is zeroed, aligned, and long enough for the lock; it is never unmapped.
        let lock: &'static RobustLock = unsafe { mapping.body().cast().as_ref() };
        lock.begin().expect("robust mutexes");
        lock
    }

    /// Runs `child` in another process, which then waits to be killed. Returns its pid when `is_ready` holds.
    fn process(child: impl FnOnce(), is_ready: impl Fn() -> bool) -> Pid {
        // SAFETY: the child uses atomics, the lock and pause(2) only.
        match unsafe { fork() }.expect("a process") {
            ForkResult::Child => {
                child();
                loop {
                    nix::unistd::pause();
                }
            }
            ForkResult::Parent { child } => {
                while !is_ready() {
                    std::thread::yield_now();
                }
                child
            }
        }
    }

    fn end(pid: Pid) {
        kill(pid, Signal::SIGKILL).expect("killed");
        waitpid(pid, None).expect("reaped");
    }

    fn process_that_holds(lock: &'static RobustLock) -> Pid {
        let deaths = lock.deaths();
        let take = move || {
            if let Ok(guard) = lock.lock() {
                std::mem::forget(guard);
            }
        };
        let pid = process(take, || lock.owner() != 0 && lock.owner() != std::process::id() && lock.deaths() == deaths);
        assert_eq!(lock.owner(), pid.as_raw().unsigned_abs());
        pid
    }

    #[test]
    fn a_lock_of_a_killed_process_goes_to_the_next_one_which_is_told_so() {
        let lock = lock();
        let pid = process_that_holds(lock);
        assert!(lock.try_lock().expect("a lock").is_none());
        assert!(lock.lock_within(Duration::from_millis(1)).expect("a lock").is_none());
        end(pid);
        let dead = pid.as_raw().unsigned_abs();
        let guard = lock.lock().expect("taken");
        assert_eq!(guard.left_by, Some(dead));
        assert_eq!((lock.owner(), lock.last_dead(), lock.deaths()), (std::process::id(), Some(dead), 1));
        drop(guard);
        assert_eq!(lock.lock().expect("taken").left_by, None, "it is repaired");
    }

    #[test]
    fn the_master_recovers_what_a_dead_process_held_and_nothing_else() {
        let lock = lock();
        let pid = process_that_holds(lock);
        let number = pid.as_raw().unsigned_abs();
        assert!(matches!(lock.recover(number), Ok(Left::Free)), "it lives");
        end(pid);
        assert!(matches!(lock.recover(number + 1), Ok(Left::Free)), "another one");
        let Ok(Left::Held(guard)) = lock.recover(number) else { panic!("it is not recovered") };
        assert_eq!(guard.left_by, Some(number));
        drop(guard);
        assert!(matches!(lock.recover(number), Ok(Left::Recovered)));
        assert!(matches!(lock.recover(number + 1), Ok(Left::Free)));
    }

    #[test]
    fn the_master_recovers_a_lock_whose_holder_died_before_its_pid_was_written() {
        let lock = lock();
        drop(lock.lock().expect("free"));
        let take = || {
            // SAFETY: as in `RobustLock::lock`, of which this is the first step.
            unsafe { libc::pthread_mutex_lock(lock.mutex.get()) };
        };
        let pid = process(take, || matches!(lock.try_lock(), Ok(None)));
        end(pid);
        let number = pid.as_raw().unsigned_abs();
        let Ok(Left::Held(guard)) = lock.recover(number) else { panic!("it is not recovered") };
        assert_eq!((guard.left_by, lock.last_dead()), (Some(number), Some(number)));
        drop(guard);
        assert_eq!(lock.lock().expect("taken").left_by, None, "it is repaired");
    }

    #[test]
    fn a_second_holder_that_dies_in_the_repair_is_told_apart_too() {
        let lock = lock();
        end(process_that_holds(lock));
        // The second one dies before its repair has ended.
        let second = process(
            || {
                if let Ok(guard) = lock.lock() {
                    std::mem::forget(guard);
                }
            },
            || lock.deaths() == 1 && lock.owner() != lock.last_dead().unwrap_or_default(),
        );
        end(second);
        assert_eq!(lock.lock().expect("taken").left_by, Some(second.as_raw().unsigned_abs()));
        assert_eq!(lock.deaths(), 2);
    }

    #[test]
    fn a_thread_that_takes_a_lock_twice_gets_an_error() {
        let lock = lock();
        let guard = lock.lock().expect("taken");
        assert_eq!(lock.lock().err().and_then(|error| error.raw_os_error()), Some(libc::EDEADLK));
        drop(guard);
        assert!(lock.try_lock().expect("a lock").is_some());
    }
}
