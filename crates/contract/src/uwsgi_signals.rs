//! uWSGI's signals: numbers that processes of an instance raise, and that call a function of the application in the processes of
//! their target. An application registers functions, timers, cron times and file monitors; the master has the table of each
//! generation, and its clock.
//!
//! Not to be confused with signals of the kernel. Plain data: prototypes, workers and helpers send it, the master reads it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::attendant::Schedule;

/// Signals that wait for a target, at most; others are dropped and counted.
pub const MAX_PENDING: u32 = 64;
/// Timers of each kind, cron times and file monitors that a generation may have, at most, as in uWSGI.
pub const MAX_EACH: usize = 64;
/// The maximum size of [`Registrations`] as JSON.
pub const REGISTRATIONS_BYTES: usize = 1024 * 1024;
/// The maximum length of a target and of a path, in bytes, as in uWSGI.
pub const TARGET_BYTES: usize = 63;
pub const PATH_BYTES: usize = 254;

/// An application's call of one of the functions that register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Registration {
    /// `register_signal`: the target as written.
    Handler { number: u8, target: String },
    /// `add_timer`
    Timer { number: u8, seconds: u32 },
    /// `add_rb_timer`. 0 iterations are unlimited.
    RbTimer { number: u8, seconds: u32, iterations: u32 },
    /// `add_cron`
    Cron { number: u8, schedule: Schedule },
    /// `add_file_monitor`, with an absolute path.
    File { number: u8, path: PathBuf },
}

/// The registrations of one process since its last report, in the order of the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Registrations {
    /// The process does not serve yet. Where each worker loads the application, all of them report the same, which counts once.
    pub is_loading: bool,
    pub list: Vec<Registration>,
    /// Signals that were raised in the meantime.
    pub raised: Vec<u8>,
}

/// The processes that may take a signal: one of them does, the first that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pool {
    Workers,
    Mules,
    /// The farm of this number, from 1.
    Farm(u32),
    Spoolers,
}

impl Pool {
    const FARM: u32 = 16;

    pub const fn code(self) -> u32 {
        match self {
            Pool::Workers => 1,
            Pool::Mules => 2,
            Pool::Spoolers => 3,
            Pool::Farm(number) => Pool::FARM.saturating_add(number),
        }
    }

    /// Returns `None` for an unknown code.
    pub fn from_code(code: u32) -> Option<Pool> {
        match code {
            1 => Some(Pool::Workers),
            2 => Some(Pool::Mules),
            3 => Some(Pool::Spoolers),
            _ => code.checked_sub(Pool::FARM).filter(|number| *number > 0).map(Pool::Farm),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_has_a_code_of_its_own() {
        for pool in [Pool::Workers, Pool::Mules, Pool::Spoolers, Pool::Farm(1), Pool::Farm(7)] {
            assert_eq!(Pool::from_code(pool.code()), Some(pool));
        }
        assert_eq!([0, 4, 16].map(Pool::from_code), [None; 3]);
    }
}
