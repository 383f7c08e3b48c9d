//! The emperor's loop: it looks at the places, compares the files there with the processes, and does what is missing. It never
//! waits for a vassal, and reads only single bytes of one. The emperor runs it.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use bolide_contract::clock::now_ms;
use bolide_contract::emperor::{Emperor, Programs};
use bolide_contract::loyalty::{EmperorOrder, Greeting, VassalReport};
use bolide_supervision::logs::log_files::{self, Logs};
use bolide_supervision::logs::log_reach::NewLog;
use bolide_supervision::polling::{self, ServerToken, Source};
use bolide_supervision::processes::auxiliary::{AuxiliaryProcess, EndedAuxiliary};
use bolide_supervision::processes::backoff;
use bolide_supervision::processes::exit_report::Cause;
use bolide_supervision::processes::forking::Forked;
use bolide_supervision::processes::signals::{self, Signals};
use bolide_supervision::sockets::control_socket::ControlSocket;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::sockets::stats_server::StatsServer;
use bolide_supervision::text::{counted, printable};
use bolide_supervision::{log_sink, system};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::answers;
use crate::hooks::Hooks;
use crate::launch::{self, Origin};
use crate::limits::Limits;
use crate::orphans::{Orphan, Orphans};
use crate::places::{self, Look, Stamp};
use crate::roster::Roster;
use crate::scraping::{ScrapeToken, Scraping};
use crate::vassal::{Bond, Step, Vassal};
use crate::watch::Watch;

/// Bytes that are read from a vassal in a turn.
const MAX_REPORTS_TURN: usize = 64;
/// The longest turn, in milliseconds.
const MAX_TURN_MS: u64 = 10_000;
/// How long vassals may take when the emperor stops, before they are killed: uWSGI's mercy of an emperor. In milliseconds.
const END_MS: u64 = 30_000;

/// What has become of a log file.
type Renewed = Result<(String, NewLog), String>;

/// Under a tyrant, one user has one of this many parts of the starts at the same time.
const STARTS_SHARE: usize = 4;

/// What startup has made for the emperor.
#[derive(Debug)]
pub struct Means {
    pub emperor: Emperor,
    pub origin: Origin,
    pub signals: Signals,
    pub control: ControlSocket,
    pub statistics: Option<StatsServer>,
    /// `vassal-limits`
    pub limits: Limits,
    /// The address of `metrics`.
    pub scraping: Option<Scraping>,
    /// The emperor's own, which vassals without one share.
    pub logs: Logs,
    /// Configurations by which commands find this instance.
    pub configurations: Vec<PathBuf>,
}

/// The running emperor.
#[derive(Debug)]
pub struct Governor {
    means: Means,
    notifier: Notifier,
    watch: Watch,
    vassals: Roster,
    orphans: Orphans,
    hooks: Hooks,
    /// The vassals of the emperor before have said who they are.
    is_complete: bool,
    /// When the places are looked at even without a change.
    look_ms: u64,
    /// What was told of the last look, which is told once.
    told: HashSet<String>,
    /// When vassals are killed that have not ended; `None` while it governs.
    ends_ms: Option<u64>,
}

/// The owner of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Signals,
    Watch,
    Vassal(u64),
    /// The process of a vassal that is not our child.
    Ended(u64),
    /// The socket at which a vassal's first connection is awaited.
    Call(u64),
    /// A vassal of the emperor before, by its descriptor.
    Orphan(i32),
    Control(ServerToken),
    Statistics(ServerToken),
    Scraping(ScrapeToken),
}

impl Governor {
    pub fn new(means: Means) -> Governor {
        let notifier = Notifier::from_environment();
        // First, because orphans may take descriptors.
        let watch = Watch::new();
        let orphans = Orphans::find(&means.origin.court, now_ms());
        Governor {
            orphans,
            hooks: Hooks::default(),
            is_complete: false,
            means,
            notifier,
            watch,
            vassals: Roster::default(),
            look_ms: 0,
            told: HashSet::new(),
            ends_ms: None,
        }
    }

