//! Leases: locks of several machines that end by themselves, and tokens that grow with each holder.
//!
//! A lease can't promise that its holder is alone. A process that was stopped for longer than its lease, or whose network is
//! cut, may still work when the next one holds it. The token is the remedy: a store that refuses a smaller token than it has seen
//! refuses the late writer.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Script};
use crate::fault::Fault;
use crate::wire::{Command, Value};

const TAKE: &str = include_str!("scripts/lease_take.lua");
const RENEW: &str = include_str!("scripts/lease_renew.lua");
const RELEASE: &str = include_str!("scripts/lease_release.lua");

/// Bytes of a holder's name at the engine, which no other holder has.
const HOLDER_BYTES: usize = 16;

pub struct Leases {
    engine: &'static Engine,
}

/// A lease that this process has taken.
#[derive(Debug, Clone)]
pub struct Lease {
    name: String,
    holder: [u8; HOLDER_BYTES],
    token: u64,
    /// Counted from before the call that took it, so that the engine never ends it earlier.
    good_until: Instant,
    /// A fork has the memory of the holder, and is not the holder.
    taken_by: u32,
}

impl Lease {
    /// Larger than the token of each earlier holder of this name.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns whether this process has taken it, and is not a fork of the one that has.
    pub fn is_own(&self) -> bool {
        self.taken_by == std::process::id()
    }

    /// How long the lease lasts, as far as this process knows. Zero: it has ended.
    pub fn remaining(&self) -> Duration {
        match self.is_own() {
            true => self.good_until.saturating_duration_since(Instant::now()),
            false => Duration::ZERO,
        }
    }
}

impl Leases {
    pub fn new(engine: &'static Engine) -> Leases {
        Leases { engine }
    }

    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    /// Takes the lease if it is free. `Ok(None)`: another process holds it.
    pub fn take(&self, name: &str, lasting: Duration) -> Result<Option<Lease>, Fault> {
        let mut holder = [0; HOLDER_BYTES];
        getrandom::fill(&mut holder).map_err(|error| Fault::Refused(format!("no random bytes for a lease: {error}")))?;
        match self.take_as(name, lasting, holder) {
            // The answer may have been lost on its way. The same holder gets the lease that it has, if it can be asked again.
            Err(Fault::Away(_)) => self.take_as(name, lasting, holder),
            answer => answer,
        }
    }

    fn take_as(&self, name: &str, lasting: Duration, holder: [u8; HOLDER_BYTES]) -> Result<Option<Lease>, Fault> {
        let before = Instant::now();
        match self.run(TAKE, name, &[&holder, milliseconds(lasting).as_bytes()])? {
            Value::Integer(token) if token > 0 => Ok(Some(Lease {
                name: name.to_owned(),
                holder,
                token: token as u64,
                good_until: before + lasting,
                taken_by: std::process::id(),
            })),
            Value::Integer(_) => Ok(None),
            _ => Err(Fault::unexpected("a lease")),
        }
    }

    /// Lets the lease last for `lasting` from now. `Ok(false)`: it has ended, and another process may hold it.
    pub fn renew(&self, lease: &mut Lease, lasting: Duration) -> Result<bool, Fault> {
        let before = Instant::now();
        let answer = self.run(RENEW, &lease.name, &[&lease.holder, milliseconds(lasting).as_bytes()])?;
        let is_held = matches!(answer, Value::Integer(1)) && lease.is_own();
        lease.good_until = if is_held { before + lasting } else { before };
        Ok(is_held)
    }

    /// `Ok(false)`: it had ended before.
    pub fn release(&self, lease: &Lease) -> Result<bool, Fault> {
        if !lease.is_own() {
            return Ok(false);
        }
        let answer = self.run(RELEASE, &lease.name, &[&lease.holder])?;
        Ok(matches!(answer, Value::Integer(1)))
    }

    /// Returns whether a process holds the lease.
    pub fn is_held(&self, name: &str) -> Result<bool, Fault> {
        let key = [self.engine.tagged_key("lease", name), b":holder".to_vec()].concat();
        Ok(matches!(self.engine.call(Command::new("EXISTS").arg(key), 0)?, Value::Integer(1)))
    }

    fn run(&self, text: &str, name: &str, arguments: &[&[u8]]) -> Result<Value, Fault> {
        let base = self.engine.tagged_key("lease", name);
        let (holder, token) = ([&base, b":holder".as_slice()].concat(), [&base, b":token".as_slice()].concat());
        self.engine.run(&Script { text, keys: &[&holder, &token], arguments, answer_bytes: 0 })
    }
}

fn milliseconds(lasting: Duration) -> String {
    lasting.as_millis().clamp(1, u128::from(u32::MAX)).to_string()
}
