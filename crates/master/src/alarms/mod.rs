//! Alarms: takes those that processes raise, leaves out repeated ones, and does what each of them is configured to do. Commands
//! and requests run in processes of their own (`runner`), a bounded number at a time, so the master's loop waits for none of
//! them. It does not know why an alarm was raised. The master runs it, if the settings have alarms.

mod crash_files;
mod descriptors;
mod runner;
mod running;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use bolide_contract::alarm_message::{ALARM_PACKET_BYTES, AlarmMessage};
use bolide_contract::alarms::{Alarm, AlarmAction};
use bolide_contract::message::order_pair;
use bolide_contract::mules::ANY_MULE;
use bolide_contract::settings::Settings;
use bolide_supervision::polling::Source;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::Pid;

use crate::owner::{Aftermath, Owner, OwnerContext, Processes, Turn, Waits};
use crate::provision::Provision;
use crate::token::Token;

use self::descriptors::Descriptors;
pub use self::descriptors::check as check_descriptors;
use self::running::Actions;

/// Messages that are taken in a turn, so that a process that raises alarms without end does not delay other work.
const MESSAGES_A_TURN: usize = 64;
/// How often lost and unknown messages are logged, in milliseconds.
const COMPLAINT_MS: u64 = 60_000;

/// The alarms of an instance.
#[derive(Debug, Default)]
pub struct Alarms {
    /// The end from which messages are read; `None` until the settings have an alarm.
    socket: Option<OwnedFd>,
    packet: Vec<u8>,
    /// The last message of each alarm.
    last: Vec<LastMessage>,
    actions: Actions,
    descriptors: Descriptors,
    /// Messages that their senders have lost, since the last line about them.
    lost: u64,
    /// Signals of uWSGI's that this turn raises.
    signals: Vec<u8>,
    /// Messages that no mule had room for, since the last line about them.
    untaken: u64,
    /// A name that is not configured, and how often it was raised since the last line about it.
    unknown: Option<(String, u64)>,
    complaint_ms: u64,
}

#[derive(Debug)]
struct LastMessage {
    alarm: String,
    text: Vec<u8>,
    raised_ms: u64,
}

impl Alarms {
    /// Creates the socket if these settings are the first with an alarm.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn prepare(&mut self, settings: &Settings) -> io::Result<()> {
        bolide_log::alarms::set_message_bytes(settings.alarms.message_bytes);
        if self.socket.is_some() || settings.alarms.list.is_empty() {
            return Ok(());
        }
        let (near, far) = order_pair()?;
        fcntl(&far, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
        bolide_log::alarms::connect(far);
        self.packet = vec![0; ALARM_PACKET_BYTES];
        self.socket = Some(near);
        Ok(())
    }

    /// Begins to watch descriptors, and lists the alarms if asked to.
    pub fn begin(&mut self, settings: &Settings) {
        self.descriptors = Descriptors::of(&settings.alarms);
        if settings.alarms.is_listed {
            let listed = |alarm: &Alarm| format!("alarm {} ({}): {}", alarm.name, alarm.origin, alarm.action.word());
            settings.alarms.list.iter().for_each(|alarm| bolide_log::quiet_line(&listed(alarm)));
            bolide_log::quiet_line("the actions of alarms are cmd, curl, log, mule and signal");
        }
    }

    /// Applies the settings of a reload.
    pub fn renew(&mut self, settings: &Settings) {
        bolide_log::alarms::set_message_bytes(settings.alarms.message_bytes);
        self.descriptors = Descriptors::of(&settings.alarms);
    }

    /// Takes the messages that processes have sent.
    pub fn take_messages(&mut self, provision: &Provision, now_ms: u64) {
        let mut packet = std::mem::take(&mut self.packet);
        for _ in 0..MESSAGES_A_TURN {
            let Some(socket) = &self.socket else { break };
            match recv(socket.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(length) => {
                    if let Some(message) = AlarmMessage::decode(&packet[..length]) {
                        self.lost += u64::from(message.lost);
                        self.raise(message.name, message.text, provision, now_ms);
                    }
                }
                Err(_) => break,
            }
        }
        self.packet = packet;
    }

    /// Reads a descriptor that is readable, and raises its alarms.
    pub fn read_descriptor(&mut self, descriptor: i32, provision: &Provision, now_ms: u64) {
        for (alarm, message) in self.descriptors.read(descriptor) {
            self.raise(&alarm, message.as_bytes(), provision, now_ms);
        }
    }

    /// Raises the alarms of these names.
    pub fn raise_each(&mut self, names: &[String], text: &str, provision: &Provision, now_ms: u64) {
        for name in names {
            let text = &text.as_bytes()[..text.len().min(provision.settings().alarms.message_bytes as usize)];
            self.raise(name, text, provision, now_ms);
        }
    }