    /// Governs until it is told to end and no vassal is left. Returns the exit status.
    pub fn run(mut self) -> i32 {
        self.notifier.ready("governing");
        loop {
            let now = now_ms();
            self.check_if_due(now);
            let rotated = self.means.logs.look(now);
            if !rotated.is_empty() {
                // A failure is logged already.
                let _ = self.take_new(rotated, "log-maxsize");
            }
            self.advance(now);
            self.end_late_clients(now);
            if self.ends_ms.is_some() && self.vassals.is_empty() && self.hooks.is_empty() {
                self.means.control.remove_file();
                log_sink::line("the emperor has ended, and all its vassals");
                return 0;
            }
            bolide_log::flush();
            for token in self.wait(now) {
                match token {
                    Token::Signals => {}
                    Token::Watch => self.watch.note(now_ms()),
                    Token::Vassal(id) => self.read_reports(id, now_ms()),
                    Token::Ended(id) => {
                        self.note_end(id, Cause::Unknown, now_ms());
                        // Its socket is free now.
                        self.prepare_demand();
                    }
                    Token::Call(id) => self.note_call(id),
                    Token::Orphan(descriptor) => self.greet(descriptor, now_ms()),
                    Token::Control(ServerToken::Listener) => self.means.control.accept(now_ms()),
                    Token::Control(ServerToken::Client(id)) => self.take_question(id, now_ms()),
                    Token::Statistics(token) => self.answer_statistics(token, now_ms()),
                    Token::Scraping(token) => self.answer_scraper(token, now_ms()),
                }
            }
            self.take_signals(now_ms());
            self.reap(now_ms());
        }
    }

    fn wait(&self, now: u64) -> Vec<Token> {
        let wakes = self.vassals.iter().filter_map(|vassal| vassal.wake_ms(&self.means.emperor).filter(|wake| *wake > now));
        let servers =
            self.means.control.wake_ms().into_iter().chain(self.means.statistics.as_ref().and_then(StatsServer::wake_ms));
        let looks = [
            Some(self.look_ms),
            self.watch.due_ms(),
            self.notifier.wake_ms(),
            self.means.logs.wake_ms(),
            self.orphans.wake_ms(),
            self.hooks.wake_ms(),
            self.means.scraping.as_ref().and_then(Scraping::wake_ms),
        ]
        .into_iter()
        .flatten();
        let wake_ms = wakes.chain(servers).chain(looks).min().unwrap_or(u64::MAX);
        let sources: Vec<Source<'_, Token>> = [Source::readable(Token::Signals, self.means.signals.as_fd())]
            .into_iter()
            .chain(self.watch.source(Token::Watch))
            .chain(self.vassals.iter().flat_map(|vassal| {
                let id = vassal.id;
                vassal.sources(Token::Vassal(id), Token::Ended(id), Token::Call(id))
            }))
            .chain(self.orphans.sources(Token::Orphan))
            .chain(self.means.control.sources().map(|source| source.map(Token::Control)))
            .chain(self.means.scraping.iter().flat_map(Scraping::sources).map(|source| source.map(Token::Scraping)))
            .chain(
                self.means.statistics.iter().flat_map(|server| server.sources(true)).map(|source| source.map(Token::Statistics)),
            )
            .collect();
        polling::wait(&sources, wake_ms.saturating_sub(now).min(MAX_TURN_MS) as u16).unwrap_or_else(|error| {
            log_sink::line(&format!("waiting for events failed: {error}"));
            Vec::new()
        })
    }

    /// Looks at the places, if something has changed or it is time.
    fn check_if_due(&mut self, now: u64) {
        let has_settled = self.watch.due_ms().is_some_and(|due_ms| now >= due_ms);
        if self.ends_ms.is_some() || !has_settled && now < self.look_ms {
            return;
        }
        self.watch.take();
        self.look_ms = now.saturating_add(self.means.emperor.look_ms);
        let look = places::look(&self.means.emperor, &self.means.origin.directory);
        self.watch.renew(&look.directories);
        self.vassals.note(&look);
        self.prepare_demand();
        self.tell(&look);
    }

    /// Tells what is wrong with the places, once.
    fn tell(&mut self, look: &Look) {
        let failed = look.failed.iter().map(|(place, why)| format!("{}: {why}", answers::place_of(&self.means.emperor, *place)));
        let refused = look.refused.iter().map(|(name, why)| format!("vassal {} is not started: {why}", printable(name)));
        let obstacles = self
            .vassals
            .iter()
            .filter_map(|vassal| vassal.obstacle.as_ref().map(|why| format!("vassal {} is not started: {why}", vassal.name)));
        let lines: HashSet<String> = failed.chain(refused).chain(obstacles).collect();
        let mut new: Vec<&String> = lines.difference(&self.told).collect();
        new.sort_unstable();
        new.into_iter().for_each(|line| log_sink::line(line));
        self.told = lines;
    }

