//! The loop of a prototype: it executes the master's orders and reports. The application itself is the adapter's. The prototype
//! runs it, and workers report the files that they import (`py-autoreload`) as it does.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide_contract::boot::{Boot, BulkheadFiles, SessionFiles};
use bolide_contract::children::Task;
use bolide_contract::life;
use bolide_contract::message::{self, IMPORTS_BYTES, Order, Received, Report};
use bolide_engine::uwsgi_signals::report_registrations;
use bolide_engine::{Assignment, Succession, opened_for_worker};
use bolide_scoreboard::Scoreboard;
use bolide_scoreboard::log_losses::LogLosses;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid, getpid, getppid};

use crate::application::Application;
use crate::assignment::{ForkedAs, SharedMemory, assignment};
use crate::children::Children;
use crate::handover::{FailureNote, close_on_exec, inherited, read_boot, set_non_blocking};
use crate::helper::Helper;
use crate::{reader, signals};

/// Time that workers have to finish their requests when the master has died, in milliseconds. All of Bolide must be gone within
/// two seconds.
const ORPHAN_MERCY_MS: u64 = 1_000;

/// A prototype's view of its instance.
pub struct Prototype {
    boot: Boot,
    scoreboard: OwnedFd,
    ticket_keys: Option<OwnedFd>,
    failure_note: FailureNote,
    /// The control socket: the prototype's, and in a worker or a helper its own.
    control: Option<OwnedFd>,
    children: Children,
    /// In a worker of an instance with `refork-after`: what it needs to become another prototype.
    succession: Option<Arc<Succession>>,
    /// It does not fork any more, and exits when its last child has exited.
    is_retiring: bool,
}

/// The result of waiting for orders.
enum Wake {
    Fork(ForkedAs, OwnedFd),
    /// Children have exited, which the master is not told yet.
    Ended(Vec<Report>),
    Retired,
    Orphaned,
}

impl Prototype {
    /// Reads the boot message from this descriptor, and takes ownership of the descriptors that it lists.
    pub fn take_over(boot: RawFd) -> io::Result<Prototype> {
        let boot = read_boot(boot)?;
        if let Some(log) = boot.log {
            bolide_log::inherit(inherited(log)?)?;
        }
        for (place, target) in boot.log_targets.iter().enumerate() {
            bolide_log::take_target(place + 1, inherited(*target)?)?;
        }
        if let Some(losses) = boot.log_losses {
            bolide_log::losses::share(LogLosses::attach(&inherited(losses)?)?);
        }
        if let Some(alarms) = boot.alarms {
            bolide_log::alarms::connect(inherited(alarms)?);
        }
        bolide_log::alarms::set_message_bytes(boot.settings.alarms.message_bytes);
        bolide_log::configure(&boot.settings.logging);
        let control = inherited(boot.control)?;
        // Orders are also read after the end of a child has woken us, when there may be none: that must not block.
        set_non_blocking(&control)?;
        let scoreboard = inherited(boot.scoreboard)?;
        let ticket_keys = boot.ticket_keys.map(inherited).transpose()?;
        let failure_note = FailureNote::new(inherited(boot.reason)?);
        let sessions = boot.sessions.iter().flat_map(SessionFiles::descriptors);
        let bulkheads = boot.bulkheads.iter().flat_map(BulkheadFiles::descriptors);
        for descriptor in boot.connection_queue.into_iter().flatten().chain(boot.spans).chain(sessions).chain(bulkheads) {
            close_on_exec(descriptor)?;
        }
        let queues = boot.message_queues.iter().flat_map(|queue| [queue.put, queue.take]);
        let listeners = boot.listeners.iter().map(|listener| listener.descriptor);
        for descriptor in listeners.chain(boot.memories.iter().map(|memory| memory.descriptor)).chain(queues) {
            close_on_exec(descriptor)?;
        }
        // While the application is loaded, the control socket is not read: if the master dies now, the kernel kills us as well
        // (the master has set the death signal). It may have died before it could set it.
        if getppid().as_raw() as u32 != boot.master_pid {
            return Err(io::Error::other("the master has exited before its prototype began"));
        }
        signals::in_prototype(control.as_fd(), boot.master_pid as i32, boot.at_terminal)?;
        reader::allow_by_signal(boot.reader_secret)?;
        Ok(Prototype {
            boot,
            scoreboard,
            ticket_keys,
            failure_note,
            control: Some(control),
            children: Children::default(),
            succession: None,
            is_retiring: false,
        })
    }

    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    pub fn failure_note(&self) -> &FailureNote {
        &self.failure_note
    }

