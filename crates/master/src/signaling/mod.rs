//! uWSGI's signals in the master: the registrations of each generation (`table`), the clock of the generation in service, and
//! the ways to the processes (`channels`). A signal goes to processes of the generation that has raised it, or to the
//! generation in service if that one has been replaced. Statistics and `bolide status` show what is registered and what waits.
//! Nothing here costs anything before the first registration or signal.
//!
//! It does not know handlers. The master runs it.

mod channels;
mod clock;
mod losses;
pub mod table;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::children::Task;
use bolide_contract::settings::Settings;
use bolide_contract::uwsgi_signals::Pool;
use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile};
use bolide_services::uwsgi_signals::{Members, Target, schedule_in_words};
use bolide_supervision::files::file_watches::Watches;
use bolide_supervision::log_sink;
use bolide_supervision::system::{local_minute, seconds_since_1970};
use serde_json::{Value, json};

use crate::children::Children;
use crate::children::child::{Child, KillReason};
use crate::generations::Generations;
use crate::owner::{Owner, Turn, Waits};
use crate::provision::Provision;
use crate::signaling::channels::{Channels, Recipient};
use crate::signaling::clock::Clock;
use crate::signaling::losses::Losses;
use crate::signaling::table::{MAX_TIMERS, Table, Timer, read_registrations};

const MINUTE_S: u64 = 60;
/// The name of monitors in the log.
const MONITOR: &str = "add_file_monitor";

/// The signals of an instance.
#[derive(Debug, Default)]
pub struct Signaling {
    generations: Vec<OfGeneration>,
    clock: Clock,
    /// The generation whose timers run.
    in_force: Option<u32>,
    losses: Losses,
    /// Signals that processes could not raise, as last seen, by child.
    unraised: Vec<(u64, u32)>,
}

#[derive(Debug, Default)]
struct OfGeneration {
    number: u32,
    table: Table,
    channels: Channels,
}

/// What the decisions need of the instance.
#[derive(Clone, Copy)]
pub struct Instance<'a> {
    pub children: &'a Children,
    pub generations: &'a Generations,
    pub provision: &'a Provision,
}

impl Instance<'_> {
    fn lives(&self, generation: u32) -> bool {
        [self.generations.serving_number(), self.generations.forming_number()].contains(&Some(generation))
    }

    /// The generation whose timers run: the one in service, or the first one while it forms.
    fn in_force(&self) -> Option<u32> {
        self.generations.serving_number().or(self.generations.forming_number())
    }

    /// The numbers of the workers that a generation has or is about to have.
    fn worker_numbers(&self, generation: u32) -> Vec<u32> {
        let forming = self.generations.forming().map(|forming| &forming.generation);
        let found = self.generations.serving().into_iter().chain(forming).find(|known| known.number == generation);
        let wanted = found.map_or(&[][..], |found| &found.wanted);
        (1u32..).zip(wanted).filter(|(_, is_wanted)| **is_wanted).map(|(number, _)| number).collect()
    }

    fn settings(&self, generation: u32) -> &Settings {
        let forms = self.generations.forming_number() == Some(generation);
        if forms { self.provision.coming_settings() } else { self.provision.settings() }
    }
}

impl Signaling {
    /// Takes a report with registrations. `false`: the report is invalid.
    fn take_registered(
        &mut self,
        child: &Child,
        file: Option<OwnedFd>,
        instance: Instance<'_>,
        watches: &mut Watches,
        now_ms: u64,
    ) -> bool {
        let Some(registrations) = file.and_then(read_registrations) else { return false };
        let generation = child.generation;
        if !instance.lives(generation) {
            return true;
        }
        let (raised, is_in_force) = (registrations.raised.clone(), instance.in_force() == Some(generation));
        let settings = instance.settings(generation);
        let (members, is_shared) = (members_of(settings), registrations.is_loading && has_timer_engine(settings));
        let changes = self.of(generation).table.take(child.id, registrations, &members);
        for problem in changes.problems {
            log_sink::line(&problem);
        }
        if is_in_force && self.in_force == Some(generation) {
            for timer in changes.timers {
                let timer = if is_shared { self.of(generation).table.shared(timer) } else { timer };
                self.run_timer(timer, now_ms);
            }
            for (number, schedule) in changes.crons {
                self.clock.add_cron(number, schedule);
            }
            if changes.has_files {
                self.watch_files(instance, watches, now_ms);
            }
        }
        for number in raised {
            self.raise(number, generation, instance);
        }
        true
    }