    /// Does with each vassal what is to be done next.
    fn advance(&mut self, now: u64) {
        match self.orphans.give_up_late(now) {
            0 => {}
            count => log_sink::line(&format!(
                "{} of an emperor of the same places {} not answer: is another one running?",
                counted(count as u64, "vassal"),
                if count == 1 { "does" } else { "do" }
            )),
        }
        self.hooks.kill_late(now);
        // One of them may be the vassal that is missing.
        let may_start = !self.orphans.are_awaited();
        if may_start && !std::mem::replace(&mut self.is_complete, true) {
            self.prepare_demand();
        }
        let most = self.means.emperor.starts_most as usize;
        let mut starting = 0;
        let mut of_owner: HashMap<u32, usize> = HashMap::new();
        for vassal in self.vassals.iter().filter(|vassal| vassal.is_starting(now)) {
            starting += 1;
            *of_owner.entry(vassal.owner_number()).or_default() += 1;
        }
        let is_ending = self.ends_ms.is_some();
        let mut has_freed = false;
        for place in (0..self.vassals.len()).rev() {
            let vassal = &mut self.vassals[place];
            vassal.kill_if_late(now).iter().for_each(|line| log_sink::line(line));
            match vassal.step(&self.means.emperor, is_ending, now) {
                Step::Nothing => {}
                Step::Start if !may_start || starting >= most => {}
                Step::Start => {
                    let is_of_tyrant = self.means.emperor.tyrant.is_some();
                    let of_owner = of_owner.entry(vassal.owner_number()).or_default();
                    // Applications of one user that take their time do not keep those of others from starting.
                    if is_of_tyrant && *of_owner >= most.div_ceil(STARTS_SHARE) {
                        continue;
                    }
                    *of_owner += 1;
                    starting += 1;
                    self.start(place, now);
                }
                Step::Reload => self.reload(place),
                Step::Stop(why) => self.stop(place, why, now),
                Step::Kill(why) => {
                    if let Some(process) = &vassal.process {
                        log_sink::line(&format!("vassal {} (pid {}) {why}: killing it", vassal.name, process.pid()));
                    }
                    vassal.kill();
                }
                Step::Forget => {
                    self.means.limits.forget(self.vassals.remove(place).id);
                    has_freed = true;
                }
            }
        }
        if has_freed && !is_ending {
            // Another vassal may want its socket.
            self.prepare_demand();
        }
    }

    fn start(&mut self, place: usize, now: u64) {
        let vassal = &mut self.vassals[place];
        let Some(found) = &vassal.found else { return };
        let Means { emperor, origin, limits, .. } = &mut self.means;
        let started = limits
            .prepare(vassal.id, found)
            .and_then(|group| launch::vassal(emperor, origin, group.as_ref().map(AsFd::as_fd), found, vassal.demand.as_ref()));
        match started {
            Ok((forked, link)) => {
                let (stamp, owner) = (found.stamp, found.owner);
                let pid = forked.pid;
                let bond = Bond::new(link, None, stamp, owner, now);
                let (name, seconds) = (format!("vassal {}", vassal.name), system::seconds_since_1970());
                if vassal.times.first_run_s == 0 {
                    vassal.times.first_run_s = seconds;
                }
                (vassal.times.started_s, vassal.times.last_run_s) = (seconds, seconds);
                vassal.process = Some(AuxiliaryProcess::new(name, forked, bond, now));
                self.hooks.started(&self.means.emperor.hooks, &vassal.name, pid, owner, now);
                if vassal.pauses.failures == 0 {
                    let whose = owner.map(|owner| format!(", user {}, group {}", owner.user, owner.group)).unwrap_or_default();
                    log_sink::line(&format!("vassal {} started (pid {pid}{whose})", vassal.name));
                }
            }
            Err(error) => {
                let pause_ms = vassal.pauses.ended(false, 0, &self.means.emperor, now);
                if vassal.pauses.are_told(&self.means.emperor) {
                    let pause = backoff::in_words(pause_ms);
                    log_sink::line(&format!("vassal {} can't be started: {error}; next attempt {pause}", vassal.name));
                }
            }
        }
    }

