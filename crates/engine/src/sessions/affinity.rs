//! `sticky`: which worker has the session of a request, and what its answer tells about it. The worker that has made a session,
//! by its first request or by a field of an answer, owns it while it serves.
//!
//! It decides, and moves nothing. Values of keys are only hashed: no log and no status shows them. Worker threads run it.

use std::sync::atomic::Ordering::Relaxed;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bolide_contract::answering::SessionKey;
use bolide_contract::boot::SessionFiles;
use bolide_protocol::response::ResponseHead;
use bolide_scoreboard::session_owners::{Owner, Reason, SessionOwners};
use bolide_scoreboard::session_pair::SessionPair;
use bolide_scoreboard::ticket_keys::TicketKeys;
use bolide_scoreboard::{Row, Scoreboard, SessionResult, Tally, add};
use bolide_tls::{OpenedCookie, SealedCookies};

use crate::sessions::session_keys::KeyedRequest;

/// The name of the server's own cookie.
const COOKIE: &[u8] = b"BOLIDE_WORKER";

/// The most cookies of that name that are opened for a request. Clients send one.
const MAX_COOKIES: usize = 2;

/// The kinds of keys, as parts of their hashes.
const OF_HEADER: u8 = 1;
const OF_QUERY: u8 = 2;
const OF_COOKIE: u8 = 3;
const OF_ADDRESS: u8 = 4;

/// What a worker has of the table of session owners, and of the pairs over which connections move to them (`sticky`).
pub struct SessionLinks {
    pub owners: SessionOwners,
    pub pairs: Vec<SessionPair>,
    /// The place of its own pair.
    pub own_place: usize,
    /// Its generation's side.
    pub side: bool,
}

/// What a worker knows about sessions. There is one in a process, and exchanges refer to it.
pub struct Affinity {
    keys: Vec<SessionKey>,
    links: SessionLinks,
    own: Owner,
    scoreboard: Scoreboard,
    cookies: Option<SealedCookies>,
}

/// The worker that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedAt {
    Here,
    Elsewhere(Owner),
}

/// How a request has come to the worker that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    ByItself,
    /// From another worker, on a connection that has moved.
    WithConnection,
    /// From another worker, which has the connection.
    OverRelay,
}

/// A choice, and the facts about the request's session that it has found.
pub struct SessionChoice {
    pub place: ServedAt,
    /// No worker has had the session.
    is_first: bool,
    /// Of the request's cookie, which is looked for only as far as the choice needs it.
    cookie: Option<OpenedCookie>,
}

/// What the answer of a request does for its session.
pub struct SessionAnswer {
    affinity: &'static Affinity,
    /// The value of Set-Cookie.
    cookie: Option<String>,
    now_ms: u64,
}

impl Affinity {
    /// The calling process is the worker of this row.
    pub fn new(
        keys: &[SessionKey],
        links: SessionLinks,
        row: u32,
        scoreboard: Scoreboard,
        ticket_keys: Option<TicketKeys>,
    ) -> Affinity {
        let cookies = ticket_keys.filter(|_| keys.contains(&SessionKey::Cookie)).map(|keys| SealedCookies { keys });
        let own = Owner { row: u16::try_from(row).unwrap_or(u16::MAX), pid: std::process::id(), side: links.side };
        if let Some(row) = scoreboard.row(row) {
            row.side.store(u32::from(links.side), Relaxed);
        }
        Affinity { keys: keys.to_vec(), links, own, scoreboard, cookies }
    }

    /// The choice depends on the client that a reverse proxy names.
    pub fn needs_client(&self) -> bool {
        self.keys.contains(&SessionKey::Address) || self.cookies.is_some()
    }

    /// The pair of this worker.
    pub fn own_pair(&self) -> Option<&SessionPair> {
        self.links.pairs.get(self.links.own_place)
    }

    /// The pair of another worker.
    pub fn pair_of(&self, owner: Owner) -> Option<&SessionPair> {
        let number = self.scoreboard.row(u32::from(owner.row))?.worker.load(Relaxed);
        self.links.pairs.get(SessionFiles::place(number, owner.side))
    }

    /// The worker serves and will go on to. One that drains has given its sessions up.
    pub fn lives(&self, owner: Owner) -> bool {
        self.scoreboard.row(u32::from(owner.row)).is_some_and(|row| row.pid.load(Relaxed) == owner.pid && serves_on(row))
    }

    /// A worker that is about to be replaced by this one takes from the same pair until it drains, as its sessions are there.
    pub fn has_elder(&self) -> bool {
        let Some(own) = self.scoreboard.row(u32::from(self.own.row)) else { return false };
        let mine = |row: &Row| (row.worker.load(Relaxed), row.side.load(Relaxed));
        let began = |row: &Row| (row.started_ms.load(Relaxed), row.pid.load(Relaxed));
        self.scoreboard
            .rows()
            .iter()
            .any(|row| row.is_of_request_worker() && mine(row) == mine(own) && began(row) < began(own) && serves_on(row))
    }