    /// Has a report about the death of a worker written to this directory, beside the actions of alarms and within their bounds.
    pub fn report_crash(&mut self, directory: PathBuf, text: &[u8]) {
        let name = "crash-reports".to_owned();
        let alarm = Alarm { name, action: AlarmAction::Report(directory), origin: "crash-reports".to_owned() };
        self.actions.add(&alarm, text);
    }

    /// Does what an alarm is configured to do, unless its last message is the same and recent.
    fn raise(&mut self, name: &str, text: &[u8], provision: &Provision, now_ms: u64) {
        // A generation that forms may have alarms that are new.
        let configured = [provision.settings(), provision.coming_settings()];
        let Some(alarm) = configured.iter().find_map(|settings| settings.alarms.named(name)) else {
            match &mut self.unknown {
                Some((known, count)) if known == name => *count += 1,
                Some(_) => {}
                unknown => *unknown = Some((name.to_owned(), 1)),
            }
            return;
        };
        if self.is_repeated(alarm, text, provision.settings().alarms.repeat_ms, now_ms) {
            return;
        }
        match &alarm.action {
            AlarmAction::Log(prefix) => {
                let text = String::from_utf8_lossy(text);
                let words = ["ALARM:", prefix.as_str(), text.trim_end_matches('\n')];
                let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
                bolide_log::quiet_line(&words.join(" ").replace('\n', " "));
            }
            AlarmAction::Signal(number) => self.signals.push(*number),
            AlarmAction::Mule(number) => {
                let queue = if *number == 0 { ANY_MULE.to_owned() } else { format!("mule {number}") };
                self.untaken += u64::from(!provision.message_queues().put(&queue, text));
            }
            AlarmAction::Command(_) | AlarmAction::Curl(_) | AlarmAction::Report(_) => self.actions.add(alarm, text),
        }
    }

    /// Compares a message with the alarm's last one, and remembers it if it is new. As in uWSGI, only a message that is acted on
    /// counts for the time.
    fn is_repeated(&mut self, alarm: &Alarm, text: &[u8], repeat_ms: u64, now_ms: u64) -> bool {
        let last = match self.last.iter_mut().find(|last| last.alarm == alarm.name) {
            Some(last) if last.text == text && now_ms.saturating_sub(last.raised_ms) < repeat_ms => return true,
            Some(last) => last,
            None => {
                self.last.push(LastMessage { alarm: alarm.name.clone(), text: Vec::new(), raised_ms: 0 });
                let Some(last) = self.last.last_mut() else { return false };
                last
            }
        };
        last.text.clear();
        last.text.extend_from_slice(text);
        last.raised_ms = now_ms;
        false
    }

    /// Returns the signals of uWSGI's that alarms have raised, to be raised in this turn.
    pub fn take_signals(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.signals)
    }
}

impl Owner for Alarms {
    fn waits(&self, _turn: &Turn) -> Waits<'_> {
        let socket = self.socket.iter().map(|socket| Source::readable(Token::Alarms, socket.as_fd()));
        let has_complaint = self.lost > 0 || self.untaken > 0 || self.unknown.is_some() || self.actions.has_complaint();
        let wake_ms = self.actions.wake_ms().into_iter().chain(has_complaint.then_some(self.complaint_ms)).min();
        Waits::on(socket.chain(self.descriptors.sources()), wake_ms)
    }
}

impl Processes for Alarms {
    /// Starts actions that wait, kills those that take too long, and logs what was lost, once a minute.
    fn due(&mut self, context: OwnerContext<'_>) {
        let OwnerContext { settings, privileges, now_ms, .. } = context;
        self.actions.kill_late(now_ms);
        self.actions.start_due(settings, privileges, now_ms);
        if now_ms < self.complaint_ms {
            return;
        }
        let mut lines = self.actions.take_complaints();
        if std::mem::take(&mut self.lost) > 0 {
            lines.push("alarm messages were lost, because they were raised faster than the master could process them".to_owned());
        }
        if std::mem::take(&mut self.untaken) > 0 {
            lines.push("alarm messages were dropped, because the queue of their mule is full".to_owned());
        }
        if let Some((name, count)) = self.unknown.take() {
            let times = if count == 1 { String::new() } else { format!(" {count} times") };
            lines.push(format!("an alarm `{name}` was raised{times}, but no alarm of this name is configured"));
        }
        if !lines.is_empty() {
            self.complaint_ms = now_ms + COMPLAINT_MS;
            lines.iter().for_each(|line| bolide_log::quiet_line(line));
        }
    }

    fn note_end(&mut self, pid: Pid, status: i32, context: OwnerContext<'_>) -> Option<Aftermath> {
        self.actions.note_end(pid, status, context.now_ms).then_some(Aftermath::Nothing)
    }

    /// Actions that run have their short time of the end.
    fn stop_now(&mut self, _now_ms: u64) {}

    /// The end of the others may raise alarms.
    fn finish(&mut self, is_last: bool, context: OwnerContext<'_>) -> bool {
        if is_last {
            self.due(context);
        }
        is_last && self.actions.finish(context.now_ms)
    }
}