    /// Reports to the master that loading failed, and why.
    pub fn report_load_failed(&self, reason: &str) -> io::Result<()> {
        self.failure_note.write(reason)?;
        self.report(&Report::LoadFailed)
    }

    /// Reports to the master that another prototype must fork the workers, because this one has resources that they can't share.
    pub fn report_unshared(&self) -> io::Result<()> {
        self.report(&Report::Unshared)
    }

    /// Reports to the master that workers can be ordered.
    pub fn report_loaded(&self, took: Duration) -> io::Result<()> {
        follow_master()?;
        self.report(&Report::Loaded { milliseconds: u32::try_from(took.as_millis()).unwrap_or(u32::MAX) })
    }

    /// Reports the imported files to the master.
    pub fn report_imports(&self, list: &[u8]) -> io::Result<()> {
        self.control.as_ref().map_or(Ok(()), |control| report_imports(control.as_fd(), list))
    }

    /// Reports the application's registrations for uWSGI's signals to the master.
    pub fn report_registrations(&self, registrations: &[u8]) -> io::Result<()> {
        self.control.as_ref().map_or(Ok(()), |control| report_registrations(control.as_fd(), registrations))
    }

    /// Executes orders until the end. Returns its role in each new child, and `None` in the prototype when it is done.
    pub fn wait_for_fork<A: Application>(&mut self, application: &mut A) -> Result<Option<ForkedAs>, A::Error> {
        loop {
            match application.aside(|| self.wait_for_order())? {
                Wake::Fork(child, control) => {
                    if let Some(child) = self.fork(application, child, control)? {
                        return Ok(Some(child));
                    }
                }
                Wake::Ended(reports) => self.note_ends(application, &reports)?,
                Wake::Retired => return Ok(None),
                Wake::Orphaned => {
                    application.aside(|| self.end_orphaned());
                    return Ok(None);
                }
            }
        }
    }

    /// Recovers what children held that have ended, and tells the master and the application of their ends.
    fn note_ends<A: Application>(&self, application: &mut A, reports: &[Report]) -> Result<(), A::Error> {
        for report in reports {
            // A process that has exited by itself may have been ended inside a lock too, by os._exit() in another thread.
            if let Report::Ended { pid, status: 1.., .. } = report {
                application.recover(*pid);
            }
            self.report(report)?;
        }
        let ended = reports.iter().filter_map(|report| if let Report::Ended { pid, .. } = report { Some(*pid) } else { None });
        ended.into_iter().try_for_each(|pid| application.note_end(pid))
    }

    /// The assignment of a worker, and the note to report that it can't serve.
    pub fn assignment(&mut self, worker: &ForkedAs) -> io::Result<(Assignment, FailureNote)> {
        let control = self.take_control()?;
        let memory = SharedMemory { scoreboard: &self.scoreboard, ticket_keys: self.ticket_keys.as_ref() };
        self.succession = self.boot.settings.recycling.refork_after.map(|_| Arc::default());
        if let Some(succession) = &self.succession {
            succession.note(&control);
        }
        opened_for_worker(self.succession.as_deref(), || {
            let assignment = assignment(&self.boot, &memory, control, worker)?;
            let assignment = Assignment { succession: self.succession.clone(), ..assignment };
            Ok((assignment, self.failure_note.try_clone()?))
        })
    }