    /// Chooses the worker for a request: the owner of the first key that has one. The keys before it belong to that worker from
    /// now on. If none has an owner, this worker owns them all.
    pub fn choose(&self, request: &KeyedRequest<'_>, now_ms: u64) -> SessionChoice {
        let now_s = now_ms / 1000;
        let mut cookie = None;
        let mut unknown = Vec::new();
        let mut found = None;
        for key in &self.keys {
            let Some(hash) = self.hash(key, request, &mut cookie) else { continue };
            found = self.owners().find(hash, now_s, |owner| self.lives(owner));
            if found.is_some() {
                break;
            }
            unknown.push(hash);
        }
        let mut owner = found.unwrap_or(self.own);
        for hash in unknown {
            let learned = self.owners().learn(hash, owner, Reason::Request, now_s, |owner| self.lives(owner));
            if found.is_none() {
                // Another worker may have learned the key in this very moment.
                owner = learned;
            }
        }
        let place = if owner == self.own { ServedAt::Here } else { ServedAt::Elsewhere(owner) };
        SessionChoice { place, is_first: found.is_none(), cookie }
    }

    /// What the answer does if the request is served here.
    pub fn answer(
        &'static self,
        choice: SessionChoice,
        request: &KeyedRequest<'_>,
        now_ms: u64,
        came: Came,
        tally: &Tally,
    ) -> Option<Box<SessionAnswer>> {
        let result = match choice.place {
            ServedAt::Elsewhere(_) => SessionResult::NotMoved,
            ServedAt::Here if came == Came::WithConnection => SessionResult::Moved,
            ServedAt::Here if came == Came::OverRelay => SessionResult::Relayed,
            ServedAt::Here if choice.is_first => SessionResult::Learned,
            ServedAt::Here => SessionResult::Here,
        };
        add(&tally.sessions[result as usize], 1);
        if result == SessionResult::NotMoved {
            // The session stays with its worker.
            return None;
        }
        let cookie = self.cookies.as_ref().and_then(|cookies| self.set_cookie(cookies, choice.cookie, request, now_ms));
        let learns = self.keys.iter().any(|key| matches!(key, SessionKey::Header(_)));
        (learns || cookie.is_some()).then(|| Box::new(SessionAnswer { affinity: self, cookie, now_ms }))
    }

    fn owners(&self) -> &SessionOwners {
        &self.links.owners
    }

    fn hash(&self, key: &SessionKey, request: &KeyedRequest<'_>, cookie: &mut Option<OpenedCookie>) -> Option<u64> {
        let owners = self.owners();
        match key {
            SessionKey::Header(name) => request.header(name).map(|value| owners.hash(OF_HEADER, name.as_bytes(), value)),
            SessionKey::Query(name) => request.query(name).map(|value| owners.hash(OF_QUERY, name.as_bytes(), &value)),
            SessionKey::Cookie => {
                *cookie = self.cookies.as_ref().and_then(|cookies| opened(cookies, request));
                cookie.map(|cookie| owners.hash(OF_COOKIE, b"", &cookie.identifier))
            }
            SessionKey::Address => request.address().map(|address| owners.hash(OF_ADDRESS, b"", &address)),
        }
    }

    /// The cookie for a request that has none which stays valid.
    fn set_cookie(
        &self,
        cookies: &SealedCookies,
        known: Option<OpenedCookie>,
        request: &KeyedRequest<'_>,
        now_ms: u64,
    ) -> Option<String> {
        let identifier = match known.or_else(|| opened(cookies, request)) {
            Some(OpenedCookie { is_old: false, .. }) => return None,
            Some(OpenedCookie { identifier, .. }) => identifier,
            None => SealedCookies::identifier()?,
        };
        let sealed = BASE64_URL_SAFE_NO_PAD.encode(cookies.seal(&identifier)?);
        let hash = self.owners().hash(OF_COOKIE, b"", &identifier);
        self.owners().learn(hash, self.own, Reason::Answer, now_ms / 1000, |owner| self.lives(owner));
        let secure = if request.is_https() { "; Secure" } else { "" };
        let name = std::str::from_utf8(COOKIE).unwrap_or_default();
        Some(format!("{name}={sealed}; Path=/; HttpOnly; SameSite=Lax{secure}"))
    }
}

/// The worker in this row serves, and was not told to exit.
fn serves_on(row: &Row) -> bool {
    row.is_accepting() && row.drained_ms.load(Relaxed) == 0 && row.stopped_ms.load(Relaxed) == 0
}

fn opened(cookies: &SealedCookies, request: &KeyedRequest<'_>) -> Option<OpenedCookie> {
    let values = request.cookies(COOKIE).take(MAX_COOKIES);
    values.filter_map(|value| cookies.open(&BASE64_URL_SAFE_NO_PAD.decode(value).ok()?)).next()
}

impl SessionAnswer {
    /// The head of the answer is complete: learns the sessions that the application has made, and sets the cookie.
    pub fn apply(&self, head: &mut ResponseHead) {
        let affinity = self.affinity;
        for key in &affinity.keys {
            if let SessionKey::Header(name) = key
                && let Some(value) = head.value(name.as_bytes()).filter(|value| !value.is_empty())
                && value.len() <= crate::sessions::session_keys::MAX_KEY_BYTES
            {
                let hash = affinity.owners().hash(OF_HEADER, name.as_bytes(), value);
                affinity.owners().learn(hash, affinity.own, Reason::Answer, self.now_ms / 1000, |owner| affinity.lives(owner));
            }
        }
        if let Some(cookie) = &self.cookie {
            head.add(b"Set-Cookie", cookie.as_bytes());
        }
    }
}
