//! The context of work: the worker and the thread's own data, and for a request its connection.
//!
//! It knows no protocol. Worker threads create it for short periods.

use std::sync::Arc;

use bolide_routes::Values;

use crate::app::App;
use crate::app_thread::AppThread;
use crate::exchange::thread_context::ThreadContext;
use crate::exchange::worker::Worker;
use crate::logging::identity::SharedIdentity;
use crate::response::ResponseWriter;
use crate::scheduling::connections::ExchangeId;
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
    /// The answer is the connection's last.
    pub is_last: bool,
}

impl<A: App> ExchangeContext<'_, A> {
    /// Makes the identity of a request, which its answer gets too. Costs one branch if requests have none.
    #[inline]
    pub fn identity<V: Values>(&mut self, values: &impl Fn() -> V) -> SharedIdentity {
        let rules = self.worker.identity?;
        let values = values();
        let made = rules.identity(self.client.may_identify(), |name| values.value(name));
        self.writer.set_own_fields(rules.fields(&made));
        Some(Arc::new(made))
    }
}
