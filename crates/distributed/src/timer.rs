//! Timers that fire once for all machines: each instance asks, and the engine names one of them for each period.
//!
//! A firing is at least once: an instance that dies before it says that it is done loses the period after `hold`, and another one
//! that asks within the period fires again. It does not have a clock of its own. The engine's clock says which period it is, or
//! the caller does (a cron's minute).

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::engine::{Engine, Script};
use crate::fault::Fault;
use crate::wire::Value;

const CLAIM: &str = include_str!("scripts/timer_claim.lua");
const FINISH: &str = include_str!("scripts/timer_finish.lua");

const HOLDER_BYTES: usize = 16;
/// No period is known to be done.
const UNKNOWN: i64 = -1;

pub struct UniqueTimer {
    engine: &'static Engine,
    key: Vec<u8>,
    hold: Duration,
    /// The last period that the engine has called done. An engine that has lost its data learns it from here.
    known_done: AtomicI64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    pub period: i64,
    holder: [u8; HOLDER_BYTES],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// This process fires, and announces it with [`UniqueTimer::finish`].
    Fire(Firing),
    /// This period is done.
    Done,
    /// Another process fires right now. If it dies, the period is free again after `hold`.
    Busy,
}

impl UniqueTimer {
    pub fn new(engine: &'static Engine, name: &str, hold: Duration) -> UniqueTimer {
        UniqueTimer { engine, key: engine.tagged_key("timer", name), hold, known_done: AtomicI64::new(UNKNOWN) }
    }

    /// Asks for the period that the engine's clock is in. The first call for a name begins with the next period.
    pub fn claim(&self, period: Duration) -> Result<Claim, Fault> {
        self.ask(&period.as_millis().max(1).to_string(), "")
    }

    /// Asks for a period that the caller names: numbers that grow, such as minutes since 1970.
    pub fn claim_named(&self, period: i64) -> Result<Claim, Fault> {
        self.ask("0", &period.to_string())
    }

    fn ask(&self, length_ms: &str, named: &str) -> Result<Claim, Fault> {
        let mut holder = [0; HOLDER_BYTES];
        getrandom::fill(&mut holder).map_err(|error| Fault::Refused(format!("no random bytes for a timer: {error}")))?;
        let (hold, known) = (self.hold.as_millis().to_string(), self.known_done.load(Relaxed).to_string());
        let arguments: [&[u8]; 5] = [length_ms.as_bytes(), named.as_bytes(), hold.as_bytes(), &holder, known.as_bytes()];
        let answer = self.engine.run(&Script { text: CLAIM, keys: &[&self.key], arguments: &arguments, answer_bytes: 0 })?;
        let Value::List(parts) = answer else { return Err(Fault::unexpected("a timer")) };
        match parts.as_slice() {
            [Value::Integer(1), Value::Integer(period)] => Ok(Claim::Fire(Firing { period: *period, holder })),
            [Value::Integer(2), Value::Integer(_)] => Ok(Claim::Busy),
            [Value::Integer(0), Value::Integer(done)] => {
                self.known_done.fetch_max(*done, Relaxed);
                Ok(Claim::Done)
            }
            _ => Err(Fault::unexpected("a timer")),
        }
    }

    /// The period is done. `Ok(false)`: it took longer than `hold`, and another process may have fired too.
    pub fn finish(&self, firing: &Firing) -> Result<bool, Fault> {
        let period = firing.period.to_string();
        let arguments: [&[u8]; 2] = [&firing.holder, period.as_bytes()];
        let answer = self.engine.run(&Script { text: FINISH, keys: &[&self.key], arguments: &arguments, answer_bytes: 0 })?;
        self.known_done.fetch_max(firing.period, Relaxed);
        Ok(matches!(answer, Value::Integer(1)))
    }
}
