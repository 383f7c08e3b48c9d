//! Data of the few requests that use functions of the module `uwsgi`: it is kept beside the response, and dropped with the
//! request.
//!
//! It knows no response. The thread that serves the request uses it.

use std::sync::atomic::Ordering::Relaxed;

use bolide_engine::blocking_websocket::BlockingWebSocket;
use bolide_scoreboard::Slot;

use crate::object::Object;

#[derive(Default)]
pub struct RequestExtras {
    /// The request's slot, and its limit before `set_user_harakiri`.
    limited: Option<(&'static Slot, u32)>,
    pub environ: Option<Object>,
    pub websocket: Option<BlockingWebSocket>,
}

impl RequestExtras {
    /// Limits the time of the request, in milliseconds since it began.
    pub fn limit(&mut self, slot: &'static Slot, limit_ms: u32) {
        self.limited.get_or_insert((slot, slot.limit_ms.load(Relaxed)));
        slot.limit_ms.store(limit_ms, Relaxed);
    }

    pub fn restore_limit(&mut self) {
        if let Some((slot, before)) = self.limited.take() {
            slot.limit_ms.store(before, Relaxed);
        }
    }
}