    fn reload(&mut self, place: usize) {
        let vassal = &mut self.vassals[place];
        let (Some(found), Some(process)) = (&vassal.found, &mut vassal.process) else { return };
        process.record.stamp = found.stamp;
        log_sink::line(&format!("vassal {} (pid {}) reloads: its file has changed", vassal.name, process.pid()));
        order(process, EmperorOrder::Reload);
        vassal.times.respawns += 1;
        vassal.times.last_run_s = system::seconds_since_1970();
        (process.record.is_ready, process.record.is_accepting) = (false, false);
    }

    fn stop(&mut self, place: usize, why: &str, now: u64) {
        let Emperor { ends_gracefully, tolerance_ms, .. } = self.means.emperor;
        let ends_ms = self.ends_ms;
        let vassal = &mut self.vassals[place];
        let Some(process) = &mut vassal.process else { return };
        if ends_ms.is_none() {
            log_sink::line(&format!("vassal {} (pid {}) stops: {why}", vassal.name, process.pid()));
        }
        order(process, if ends_gracefully { EmperorOrder::StopGracefully } else { EmperorOrder::Stop });
        // A vassal does not have a channel, so this only records the order.
        process.order(0, ends_ms.unwrap_or(now.saturating_add(tolerance_ms)));
        vassal.times.told_to_end_s = system::seconds_since_1970();
    }

    /// Reads what a vassal reports. The end of its socket is that of the vassal, which the kernel reports too.
    fn read_reports(&mut self, id: u64, now: u64) {
        let Some(vassal) = self.vassals.by_id(id) else { return };
        let Some(link) = vassal.process.as_mut().and_then(|process| process.record.link.as_mut()) else { return };
        let mut bytes = [0; MAX_REPORTS_TURN];
        let count = match link.read(&mut bytes) {
            Ok(count) if count > 0 => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Ok(_) | Err(_) => {
                if let Some(process) = &mut vassal.process {
                    process.record.link = None;
                }
                return;
            }
        };
        let seconds = system::seconds_since_1970();
        for report in bytes[..count].iter().filter_map(|byte| VassalReport::of(*byte)) {
            if vassal.note(report, now, seconds) {
                log_sink::line(&format!("vassal {} serves again", vassal.name));
            }
        }
    }

    /// Reaps the children that have exited.
    fn reap(&mut self, now: u64) {
        while let Some(pid) = system::next_end() {
            let status = system::take_status(pid);
            if self.hooks.note_end(pid, status, now) {
                continue;
            }
            let is_it = |vassal: &&Vassal| vassal.process.as_ref().is_some_and(|process| process.pid() == pid);
            // Others are orphans that vassals have left.
            if let Some(id) = self.vassals.iter().find(is_it).map(|vassal| vassal.id) {
                self.note_end(id, Cause::from_status(status), now);
            }
        }
    }

    /// Handles the end of a vassal's process.
    fn note_end(&mut self, id: u64, cause: Cause, now: u64) {
        // Its last reports say why it has ended.
        self.read_reports(id, now);
        let Some(vassal) = self.vassals.by_id(id) else { return };
        let Some(process) = vassal.process.take() else { return };
        note_end(vassal, process.ended(cause, now), &self.means.emperor, now);
        self.hooks.ended(&self.means.emperor.hooks, &vassal.name, now);
    }

    /// Listens for vassals that start on demand, when it is known which the emperor before has left.
    fn prepare_demand(&mut self) {
        if !self.orphans.are_awaited() {
            self.vassals.prepare_demand(&self.means.emperor, &self.means.origin);
        }
    }

    fn note_call(&mut self, id: u64) {
        let Some(vassal) = self.vassals.by_id(id) else { return };
        if let Some(demand) = &mut vassal.demand {
            demand.is_called = true;
        }
    }

