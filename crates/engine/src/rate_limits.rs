//! The rate limits of the instance, as rules count in them: by the precise clock, with a line in the log while one acts. It does
//! not know about requests. Worker threads run it.

use bolide_contract::clock::precise_us;
use bolide_contract::rate::{Counted, Rate};
use bolide_contract::services::RateLimitSettings;
use bolide_memory::rate_limits::{Acts, RateLimit};

use crate::logging::access_log::complain;

/// The limits, in the order of the settings. Empty without limits.
#[derive(Debug, Default)]
pub struct SharedLimits {
    limits: &'static [RateLimit<'static>],
    settings: Vec<RateLimitSettings>,
    /// The worker's number, for the log.
    worker: u32,
}

impl SharedLimits {
    pub fn new(limits: &'static [RateLimit<'static>], settings: &[RateLimitSettings], worker: u32) -> SharedLimits {
        SharedLimits { limits, settings: settings.to_vec(), worker }
    }

    /// Counts a request for a key of the limit with this number.
    pub fn count(&self, limit: usize, key: &[u8], rate: Rate) -> Counted {
        // With `bolide check --load`, there is no memory to count in.
        let Some(table) = self.limits.get(limit) else { return Counted::Uncounted };
        let now_us = precise_us();
        let counted = table.count(key, rate, now_us);
        if !matches!(counted, Counted::Passes { .. }) {
            self.say(limit, table, now_us);
        }
        counted
    }

    /// The limit has acted. One worker logs that, at most once a minute.
    #[cold]
    fn say(&self, limit: usize, table: &RateLimit<'_>, now_us: u64) {
        let (Some(acts), Some(settings)) = (table.acts_to_say(now_us), self.settings.get(limit)) else { return };
        let RateLimitSettings { name, rate, burst } = settings;
        let Acts { refused, uncounted } = acts;
        let requests = |count: u64| if count == 1 { "request" } else { "requests" };
        if refused > 0 {
            let what = format!("has refused {refused} {} with 429 (logged once a minute)", requests(refused));
            complain(self.worker, &format!("the rate limit \"{name}\" ({rate}, burst {burst}) {what}"));
        }
        if uncounted > 0 {
            let what = format!("has let {uncounted} {} of new clients pass uncounted", requests(uncounted));
            let why = "its table is full of clients that have reached the limit (logged once a minute)";
            complain(self.worker, &format!("the rate limit \"{name}\" {what}: {why}"));
        }
    }
}