    /// Takes a report that a process has raised a signal.
    pub fn take_raised(&mut self, id: u64, number: u8, instance: Instance<'_>) {
        let Some(child) = instance.children.find(id) else { return };
        if let Some(row) = child.row().and_then(|row| instance.children.scoreboard().row(row)) {
            row.signals_heard.fetch_add(1, Relaxed);
        }
        self.raise(number, child.generation, instance);
    }

    /// Raises a signal for the generation in service.
    pub fn raise_in_service(&mut self, number: u8, instance: Instance<'_>) {
        if let Some(generation) = instance.in_force() {
            self.raise(number, generation, instance);
        }
    }

    /// Another generation is in force, or may be: its timers run, and its files are watched. Signals that wait for the generation
    /// before it are for this one.
    pub fn note_generation(&mut self, instance: Instance<'_>, watches: &mut Watches, now_ms: u64) {
        let now = instance.in_force();
        if now == self.in_force {
            return;
        }
        let before = std::mem::replace(&mut self.in_force, now);
        let Some(generation) = now else { return };
        let settings = instance.settings(generation);
        let configured = settings.signals.timers.iter();
        let mut timers: Vec<Timer> = configured.map(|timer| Timer::new(timer.number, timer.seconds, timer.keeps_time)).collect();
        let nothing = Table::default();
        let table = self.generations.iter().find(|of| of.number == generation).map_or(&nothing, |of| &of.table);
        timers.extend(&table.timers);
        if has_timer_engine(settings) {
            timers.iter_mut().for_each(|timer| *timer = table.shared(*timer));
        }
        self.clock.renew(&timers, &table.crons, now_ms);
        self.watch_files(instance, watches, now_ms);
        let waiting = self.generations.iter_mut().find(|of| Some(of.number) == before).map(|of| of.channels.take_waiting());
        for number in waiting.into_iter().flatten() {
            self.raise(number, generation, instance);
        }
    }

    /// Has the files of the generation in force watched.
    fn watch_files(&self, instance: Instance<'_>, watches: &mut Watches, now_ms: u64) {
        let table = self.generations.iter().find(|of| Some(of.number) == self.in_force).map(|of| &of.table);
        let root = instance.provision.settings().confinement.root.as_deref();
        let file = |(number, path): &(u8, PathBuf)| WatchedFile {
            path: as_seen_from_outside(path, root),
            option: MONITOR.to_owned(),
            subject: WatchSubject::Contents,
            action: FileAction::Signal(*number),
        };
        let files = table.iter().flat_map(|table| &table.files).map(file).collect();
        watches.monitor(files, &instance.provision.settings().watching, now_ms);
    }

    /// Raises the signals of timers and cron times that are due.
    pub fn fire_due(&mut self, instance: Instance<'_>, now_ms: u64) {
        let seconds = seconds_since_1970();
        let local = || local_minute(seconds.cast_signed());
        for number in self.clock.due(now_ms, (seconds / MINUTE_S).cast_signed(), local) {
            self.raise_in_service(number, instance);
        }
    }

    /// The cron times of this minute have fired in another master.
    pub fn note_minute(&mut self) {
        self.clock.note_minute((seconds_since_1970() / MINUTE_S).cast_signed());
    }

