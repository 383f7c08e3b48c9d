//! A queue of jobs of several machines: each job is handed out at least once, until its worker says that it is done.
//!
//! A job that is handed out is reserved for a time. A worker that dies or is cut off loses the reservation, and another one gets
//! the job. The engine's lists and sorted sets have the order, and scripts move a job in one step; streams have neither
//! priorities nor times. It does not know what a body means.

use std::time::Duration;

use crate::engine::{Engine, Script};
use crate::fault::Fault;
use crate::wire::Value;

const ADD: &str = include_str!("scripts/jobs_add.lua");
const RESERVE: &str = include_str!("scripts/jobs_reserve.lua");
const SETTLE: &str = include_str!("scripts/jobs_settle.lua");
const COUNT: &str = include_str!("scripts/jobs_count.lua");
const FAILED: &str = include_str!("scripts/jobs_failed.lua");

/// Bytes of a job's body, and of its name.
pub const MAX_BODY_BYTES: usize = 64 << 20;
const MAX_NAME_BYTES: usize = 255;
/// Failed jobs in a list.
const MAX_FAILED: u32 = 1_000;
/// Bytes of a reason.
const MAX_REASON_BYTES: usize = 500;

pub struct JobQueue {
    engine: &'static Engine,
    base: Vec<u8>,
    hold: Duration,
    lost_most: u32,
}

/// `name` is the caller's: a job whose name is in the queue already is not added twice.
#[derive(Debug, Clone, Copy)]
pub struct NewJob<'a> {
    pub name: &'a [u8],
    pub body: &'a [u8],
    /// A smaller one comes first; jobs without priority come last.
    pub priority: Option<u32>,
    /// Seconds since 1970 before which no process gets the job.
    pub at: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedJob {
    pub name: Vec<u8>,
    pub body: Vec<u8>,
    /// How often it was tried again on its own wish, and how often its worker was lost.
    pub tries: u32,
    pub lost: u32,
    member: Vec<u8>,
    token: Vec<u8>,
}