    /// The helper's end of its control socket.
    pub fn helper(&mut self, child: &ForkedAs) -> io::Result<Helper> {
        let scoreboard = Scoreboard::attach(&self.scoreboard, self.boot.scoreboard_rows, self.boot.scoreboard_slots)?
            .within(self.boot.rows_in_use, self.boot.slots_in_use);
        Helper::begin(self.take_control()?, scoreboard, child, self.helper_name(child))
    }

    /// The task of a helper.
    pub fn helper_task(&self, child: &ForkedAs) -> Option<&Task> {
        self.boot.settings.helpers.get(child.number as usize - 1).map(|helper| &helper.task)
    }

    /// The name of a helper, for logs.
    pub fn helper_name(&self, child: &ForkedAs) -> String {
        let place = child.number as usize - 1;
        self.boot
            .settings
            .helpers
            .get(place)
            .map_or_else(|| format!("helper {}", child.number), |helper| helper.name(child.number))
    }

    fn take_control(&mut self) -> io::Result<OwnedFd> {
        self.control.take().ok_or_else(|| io::Error::other("a process starts its work only once"))
    }

    /// Waits for an order that involves the language. Ends of children come before orders.
    fn wait_for_order(&mut self) -> io::Result<Wake> {
        loop {
            let ended = self.children.take_ended();
            if !ended.is_empty() {
                return Ok(Wake::Ended(ended));
            }
            if self.is_retiring && self.children.is_empty() {
                return Ok(Wake::Retired);
            }
            self.sleep(None)?;
            let Some(control) = &self.control else { return Ok(Wake::Orphaned) };
            match message::receive::<Order>(control.as_fd())? {
                Received::Message(Order::Fork { row, kind, number, is_on_trial, is_first }, Some(control)) => {
                    return Ok(Wake::Fork(ForkedAs { row, kind, number, is_first, is_on_trial }, control));
                }
                Received::Message(Order::Retire, _) => self.is_retiring = true,
                Received::Message(Order::TakeLog { log }, Some(file)) => {
                    if let Err(error) = bolide_log::replace(log as usize, &file) {
                        bolide_log::line(&format!("a prototype can't replace the log {log}: {error}"));
                    }
                }
                Received::Message(order, _) => {
                    bolide_log::line(&format!("a prototype received the order {order:?}, which it can't carry out"));
                }
                Received::Nothing => {}
                Received::End => return Ok(Wake::Orphaned),
            }
        }
    }

    /// Waits until an order arrives, a child exits, or the time is over. The control socket stays readable until it is read.
    fn sleep(&self, most: Option<Duration>) -> io::Result<()> {
        let mut waits = self.children.waits();
        if let (Some(control), None) = (&self.control, most) {
            waits.push(PollFd::new(control.as_fd(), PollFlags::POLLIN));
        }
        let timeout = most.map_or(PollTimeout::NONE, |most| PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX));
        match poll(&mut waits, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Forks. Returns the child's role in the child itself.
    fn fork<A: Application>(&mut self, application: &mut A, new: ForkedAs, control: OwnedFd) -> io::Result<Option<ForkedAs>> {
        let prototype = getpid().as_raw();
        // A signal to the whole group stays pending until the child has its own handlers.
        signals::block_group(true)?;
        let forked = application.fork(new.kind);
        if !matches!(forked, Ok(ForkResult::Child)) {
            signals::block_group(false)?;
        }
        match forked {
            Ok(ForkResult::Child) => {
                // It must not watch its siblings, or use the prototype's control socket.
                self.children.forget();
                let control = self.control.insert(control);
                signals::in_worker(control.as_fd(), new.row, prototype)?;
                return Ok(Some(new));
            }
            Ok(ForkResult::Parent { child }) => {
                self.children.add(new.row, child)?;
                self.report(&Report::Forked { row: new.row, pid: child.as_raw() as u32 })?;
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EAGAIN) as u32;
                self.report(&Report::ForkFailed { row: new.row, errno })?;
            }
        }
        Ok(None)
    }