    /// A child exits: called before its row is cleared.
    pub fn note_end(&mut self, child: &Child, children: &Children) {
        self.note_unraised(child, children);
        self.unraised.retain(|(id, _)| *id != child.id);
        if let Some(of) = self.generations.iter_mut().find(|of| of.number == child.generation) {
            of.table.forget_child(child.id);
            of.channels.note_end(child, children.scoreboard());
        }
    }

    /// Sends what waits, forgets generations that have ended, and logs losses.
    pub fn advance(&mut self, instance: Instance<'_>, now_ms: u64) {
        if self.generations.is_empty() {
            return;
        }
        for of in &mut self.generations {
            of.channels.advance(of.number, instance.children, instance.settings(of.number));
        }
        let has_children = |number| instance.children.iter().any(|child| child.generation == number);
        self.generations.retain(|of| instance.lives(of.number) || has_children(of.number));
        for child in instance.children.iter() {
            self.note_unraised(child, instance.children);
        }
        if let Some(line) = self.losses.line(now_ms) {
            log_sink::line(&line);
        }
    }

    /// Signals that wait for any worker of the generation in force.
    pub fn waiting_for_any_worker(&self) -> u32 {
        self.in_force_now().map_or(0, |of| of.channels.waiting_in_pool(Pool::Workers))
    }

    /// Signals that wait for the worker of this number.
    pub fn waiting_for_worker(&self, number: u32) -> u32 {
        self.in_force_now().map_or(0, |of| of.channels.waiting_for(Recipient::Worker(number)))
    }

    /// Returns the part of the answer to `bolide status`; null if no signal is registered or was raised.
    pub fn described(&self, now_ms: u64) -> Value {
        let Some(of) = self.in_force_now() else { return Value::Null };
        let timers = self.clock.running().iter().map(|running| {
            json!({
                "signal": running.timer.number,
                "seconds": running.timer.seconds,
                "left": running.timer.left,
                "next_in_ms": running.due_ms.saturating_sub(now_ms),
            })
        });
        let crons = self.clock.crons().iter();
        let crons = crons.map(|(number, schedule)| json!({"signal": number, "schedule": schedule_in_words(*schedule)}));
        let files = of.table.files.iter().map(|(number, path)| json!({"signal": number, "path": path.display().to_string()}));
        let registered = of.table.registered().map(|(number, target)| json!({"signal": number, "target": target}));
        json!({
            "registered": registered.collect::<Vec<_>>(),
            "timers": timers.collect::<Vec<_>>(),
            "crons": crons.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "waiting": of.channels.waiting(),
            "dropped": self.losses.total,
        })
    }

    fn raise(&mut self, number: u8, generation: u32, instance: Instance<'_>) {
        let generation = if instance.lives(generation) { Some(generation) } else { instance.in_force() };
        let Some(generation) = generation else { return self.losses.note(Some(number), 1) };
        let settings = instance.settings(generation);
        let Some(target) = self.of(generation).table.target(number) else { return };
        let children = instance.children;
        let of = self.of(generation);
        let workers = || instance.worker_numbers(generation).into_iter().map(Recipient::Worker);
        let recipients: Vec<Recipient> = match target {
            Target::None => return,
            Target::Any(pool) => {
                let is_put = of.channels.put_into_pool(pool, number, generation, children, settings);
                return self.losses.note(Some(number), u64::from(!is_put));
            }
            Target::ActiveWorkers if children.is_paused() => Vec::new(),
            Target::Workers | Target::ActiveWorkers => workers().collect(),
            Target::Worker(number) => vec![Recipient::Worker(number)],
            Target::Mules => mules(settings).map(|(_, place)| Recipient::Helper(place)).collect(),
            Target::Mule(wanted) => {
                let found = mules(settings).find(|(number, _)| *number == wanted);
                found.map(|(_, place)| Recipient::Helper(place)).into_iter().collect()
            }
        };
        let put = |recipient| of.channels.put_into_queue(recipient, number, generation, children);
        let dropped = recipients.into_iter().map(put).filter(|is_put| !is_put).count();
        self.losses.note(Some(number), dropped as u64);
    }