impl ReservedJob {
    /// The reservation alone, for a thread that extends it.
    pub fn reservation(&self) -> ReservedJob {
        ReservedJob { body: Vec::new(), name: self.name.clone(), member: self.member.clone(), token: self.token.clone(), ..*self }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub ready: u64,
    pub waiting: u64,
    pub reserved: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedJob {
    pub name: Vec<u8>,
    pub reason: String,
    /// Seconds since 1970.
    pub at: u64,
}

impl JobQueue {
    /// `hold` is how long a reservation lasts. A job that has lost `lost_most` workers goes to the failed ones.
    pub fn new(engine: &'static Engine, name: &str, hold: Duration, lost_most: u32) -> JobQueue {
        JobQueue { engine, base: engine.tagged_key("jobs", name), hold, lost_most }
    }

    pub fn engine(&self) -> &'static Engine {
        self.engine
    }

    pub fn hold(&self) -> Duration {
        self.hold
    }

    /// `Ok(false)`: a job of this name is in the queue already.
    pub fn add(&self, job: &NewJob<'_>) -> Result<bool, Fault> {
        if job.body.len() > MAX_BODY_BYTES || job.name.len() > MAX_NAME_BYTES {
            return Err(Fault::TooLarge);
        }
        let priority = job.priority.map(|priority| priority.to_string()).unwrap_or_default();
        let at = job.at.map_or(0, |at| at.saturating_mul(1000)).to_string();
        let answer = self.run(ADD, &[job.name, job.body, priority.as_bytes(), at.as_bytes()], 0)?;
        Ok(matches!(answer, Value::Integer(1)))
    }

    /// `Ok(None)`: no job is ready.
    pub fn reserve(&self) -> Result<Option<ReservedJob>, Fault> {
        let (hold, lost_most) = (self.hold.as_millis().to_string(), self.lost_most.to_string());
        let arguments: [&[u8]; 2] = [hold.as_bytes(), lost_most.as_bytes()];
        let Value::List(parts) = self.run(RESERVE, &arguments, MAX_BODY_BYTES as u64)? else { return Ok(None) };
        match <[Value; 6]>::try_from(parts) {
            Ok(
                [
                    Value::Bytes(member),
                    Value::Bytes(name),
                    Value::Bytes(body),
                    Value::Bytes(token),
                    Value::Integer(tries),
                    Value::Integer(lost),
                ],
            ) => Ok(Some(ReservedJob { name, body, tries: count(tries) as u32, lost: count(lost) as u32, member, token })),
            _ => Err(Fault::unexpected("a reservation")),
        }
    }

    /// Lasts the reservation for another `hold`. `Ok(false)`: it has ended, and another process may have the job.
    pub fn extend(&self, job: &ReservedJob) -> Result<bool, Fault> {
        self.settle(job, "extend", &self.hold.as_millis().to_string(), b"")
    }

    /// The job is done. `Ok(false)`: its reservation had ended, and another process may do it again.
    pub fn done(&self, job: &ReservedJob) -> Result<bool, Fault> {
        self.settle(job, "done", "0", b"")
    }

    /// A process gets the job again, after `wait`.
    pub fn retry(&self, job: &ReservedJob, wait: Duration) -> Result<bool, Fault> {
        self.settle(job, "retry", &wait.as_millis().to_string(), b"")
    }

    pub fn fail(&self, job: &ReservedJob, reason: &str) -> Result<bool, Fault> {
        let bytes = reason.as_bytes();
        self.settle(job, "fail", "0", &bytes[..bytes.len().min(MAX_REASON_BYTES)])
    }

    pub fn counts(&self) -> Result<Counts, Fault> {
        match self.run(COUNT, &[], 0)? {
            Value::List(parts) => match parts.as_slice() {
                [Value::Integer(ready), Value::Integer(waiting), Value::Integer(reserved), Value::Integer(failed)] => {
                    let [ready, waiting, reserved, failed] = [*ready, *waiting, *reserved, *failed].map(count);
                    Ok(Counts { ready, waiting, reserved, failed })
                }
                _ => Err(Fault::unexpected("a count")),
            },
            _ => Err(Fault::unexpected("a count")),
        }
    }

    /// The oldest failed jobs.
    pub fn failed(&self) -> Result<Vec<FailedJob>, Fault> {
        let bytes = u64::from(MAX_FAILED) * (MAX_NAME_BYTES + MAX_REASON_BYTES + 64) as u64;
        let Value::List(jobs) = self.run(FAILED, &[b"list", MAX_FAILED.to_string().as_bytes()], bytes)? else {
            return Err(Fault::unexpected("the failed jobs"));
        };
        let job = |parts: &Value| match parts {
            Value::List(parts) => match parts.as_slice() {
                [Value::Bytes(name), Value::Bytes(reason), Value::Integer(at)] => Some(FailedJob {
                    name: name.clone(),
                    reason: String::from_utf8_lossy(reason).into_owned(),
                    at: count(*at) / 1000,
                }),
                _ => None,
            },
            _ => None,
        };
        Ok(jobs.iter().filter_map(job).collect())
    }

    /// A failed job becomes ready again. `Ok(false)`: there is no such failed job.
    pub fn retry_failed(&self, name: &[u8]) -> Result<bool, Fault> {
        Ok(matches!(self.run(FAILED, &[b"retry", name], 0)?, Value::Integer(1)))
    }

    pub fn drop_failed(&self, name: &[u8]) -> Result<bool, Fault> {
        Ok(matches!(self.run(FAILED, &[b"drop", name], 0)?, Value::Integer(1)))
    }

    fn settle(&self, job: &ReservedJob, what: &str, milliseconds: &str, reason: &[u8]) -> Result<bool, Fault> {
        let arguments: [&[u8]; 6] = [what.as_bytes(), &job.member, &job.name, &job.token, milliseconds.as_bytes(), reason];
        Ok(matches!(self.run(SETTLE, &arguments, 0)?, Value::Integer(1)))
    }

    fn run(&self, text: &str, arguments: &[&[u8]], answer_bytes: u64) -> Result<Value, Fault> {
        self.engine.run(&Script { text, keys: &[&self.base], arguments, answer_bytes })
    }
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
