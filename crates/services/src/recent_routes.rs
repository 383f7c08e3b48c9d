//! The routes of the requests that workers remember, each with its rate, latencies and errors. They are derived from the flight
//! recorder when a client watches, so requests pay nothing for them. Pure functions. The master runs them.

use std::collections::HashMap;

use bolide_scoreboard::{Remembered, TEXT_BYTES};

use crate::route_names::route_name;

/// Requests that began before this time do not count, in milliseconds.
pub const RECENT_MS: u64 = 120_000;
/// Requests that are looked at.
pub const MAX_REQUESTS: usize = 8192;
/// Routes that are returned: those with the most requests.
pub const MAX_ROUTES: usize = 40;
/// A thread whose requests all came within less than this has no rate of its own, in milliseconds.
const MIN_TIME_MS: u64 = 1000;
/// Answers from this status on are errors.
const ERROR_STATUS: u16 = 500;
/// The status of a WebSocket, whose duration says nothing about answers.
const SWITCHING_PROTOCOLS: u16 = 101;

/// A route.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentRoute {
    /// `GET /orders/:id`
    pub name: String,
    pub requests: u64,
    pub errors: u64,
    /// An estimate: each thread remembers its last requests only.
    pub per_second: f64,
    pub p50_us: u64,
    pub p99_us: u64,
}

/// The routes with the most requests, and what they are taken from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentRoutes {
    pub rows: Vec<RecentRoute>,
    /// Routes beyond [`MAX_ROUTES`].
    pub more: usize,
    /// Requests of all routes.
    pub requests: usize,
}

/// Returns the routes of the requests that have ended. A request belongs to the thread with its number.
pub fn recent_routes(remembered: impl IntoIterator<Item = (u32, Remembered)>, now_ms: u64) -> RecentRoutes {
    let mut requests: Vec<(u32, Remembered)> = Vec::new();
    // The time that the ring of each thread covers, and whether it reaches back far enough.
    let mut covered: HashMap<u32, u64> = HashMap::new();
    for (thread, request) in remembered.into_iter().take(MAX_REQUESTS) {
        let ago_ms = now_ms.saturating_sub(request.began_ms);
        let time = covered.entry(thread).or_insert(MIN_TIME_MS);
        *time = (*time).max(ago_ms.min(RECENT_MS));
        let is_answer = request.end.is_some_and(|end| end.status > 0 && end.status != SWITCHING_PROTOCOLS);
        if is_answer && ago_ms <= RECENT_MS && !request.text.is_empty() {
            requests.push((thread, request));
        }
    }
    let mut found: HashMap<String, (RecentRoute, Vec<u64>)> = HashMap::new();
    for (thread, request) in &requests {
        let Some(end) = request.end else { continue };
        let (route, times) = found.entry(name_of(&request.text)).or_default();
        route.requests += 1;
        route.errors += u64::from(end.status >= ERROR_STATUS);
        route.per_second += 1000.0 / covered.get(thread).copied().unwrap_or(RECENT_MS) as f64;
        times.push(end.microseconds);
    }
    let mut rows: Vec<RecentRoute> = found.into_iter().map(|(name, (route, times))| finished(name, route, times)).collect();
    rows.sort_by(|a, b| (b.requests, &a.name).cmp(&(a.requests, &b.name)));
    let more = rows.len().saturating_sub(MAX_ROUTES);
    rows.truncate(MAX_ROUTES);
    RecentRoutes { rows, more, requests: requests.len() }
}

fn finished(name: String, route: RecentRoute, mut times: Vec<u64>) -> RecentRoute {
    times.sort_unstable();
    let quantile = |hundredths: usize| {
        let rank = (times.len() * hundredths).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or(0)
    };
    RecentRoute { name, p50_us: quantile(50), p99_us: quantile(99), ..route }
}

/// `GET /orders/17?x=1` is `GET /orders/:id`. A text that the recorder has truncated ends with an ellipsis.
fn name_of(text: &str) -> String {
    let (method, target) = text.split_once(' ').unwrap_or(("", text));
    let is_cut = text.len() >= TEXT_BYTES && !target.contains('?');
    format!("{method} {}{}", route_name(target), if is_cut { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_scoreboard::{End, Phase};

    fn request(began_ms: u64, text: &str, end: Option<(u16, u64)>) -> Remembered {
        let end = end.map(|(status, microseconds)| End { status, microseconds });
        let text = text.to_owned();
        Remembered { number: 1, began_ms, text, end, is_called: false, phase: Phase::default(), trace: None }
    }

    #[test]
    fn requests_of_a_route_are_counted_together_with_their_errors_and_quantiles() {
        let ended = (0..100).map(|number| {
            (1, request(190_000 + 100 * number, &format!("GET /orders/{number}?token=s"), Some((200, 1000 * number))))
        });
        let others = [
            (2, request(190_000, "POST /orders", Some((503, 7)))),
            (2, request(199_000, "GET /slow", None)),
            (2, request(199_000, "GET /socket", Some((101, 60_000_000)))),
            (2, request(199_500, "GET /gone", Some((0, 5)))),
            (3, request(10_000, "GET /old", Some((200, 5)))),
        ];
        let routes = recent_routes(ended.chain(others), 200_000);
        assert_eq!((routes.requests, routes.more, routes.rows.len()), (101, 0, 2));
        let [orders, posted] = &routes.rows[..] else { panic!("{routes:?}") };
        assert_eq!((orders.name.as_str(), orders.requests, orders.errors), ("GET /orders/:id", 100, 0));
        assert_eq!((orders.p50_us, orders.p99_us), (49_000, 98_000));
        assert!((orders.per_second - 10.0).abs() < 1e-9, "{orders:?}");
        assert_eq!((posted.name.as_str(), posted.errors, posted.p50_us, posted.p99_us), ("POST /orders", 1, 7, 7));
        assert!((posted.per_second - 0.1).abs() < 1e-9, "{posted:?}");
    }

    #[test]
    fn the_number_of_routes_and_requests_is_bounded_and_a_burst_has_no_huge_rate() {
        let many =
            (0..2 * MAX_REQUESTS).map(|number| (1, request(1_000_000, &format!("GET /page-{}", number % 50), Some((200, 1)))));
        let routes = recent_routes(many, 1_000_001);
        assert_eq!((routes.rows.len(), routes.more, routes.requests), (MAX_ROUTES, 10, MAX_REQUESTS));
        assert!(routes.rows[0].per_second <= MAX_REQUESTS as f64 / 50.0 + 1.0);
        let long = format!("GET /{}", "x".repeat(TEXT_BYTES));
        assert!(recent_routes([(1, request(1, &long, Some((200, 1))))], 2).rows[0].name.ends_with("x…"));
    }
}