    /// Takes over a vassal of the emperor before that has said who it is.
    fn greet(&mut self, descriptor: i32, now: u64) {
        let Some(Orphan { greeting: Greeting { name, read_s }, mut link, pid, user }) = self.orphans.read(descriptor) else {
            return;
        };
        let own = nix::unistd::geteuid().as_raw();
        let place = match self.vassals.iter().position(|vassal| vassal.name == name && vassal.process.is_none()) {
            Some(place) => place,
            None => self.vassals.add(name.clone(), None),
        };
        let vassal = &mut self.vassals[place];
        let owner = vassal.found.as_ref().and_then(|found| found.owner);
        let expected = owner.map_or(own, |owner| owner.user);
        let handle = system::process_descriptor(Pid::from_raw(pid));
        // A process that has listened may have ended, and its pid may be another's since then.
        let is_its = handle.is_ok() && system::is_of_user(Pid::from_raw(pid), expected);
        if user != expected || !is_its {
            // It ends, if it is one. A name alone makes none of another user's processes a vassal.
            log_sink::line(&format!(
                "process {pid} of user {user} is not taken over as vassal {name}, which is of user {expected}"
            ));
            let _ = link.write(&[EmperorOrder::Stop.byte()]);
            return;
        }
        // The limits may be others by now.
        let limited = vassal.found.as_ref().map_or(Ok(None), |found| self.means.limits.prepare(vassal.id, found));
        if let Err(error) = limited {
            log_sink::line(&format!("vassal {name} keeps its limits: {error}"));
        }
        let stamp = vassal.found.as_ref().map(|found| found.stamp).filter(|stamp| stamp.is_older_than(read_s));
        let bond = Bond::new(link, handle.ok(), stamp.unwrap_or(Stamp::NONE), owner, now);
        let forked = Forked { pid: Pid::from_raw(pid), channel: None, leash: None };
        vassal.process = Some(AuxiliaryProcess::new(format!("vassal {name}"), forked, bond, now));
        vassal.times.started_s = system::seconds_since_1970();
        log_sink::line(&format!("vassal {name} (pid {pid}) is taken over from the emperor before"));
    }

    fn take_signals(&mut self, now: u64) {
        while let Some(number) = self.means.signals.next() {
            match Signal::try_from(number) {
                Ok(Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) => self.end(&signals::name(number), now),
                Ok(Signal::SIGHUP) => self.reload_all("SIGHUP"),
                Ok(Signal::SIGUSR1) => answers::lines(&self.vassals, now).iter().for_each(|line| log_sink::line(line)),
                Ok(Signal::SIGURG) => self.vassals.iter_mut().for_each(|vassal| vassal.pauses.forget()),
                Ok(Signal::SIGCHLD | Signal::SIGWINCH | Signal::SIGPIPE) => {}
                _ => log_sink::line(&format!("ignoring {}", signals::name(number))),
            }
        }
    }

    /// Tells all vassals to end. The second request kills those that are left.
    fn end(&mut self, by: &str, now: u64) {
        if self.ends_ms.is_some() {
            log_sink::line(&format!("stopping immediately ({by})"));
            return self.vassals.iter_mut().for_each(Vassal::kill);
        }
        self.ends_ms = Some(now.saturating_add(END_MS));
        let count = self.vassals.iter().filter(|vassal| vassal.process.is_some()).count();
        log_sink::line(&format!("stop ({by}): {} {}", counted(count as u64, "vassal"), if count == 1 { "ends" } else { "end" }));
        self.notifier.stopping(END_MS);
    }

    fn reload_all(&mut self, by: &str) {
        if self.means.logs.reopens_at_reload() {
            // A failure is logged, and does not prevent the reload.
            let _ = self.take_new(self.means.logs.reopen_all(), "log-reopen");
        }
        let places: Vec<usize> = (0..self.vassals.len()).filter(|place| self.vassals[*place].process.is_some()).collect();
        log_sink::line(&format!("reload ({by}): {}", counted(places.len() as u64, "vassal")));
        places.into_iter().for_each(|place| self.reload(place));
        for vassal in self.vassals.iter_mut() {
            vassal.pauses.forget();
            vassal.is_stopped = false;
        }
    }

    fn take_question(&mut self, client: u64, now: u64) {
        let Some(question) = self.means.control.take(client) else { return };
        let answer = match question["ask"].as_str().unwrap_or_default() {
            "identity" => self.identity(),
            "status" => answers::status(self.identity(), &self.vassals, now),
            "stop" => {
                self.end("the control socket", now);
                done("stopping")
            }
            "log-reopen" => self.renew_logs(Logs::reopen_all, "opening its log files again"),
            "log-rotate" => self.renew_logs(Logs::rotate_all, "moving its log files aside and starting new ones"),
            "reload" => {
                self.reload_all("the control socket");
                done("reloading all vassals")
            }
            asked => json!({"ok": false, "message": format!("an emperor does not do `{asked}`: ask a vassal")}),
        };
        self.means.control.answer(client, &answer, now);
    }

