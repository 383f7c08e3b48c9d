//! The address of `metrics`: one page for Prometheus with the numbers of all vassals, each with the label `site`. At a request,
//! the emperor asks the control sockets of its vassals, and answers when they have answered or their time is over. It waits for
//! none of them, and knows none of their numbers. The emperor runs it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use bolide_contract::control::Channel;
use bolide_contract::emperor::Emperor;
use bolide_services::openmetrics::{Collected, Facts, PageForm, VassalFacts, page_of_sites};
use bolide_supervision::polling::{ServerToken, Source};
use bolide_supervision::sockets::stats_server::{Answer, Page, Request, StatsServer};
use serde::Deserialize;
use serde_json::Value;

use crate::answers;
use crate::peers::{self, Peer};
use crate::vassal::Vassal;

/// For how long the same numbers are given, in milliseconds.
const FRESH_MS: u64 = 1000;
/// Time that a vassal has to answer, in milliseconds.
const ANSWER_MS: u64 = 1000;
/// Time that all vassals have to answer, in milliseconds. It is less than the time of a client of this address.
const COLLECTING_MS: u64 = 3000;
/// Vassals that are asked at the same time.
const MAX_ASKED: usize = 64;
/// Bytes of an answer.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Bytes of all answers. Vassals beyond it are left out.
const MAX_ALL_BYTES: usize = 32 * 1024 * 1024;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 * 1024;
/// The question, as a master reads it.
const QUESTION: &[u8] = b"{\"ask\": \"metrics\"}\n";

/// The paths of this address.
const INDEX: &str = "/metrics     the numbers of all vassals, for Prometheus\n/-/ready     whether the emperor governs\n\
    /-/healthy   whether the emperor lives\n/-/status    the vassals, as JSON\n";

/// The server, and the numbers that it has.
#[derive(Debug)]
pub struct Scraping {
    server: StatsServer,
    /// `metrics-host`
    hosts: Vec<String>,
    collecting: Option<Collecting>,
    collected: Pages,
}

/// The owner of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrapeToken {
    Server(ServerToken),
    /// A vassal that was asked, by the descriptor.
    Asked(i32),
}

/// The vassals, and where they are.
pub type Court<'a> = (&'a [Vassal], &'a Emperor);

/// What is collected at present.
#[derive(Debug)]
struct Collecting {
    /// Vassals that are still to be asked: the number and the process.
    to_ask: Vec<(u64, i32)>,
    asked: Vec<Asked>,
    answered: Vec<(u64, Collected)>,
    bytes: usize,
    until_ms: u64,
}

/// A vassal that was asked.
#[derive(Debug)]
struct Asked {
    vassal: u64,
    stream: UnixStream,
    received: Vec<u8>,
    until_ms: u64,
}

/// The form of an answer.
#[derive(Debug, Deserialize)]
struct Answered {
    families: Collected,
}

/// The numbers that were collected last, and the pages that were made of them.
#[derive(Debug, Default)]
struct Pages {
    /// When they were complete; `None` if there are none.
    taken_ms: Option<u64>,
    facts: Facts,
    sites: Vec<(String, Collected)>,
    pages: Vec<(PageForm, Page)>,
}

impl Scraping {
    /// Serves at this address, to browsers under these names.
    pub fn new(server: StatsServer, hosts: Vec<String>) -> Scraping {
        Scraping { server, hosts, collecting: None, collected: Pages::default() }
    }

    /// The descriptors to wait on. While numbers are collected, clients wait.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_, ScrapeToken>> {
        let asked = self.collecting.iter().flat_map(|collecting| &collecting.asked).map(|asked| {
            let stream = asked.stream.as_fd();
            Source::readable(ScrapeToken::Asked(asked.stream.as_raw_fd()), stream)
        });
        let server = self.collecting.is_none().then(|| self.server.sources(true));
        asked.chain(server.into_iter().flatten().map(|source| source.map(ScrapeToken::Server)))
    }

    /// When [`Scraping::advance`] has something to do without an event.
    pub fn wake_ms(&self) -> Option<u64> {
        let own = self.collecting.as_ref().map(Collecting::wake_ms);
        own.into_iter().chain(self.server.wake_ms()).min()
    }

    /// Handles an event of a descriptor. `status` makes the answer of `/-/status`.
    pub fn take_news(&mut self, token: ScrapeToken, (vassals, emperor): Court<'_>, status: &dyn Fn() -> Value, now_ms: u64) {
        match (token, &mut self.collecting) {
            (ScrapeToken::Asked(descriptor), Some(collecting)) => collecting.read(descriptor),
            // The client waits until they are there, and its event comes again.
            (ScrapeToken::Server(_), None) if self.collected.are_old(now_ms) => {
                self.collecting = Some(Collecting::begin(vassals, now_ms));
                self.advance((vassals, emperor), now_ms);
            }
            (ScrapeToken::Server(token), None) => {
                let Scraping { server, hosts, collected, .. } = self;
                let mut answering = |request: Option<&Request>| answer(collected, hosts, status, request);
                server.take_news(token, &mut answering, now_ms);
            }
            _ => {}
        }
    }

    /// Asks more vassals, gives up late ones, and keeps the numbers when all have answered. Lets late clients go.
    pub fn advance(&mut self, (vassals, emperor): Court<'_>, now_ms: u64) {
        if let Some(mut collecting) = self.collecting.take() {
            collecting.advance(now_ms);
            match collecting.is_complete() {
                true => self.collected = Pages::of(collecting.answered, vassals, emperor, now_ms),
                false => self.collecting = Some(collecting),
            }
        }
        self.server.look_after_time(now_ms);
    }
}