    /// In a worker that has drained and that the master has ordered to: forks it into another prototype, unless its application
    /// holds what forks can't share. Returns whether this process is the prototype.
    pub fn succeed<A: Application>(&mut self, application: &mut A) -> Result<bool, A::Error> {
        let Some(succession) = self.succession.take() else { return Ok(false) };
        let own = succession.own_descriptors();
        let Some(control) = succession.take() else { return Ok(false) };
        let mut held = application.release_for_fork(&own)?;
        if held.is_empty() && life::is_last() {
            held.push(format!("this process has been forked from workers {} times", life::MAX_LIVES - 1));
        }
        if held.is_empty() {
            signals::block_group(true)?;
            match application.fork_prototype() {
                Ok(ForkResult::Child) => {
                    succession.close_own()?;
                    self.begin_next(application, control)?;
                    return Ok(true);
                }
                Ok(ForkResult::Parent { .. }) => {}
                Err(error) => held.push(format!("it can't be forked: {error}")),
            }
            signals::block_group(false)?;
        }
        if !held.is_empty() {
            let held = held.join("; ");
            bolide_log::line(&format!("refork-after: the other workers can't be forked from this one: {held}"));
            // The send fails if the master has exited, which the end of the control socket shows too.
            let _ = message::send(control.as_fd(), &Report::Refused, None);
        }
        Ok(false)
    }

    /// This process was forked from a worker to be a prototype.
    fn begin_next<A: Application>(&mut self, application: &mut A, control: OwnedFd) -> Result<(), A::Error> {
        bolide_log::identity::set_worker(0);
        set_non_blocking(&control)?;
        // The master knows its workers by this group.
        nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(io::Error::from)?;
        signals::in_next_prototype(control.as_fd())?;
        self.control = Some(control);
        // It takes back what the worker has set for its life, so the next life begins after it.
        application.become_prototype()?;
        life::begin_next();
        follow_master()?;
        self.report(&Report::Succeeded { pid: std::process::id() })?;
        Ok(())
    }

    /// The master is gone: workers notice it as well and drain. Those that have not ended in time are killed.
    fn end_orphaned(&mut self) {
        if self.children.is_empty() {
            return;
        }
        bolide_log::line(&format!("the master is gone; its workers have {ORPHAN_MERCY_MS} ms to finish"));
        let end = Instant::now() + Duration::from_millis(ORPHAN_MERCY_MS);
        loop {
            self.children.take_ended();
            let left = end.saturating_duration_since(Instant::now());
            if self.children.is_empty() || left.is_zero() || self.sleep(Some(left)).is_err() {
                break;
            }
        }
        self.children.kill();
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        let Some(control) = &self.control else { return Ok(()) };
        match message::send(control.as_fd(), report, None) {
            // The end of the master is detected in one place, by the end of file.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            result => result,
        }
    }
}

/// From here on the end of the control socket is noticed, so that workers get their time to finish. A prototype that was stopped
/// in the meantime (SIGSTOP) is woken for it. The exit of the worker that it was forked from sends the same signal once, to no
/// effect.
fn follow_master() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGCONT)?)
}

/// Sends a list of [`message::ImportedFile`], as JSON, over a control socket, in a sealed memory file. A list that is longer
/// than the master accepts is not sent.
///
/// # Errors
/// There is no memory, or the error of `sendmsg`.
pub fn report_imports(control: BorrowedFd<'_>, list: &[u8]) -> io::Result<()> {
    if list.len() > IMPORTS_BYTES {
        bolide_log::line(&format!("py-autoreload: a list of {} bytes is too long: these files are not watched", list.len()));
        return Ok(());
    }
    let mut memory = File::from(memfd_create(c"bolide-imports", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    memory.write_all(list)?;
    let seals = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(seals))?;
    message::send(control, &Report::Imports, Some(memory.as_raw_fd()))
}