    /// Opens the log files again, as a command asks. Returns the answer.
    fn renew_logs(&mut self, renew: impl Fn(&Logs) -> Vec<Renewed>, what: &str) -> Value {
        match self.take_new(renew(&self.means.logs), "the control socket") {
            Ok(()) => done(what),
            Err(message) => json!({"ok": false, "message": message}),
        }
    }

    /// Writes to the new files of its logs from now on, as do the vassals that share the first.
    fn take_new(&mut self, new: Vec<Renewed>, by: &str) -> Result<(), String> {
        let Governor { vassals, means, .. } = self;
        log_files::take_new(new, by, |new| {
            if let Err(error) = bolide_log::replace(new.number as usize, &new.file) {
                return log_sink::line(&format!("the log {} can't be replaced: {error}", new.number));
            }
            // Another program would not know the order.
            if new.number == 0 && means.emperor.programs == Programs::default() {
                vassals.iter().filter_map(Vassal::link).for_each(|link| send_log(link, new));
            }
        })
    }

    fn identity(&self) -> Value {
        answers::identity(&self.means.configurations, &self.means.origin.directory)
    }

    fn answer_statistics(&mut self, token: ServerToken, now: u64) {
        let Governor { means, vassals, .. } = self;
        let Means { statistics, emperor, origin, .. } = means;
        if let Some(server) = statistics {
            answers::serve(server, token, || answers::of_uwsgi(emperor, origin, vassals).to_string() + "\n", now);
        }
    }

    fn answer_scraper(&mut self, token: ScrapeToken, now: u64) {
        let Means { scraping, emperor, configurations, origin, .. } = &mut self.means;
        let status = || answers::status(answers::identity(configurations, &origin.directory), &self.vassals, now);
        if let Some(scraping) = scraping {
            scraping.take_news(token, (&self.vassals, emperor), &status, now);
        }
    }

    /// Lets clients go that have exceeded their time.
    fn end_late_clients(&mut self, now: u64) {
        let Means { control, statistics, scraping, emperor, .. } = &mut self.means;
        control.drop_late(now);
        statistics.iter_mut().for_each(|server| server.look_after_time(now));
        scraping.iter_mut().for_each(|scraping| scraping.advance((&self.vassals, emperor), now));
    }
}

/// Sends an order. A vassal that does not read it is noticed when it does not end or send heartbeats.
fn order(process: &mut AuxiliaryProcess<Bond>, order: EmperorOrder) {
    if let Some(link) = &mut process.record.link {
        let link: &mut UnixStream = link;
        let _ = link.write(&[order.byte()]);
    }
}

/// Handles the end of a vassal's process.
fn note_end(vassal: &mut Vassal, ended: EndedAuxiliary<Bond>, emperor: &Emperor, now: u64) {
    vassal.leaves_mode = false;
    if let Some(demand) = &mut vassal.demand {
        // Connections that wait are seen again.
        demand.is_called = false;
        if ended.process.record.was_idle {
            log_sink::line(&format!("vassal {} was idle: it waits for its next connection", vassal.name));
            return;
        }
    }
    if ended.process.record.was_stopped {
        vassal.is_stopped = true;
        log_sink::line(&format!("{}: a command has stopped it, and a change of its file starts it again", ended.words()));
        return;
    }
    if !ended.by_itself {
        log_sink::line(&ended.words());
        return;
    }
    let was_loyal = ended.process.record.is_loyal;
    let pause_ms = vassal.pauses.ended(was_loyal, ended.lived_ms, emperor, now);
    if vassal.pauses.failures == 0 || vassal.pauses.are_told(emperor) {
        let served = if was_loyal { "" } else { " before it served" };
        let pause = backoff::in_words(pause_ms);
        log_sink::line(&format!("{}{served}: starting it again {pause}", ended.words()));
    }
}

fn done(what: &str) -> Value {
    json!({"ok": true, "message": what})
}

/// Sends the new file of the log. A vassal that does not read it writes to the old one.
fn send_log(link: &UnixStream, new: &NewLog) {
    let byte = [EmperorOrder::TakeLog.byte()];
    let descriptors = [new.file.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let _ = sendmsg::<()>(link.as_raw_fd(), &[IoSlice::new(&byte)], &rights, MsgFlags::MSG_NOSIGNAL, None);
}