impl Collecting {
    fn begin(vassals: &[Vassal], now_ms: u64) -> Collecting {
        let running = |vassal: &Vassal| Some((vassal.id, vassal.process.as_ref()?.pid().as_raw()));
        // The first is the last in the list.
        let to_ask = vassals.iter().rev().filter_map(running).collect();
        Collecting { to_ask, asked: Vec::new(), answered: Vec::new(), bytes: 0, until_ms: now_ms + COLLECTING_MS }
    }

    fn advance(&mut self, now_ms: u64) {
        self.asked.retain(|asked| now_ms < asked.until_ms);
        if now_ms >= self.until_ms || self.bytes >= MAX_ALL_BYTES {
            (self.to_ask, self.asked) = (Vec::new(), Vec::new());
        }
        while self.asked.len() < MAX_ASKED {
            let Some((vassal, pid)) = self.to_ask.pop() else { return };
            // A uWSGI does not have a control socket, and a starting master does not have one yet.
            if let Some(stream) = ask(pid) {
                self.asked.push(Asked { vassal, stream, received: Vec::new(), until_ms: now_ms + ANSWER_MS });
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.to_ask.is_empty() && self.asked.is_empty()
    }

    fn wake_ms(&self) -> u64 {
        self.asked.iter().map(|asked| asked.until_ms).min().unwrap_or(0).min(self.until_ms)
    }

    /// Reads what a vassal has answered. One whose answer is too long, or is none, is left out.
    fn read(&mut self, descriptor: i32) {
        let Some(place) = self.asked.iter().position(|asked| asked.stream.as_raw_fd() == descriptor) else { return };
        let asked = &mut self.asked[place];
        let mut bytes = [0; READ_BYTES];
        match asked.stream.read(&mut bytes) {
            Ok(count) if count > 0 && asked.received.len() + count <= MAX_ANSWER_BYTES => {
                asked.received.extend_from_slice(&bytes[..count]);
                self.bytes += count;
                if bytes[count - 1] != b'\n' {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Ok(_) | Err(_) => asked.received.clear(),
        }
        let asked = self.asked.swap_remove(place);
        if let Ok(Answered { families }) = serde_json::from_slice(&asked.received) {
            self.answered.push((asked.vassal, families));
        }
    }
}

/// Sends the question to the master with this pid. The kernel says whether it is the one that listens under its name.
fn ask(pid: i32) -> Option<UnixStream> {
    let is_its = |stream: &UnixStream| Peer::of(stream).is_some_and(|peer| peer.pid == pid);
    let names = (0..Channel::MAX_ATTEMPTS).map(|attempt| Channel::name_of(pid, attempt));
    let mut stream = names.filter_map(|name| peers::connect_to(&name).ok()).find(is_its)?;
    // A new connection has room for so few bytes.
    stream.write_all(QUESTION).ok()?;
    Some(stream)
}

impl Pages {
    fn of(answered: Vec<(u64, Collected)>, vassals: &[Vassal], emperor: &Emperor, now_ms: u64) -> Pages {
        let mut answered: HashMap<u64, Collected> = answered.into_iter().collect();
        let mut count: HashMap<&str, u32> = HashMap::new();
        vassals.iter().for_each(|vassal| *count.entry(&vassal.name).or_default() += 1);
        let mut facts = Facts::default();
        let mut sites = Vec::new();
        for vassal in vassals {
            // Two directories may have files of one name, and a series must not appear twice.
            let name = match &vassal.found {
                Some(found) if count[vassal.name.as_str()] > 1 => {
                    format!("{}/{}", answers::place_of(emperor, found.place), vassal.name)
                }
                _ => vassal.name.clone(),
            };
            let numbers = answered.remove(&vassal.id);
            facts.vassals.push(VassalFacts {
                name: name.clone(),
                state: answers::state_of(vassal, now_ms),
                has_answered: numbers.is_some(),
                reloads: vassal.times.respawns,
                failures: u64::from(vassal.pauses.failures),
            });
            sites.extend(numbers.map(|numbers| (name, numbers)));
        }
        Pages { taken_ms: Some(now_ms), facts, sites, pages: Vec::new() }
    }

    fn are_old(&self, now_ms: u64) -> bool {
        self.taken_ms.is_none_or(|taken_ms| now_ms >= taken_ms + FRESH_MS)
    }

    /// Returns the page in the form that the scraper prefers.
    fn page(&mut self, accept: &str) -> Answer {
        let form = PageForm::preferred(accept);
        let known = self.pages.iter().find(|(known, _)| *known == form).map(|(_, page)| page.clone());
        let page = known.unwrap_or_else(|| {
            let page = Page::from(page_of_sites(&self.facts, &self.sites, form));
            self.pages.push((form, page.clone()));
            page
        });
        Answer::page(200, form.content_type(), page)
    }
}

/// Answers a request, by the rules of an instance's address of `metrics`.
fn answer(collected: &mut Pages, hosts: &[String], status: &dyn Fn() -> Value, request: Option<&Request>) -> Answer {
    let Some(request) = request else { return Answer::text(400, "This is not an HTTP request.\n") };
    match request.path.as_str() {
        // A script of another site must not read by a name of its own. Probes come under any name, and learn one word.
        "/metrics" | "/-/status" if !request.may_read(hosts) => request.refused_host(),
        _ if request.is_of_browser && !request.is_for(hosts) => request.refused_host(),
        "/metrics" => collected.page(&request.accept),
        "/-/healthy" => Answer::text(200, "healthy\n"),
        "/-/ready" => Answer::text(200, "ready\n"),
        "/-/status" => Answer::page(200, "application/json", Page::from((status().to_string() + "\n").into_bytes())),
        "" => Answer::text(400, "This is not an HTTP request.\n"),
        _ => Answer::text(404, &format!("There is nothing here. These paths exist:\n{INDEX}")),
    }
}