    fn run_timer(&mut self, timer: Timer, now_ms: u64) {
        if self.clock.running().len() >= MAX_TIMERS {
            let number = timer.number;
            return log_sink::line(&format!("signal {number}: {MAX_TIMERS} timers are already running, so this one is ignored"));
        }
        self.clock.add(timer, now_ms);
    }

    fn in_force_now(&self) -> Option<&OfGeneration> {
        self.generations.iter().find(|of| Some(of.number) == self.in_force)
    }

    fn of(&mut self, generation: u32) -> &mut OfGeneration {
        let place = self.generations.iter().position(|of| of.number == generation).unwrap_or_else(|| {
            self.generations.push(OfGeneration { number: generation, ..OfGeneration::default() });
            self.generations.len() - 1
        });
        &mut self.generations[place]
    }

    /// Counts the signals that a process has dropped itself since the last look.
    fn note_unraised(&mut self, child: &Child, children: &Children) {
        let Some(row) = child.row().and_then(|row| children.scoreboard().row(row)) else { return };
        let dropped = row.signals_dropped.load(Relaxed);
        let before = self.unraised.iter().position(|(id, _)| *id == child.id);
        let known = before.map_or(0, |place| self.unraised[place].1);
        if dropped == known {
            return;
        }
        self.losses.note(None, u64::from(dropped.wrapping_sub(known)));
        match before {
            Some(place) => self.unraised[place].1 = dropped,
            None => self.unraised.push((child.id, dropped)),
        }
    }
}

/// Handles a report with registrations. A child that sends an invalid one is killed.
pub fn take_report(
    id: u64,
    file: Option<OwnedFd>,
    signaling: &mut Signaling,
    instance: Instance<'_>,
    watches: &mut Watches,
    now_ms: u64,
) -> Option<KillReason> {
    let child = instance.children.find(id)?;
    if signaling.take_registered(child, file, instance, watches, now_ms) {
        return None;
    }
    log_sink::line(&format!("{child} sent invalid registrations of signals"));
    Some(KillReason::Unreachable)
}

fn has_timer_engine(settings: &Settings) -> bool {
    settings.services.distributed.timer_engine.is_some()
}

/// The number of each mule, and its place among the helpers, from 1.
fn mules(settings: &Settings) -> impl Iterator<Item = (u32, u32)> {
    (1u32..).zip(&settings.helpers).filter_map(|(place, helper)| match helper.task {
        Task::Mule { number, .. } => Some((number, place)),
        _ => None,
    })
}

fn members_of(settings: &Settings) -> Members {
    let is_spooler = |helper: &&bolide_contract::settings::Helper| matches!(helper.task, Task::Spooler { .. });
    Members {
        workers: settings.workers.processes,
        mules: mules(settings).count() as u32,
        farms: settings.mules.farms.iter().map(|farm| farm.name.clone()).collect(),
        spoolers: settings.helpers.iter().filter(is_spooler).count() as u32,
    }
}

/// Maps a path within the jail of `chroot` to the path of the master.
fn as_seen_from_outside(path: &Path, root: Option<&Path>) -> PathBuf {
    root.map_or_else(|| path.to_owned(), |root| root.join(path.strip_prefix("/").unwrap_or(path)))
}

impl Owner for Signaling {
    fn waits(&self, turn: &Turn) -> Waits<'_> {
        let seconds = seconds_since_1970();
        let into_minute_ms = seconds % MINUTE_S * 1000;
        let due_ms = self.clock.wake_ms(turn.now_ms, (seconds / MINUTE_S).cast_signed(), into_minute_ms);
        Waits::until(due_ms.into_iter().chain(self.losses.wake_ms()).min().filter(|_| !turn.is_stopping))
    }
}
