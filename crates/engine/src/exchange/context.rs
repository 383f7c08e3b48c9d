//! The context of work: the worker, what the thread keeps from request to request, and for a request its connection.
//!
//! It does not know about protocols. Worker threads create a context for short periods, and keep their own data.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bolide_protocol::session::HeadParts;
use bolide_routes::Values;
use bolide_scoreboard::{Meters, Recorder};

use crate::app::App;
use crate::app_thread::AppThread;
use crate::exchange::passage::Passage;
use crate::exchange::worker::Worker;
use crate::logging::access_log::AccessLog;
use crate::logging::identity::SharedIdentity;
use crate::logging::waiting::RequestStart;
use crate::response::ResponseWriter;
use crate::response::buffers::ResponseBuffers;
use crate::scheduling::clock::Clock;
use crate::scheduling::connections::ExchangeId;
use crate::scheduling::turn::TurnBudget;
use crate::sockets::client::Client;

/// The context of a thread.
pub struct Context<'a, A: App> {
    pub worker: &'a Worker,
    pub thread: &'a mut ThreadContext,
    pub app: &'a mut AppThread<A>,
}

/// The context of a thread that works on one exchange.
pub struct ExchangeContext<'a, A: App> {
    pub worker: &'a Worker,
    pub thread: &'a mut ThreadContext,
    pub app: &'a mut AppThread<A>,
    pub writer: ResponseWriter<'a>,
    pub client: &'a Client,
    /// Number of the listener, in the order of the settings.
    pub listener: usize,
    pub id: ExchangeId,
    /// The request is the connection's first.
    pub is_first: bool,
    /// The answer is the connection's last.
    pub is_last: bool,
    /// When the request arrived, if the application is told by this server.
    pub start: Option<RequestStart>,
    /// What it has passed, if its rules came before its body.
    pub passage: Option<Box<Passage>>,
}

impl<A: App> ExchangeContext<'_, A> {
    /// A trusted reverse proxy has said when the request arrived: it knows that better. Costs one branch without `request-start`.
    #[inline]
    pub fn keep_said_start(&mut self, is_said: impl FnOnce() -> bool) {
        if self.start.is_some() && self.client.may_identify() && is_said() {
            self.start = None;
        }
    }

    /// Makes the identity of a request, which its answer gets too. Costs one branch if requests have none.
    #[inline]
    pub fn identity<V: Values>(&mut self, values: impl FnOnce() -> V) -> SharedIdentity {
        let rules = self.worker.identity?;
        if let Some(kept) = self.passage.as_mut().and_then(|passage| passage.identity.take()) {
            self.writer.set_own_fields(rules.fields(&kept));
            return Some(kept);
        }
        let values = values();
        let made = rules.identity(self.client.may_identify(), |name| values.value(name));
        self.writer.set_own_fields(rules.fields(&made));
        Some(Arc::new(made))
    }
}

/// The size of a thread's read buffer. A head within its limit always fits, with more data behind it: at least one TLS record.
const READ_BYTES: usize = 64 * 1024;

/// The data of one thread. Its buffers live as long as the thread, so that a request allocates none.
pub struct ThreadContext {
    pub read: Vec<u8>,
    pub parts: HeadParts,
    pub path: Vec<u8>,
    pub buffers: ResponseBuffers,
    pub log: AccessLog,
    pub clock: Clock,
    /// The thread's number in its worker: uWSGI's core.
    pub core: u32,
    /// Its slot of the scoreboard, with the ring of its last requests.
    pub slot: Recorder<'static>,
    pub meters: &'static Meters,
    /// The recorder's entry of the request to serve, if its body was awaited; 0 for none.
    pub awaited: u64,
    /// Other connections wait to be served: an answer may be sent slightly later, together with theirs.
    pub may_cork: bool,
    /// The budget of the connection that is being served.
    pub turn: TurnBudget,
}

impl ThreadContext {
    pub fn new(worker: &Worker, core: u32, (slot, meters): (Recorder<'static>, &'static Meters)) -> ThreadContext {
        let read_bytes = READ_BYTES.max(worker.head_limits.head_bytes + worker.head_limits.request_line_bytes + READ_BYTES / 2);
        slot.take(nix::unistd::gettid().as_raw() as u32);
        slot.measures.store(u32::from(worker.measures_time), Relaxed);
        ThreadContext {
            read: vec![0; read_bytes],
            parts: HeadParts::default(),
            path: Vec::new(),
            buffers: ResponseBuffers::default(),
            log: AccessLog::new(worker.line_style, worker.settings.logging.memory_report),
            clock: Clock::new(),
            core,
            slot,
            meters,
            awaited: 0,
            may_cork: false,
            turn: TurnBudget::default(),
        }
    }
}
