//! Decides when a worker checks whether its allocator keeps memory of clients that have left or of requests that were large, and
//! returns it to the system.
//!
//! glibc keeps freed memory below a block that is in use: after a hundred slow clients that is most of the memory of their
//! answers, and after one export of a table most of that. A check reads /proc, and a trim takes some milliseconds for a hundred
//! MB. So there is a check only if far fewer connections (streams count too) are open than before, or after requests, a moment
//! later, and rarely. It does not call the clock or system functions itself: the caller passes them in. The thread that leads a
//! worker runs it, once a turn of the loop, and helpers after a piece of work.

/// This many connections at the same time are a reason to check when they have gone.
const MIN_CONNECTIONS: usize = 8;

/// Milliseconds between their end and the check: by then their memory is freed, and new connections have taken what they need.
const SETTLE_MS: u64 = 500;

/// The shortest time between two checks, in milliseconds.
const BETWEEN_MS: u64 = 2_000;

/// The shortest time from a check to one that requests are the reason for, in milliseconds. There may be one after each request
/// of a worker that has few.
const BETWEEN_FOR_REQUESTS_MS: u64 = 10_000;

/// Only a piece of work that took this long is followed by a check, in milliseconds: the check takes far less.
const MIN_WORK_MS: u64 = 50;

/// A check that found the worker busy is repeated after this many milliseconds, and after twice as many each time, up to
/// [`BETWEEN_FOR_REQUESTS_MS`]: a stream may stay open for hours.
const BUSY_MS: u64 = 100;

/// A trim is worth its time from this many bytes above the worker's lowest known size on.
const WORTH_BYTES: u64 = 8 * 1024 * 1024;

/// The checks of a worker.
#[derive(Debug, Default)]
pub struct MemoryTrim {
    /// Maximum number of connections that were open since the last check.
    most: usize,
    /// When to check, in monotonic milliseconds.
    due_ms: Option<u64>,
    next_ms: u64,
    next_for_requests_ms: u64,
    /// How long the next check is put off if the worker is busy; 0: it has not been put off.
    busy_ms: u64,
    /// The requests that the worker had answered at the last check.
    requests: u64,
    /// The last check led to a trim, and some of the connections are still open: the next check comes when half of these have
    /// gone.
    goes_on: bool,
    least_bytes: Option<u64>,
}

impl MemoryTrim {
    /// Notes how many connections are open now, and how many requests the worker has answered so far.
    #[inline]
    pub fn note(&mut self, connections: usize, requests: u64, now_ms: u64) {
        if connections > self.most {
            self.most = connections;
        } else if connections <= self.most / 2 && (self.goes_on || self.most >= MIN_CONNECTIONS) {
            self.make_due(self.next_ms, now_ms);
        }
        if requests != self.requests {
            self.make_due(self.next_for_requests_ms, now_ms);
        }
    }

    /// A check that is due for one reason may come earlier for another, but not later.
    #[inline]
    fn make_due(&mut self, next_ms: u64, now_ms: u64) {
        let due_ms = (now_ms + SETTLE_MS).max(next_ms);
        if self.due_ms.is_none_or(|known_ms| due_ms < known_ms) {
            self.due_ms = Some(due_ms);
        }
    }

    /// Milliseconds until a check is due; `None` most of the time.
    pub fn within_ms(&self, now_ms: u64) -> Option<u64> {
        self.due_ms.map(|due_ms| due_ms.saturating_sub(now_ms).max(1))
    }

    pub fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// A client would have to wait for the check: it is tried again later.
    pub fn put_off(&mut self, now_ms: u64) {
        self.busy_ms = (self.busy_ms * 2).clamp(BUSY_MS, BETWEEN_FOR_REQUESTS_MS);
        self.due_ms = Some(now_ms + self.busy_ms);
    }

    /// Notes the bytes that the worker has before its connections come.
    pub fn note_baseline(&mut self, bytes: Option<u64>) {
        self.least_bytes = bytes;
    }

    /// Checks: `resident` returns the worker's bytes, and `trim` is called if it is worth its time.
    pub fn look(
        &mut self,
        (connections, requests, now_ms): (usize, u64, u64),
        resident: impl Fn() -> Option<u64>,
        trim: impl FnOnce(),
    ) {
        self.due_ms = None;
        self.busy_ms = 0;
        self.next_ms = now_ms + BETWEEN_MS;
        self.next_for_requests_ms = now_ms + BETWEEN_FOR_REQUESTS_MS;
        self.most = connections;
        self.requests = requests;
        self.goes_on = self.trim_if_worth_it(resident, trim) && connections > 0;
    }

    /// A helper has finished a piece of work that took this long: checks if it was a long one.
    pub fn look_after_work(&mut self, took_ms: u64, resident: impl Fn() -> Option<u64>, trim: impl FnOnce()) {
        if took_ms >= MIN_WORK_MS {
            self.trim_if_worth_it(resident, trim);
        }
    }

    fn trim_if_worth_it(&mut self, resident: impl Fn() -> Option<u64>, trim: impl FnOnce()) -> bool {
        let before = resident();
        let is_worth_it = before.zip(self.least_bytes).is_none_or(|(before, least)| before >= least + WORTH_BYTES);
        if is_worth_it {
            trim();
        }
        // Memory that stays in use is not a reason to try again.
        self.least_bytes = if is_worth_it { resident() } else { self.least_bytes.min(before) };
        is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MB: u64 = 1024 * 1024;

    /// A worker that has `used` bytes in use, and `kept` bytes that are free.
    struct Scene {
        memory_trim: MemoryTrim,
        used: Cell<u64>,
        kept: Cell<u64>,
        given: Cell<u32>,
        requests: u64,
    }

    impl Scene {
        fn new() -> Scene {
            let mut memory_trim = MemoryTrim::default();
            memory_trim.note_baseline(Some(20 * MB));
            Scene { memory_trim, used: (20 * MB).into(), kept: 0.into(), given: 0.into(), requests: 0 }
        }

        fn resident(&self) -> u64 {
            self.used.get() + self.kept.get()
        }

        /// Runs a turn of the loop. Returns how often memory was returned to the system by then.
        fn turn(&mut self, connections: usize, now_ms: u64) -> u32 {
            let Scene { memory_trim, used, kept, given, requests } = self;
            memory_trim.note(connections, *requests, now_ms);
            if memory_trim.is_due(now_ms) {
                let trim = || {
                    kept.set(0);
                    given.set(given.get() + 1);
                };
                memory_trim.look((connections, *requests, now_ms), || Some(used.get() + kept.get()), trim);
            }
            given.get()
        }
    }

    #[test]
    fn memory_of_clients_that_have_left_is_trimmed_a_moment_later() {
        let mut scene = Scene::new();
        assert_eq!(scene.turn(100, 10), 0);
        scene.kept.set(200 * MB);
        assert_eq!((scene.turn(0, 1_000), scene.memory_trim.within_ms(1_000)), (0, Some(SETTLE_MS)));
        assert_eq!(scene.turn(0, 1_000 + SETTLE_MS - 1), 0);
        assert_eq!(scene.turn(0, 1_000 + SETTLE_MS), 1);
        assert_eq!((scene.resident(), scene.memory_trim.within_ms(5_000)), (20 * MB, None));
    }

    #[test]
    fn memory_of_the_last_clients_is_trimmed_too() {
        let mut scene = Scene::new();
        scene.turn(100, 10);
        let mut now_ms = 1_000;
        for connections in [50, 25, 12, 6, 3, 1, 0] {
            scene.kept.set(10 * MB);
            scene.turn(connections, now_ms);
            now_ms += SETTLE_MS + BETWEEN_MS;
            scene.turn(connections, now_ms);
            assert_eq!(scene.kept.get(), 0, "{connections} are left");
        }
        assert_eq!(scene.memory_trim.within_ms(now_ms), None);
    }

    #[test]
    fn memory_of_a_large_request_is_trimmed_a_moment_later_and_not_after_each_one() {
        let mut scene = Scene::new();
        (scene.requests, scene.kept) = (1, Cell::new(80 * MB));
        assert_eq!((scene.turn(1, 1_000), scene.memory_trim.within_ms(1_000)), (0, Some(SETTLE_MS)));
        assert_eq!((scene.turn(1, 1_000 + SETTLE_MS), scene.resident()), (1, 20 * MB));
        assert_eq!(scene.memory_trim.within_ms(1_000 + SETTLE_MS), None, "a worker without requests is not woken");
        let mut now_ms = 2_000;
        for _ in 0..20 {
            scene.requests += 1;
            scene.kept.set(80 * MB);
            scene.turn(1, now_ms);
            now_ms += BETWEEN_FOR_REQUESTS_MS / 10;
            scene.turn(1, now_ms);
        }
        assert_eq!(scene.given.get(), 1 + 2);
    }

    #[test]
    fn a_check_for_clients_that_have_left_does_not_wait_for_one_that_requests_are_the_reason_for() {
        let mut scene = Scene::new();
        scene.requests = 1;
        scene.turn(1, 0);
        scene.turn(1, SETTLE_MS);
        scene.requests = 2;
        scene.turn(100, 1_000);
        assert_eq!(scene.memory_trim.within_ms(1_000), Some(SETTLE_MS + BETWEEN_FOR_REQUESTS_MS - 1_000));
        scene.turn(0, 4_000);
        assert_eq!(scene.memory_trim.within_ms(4_000), Some(SETTLE_MS));
    }

    #[test]
    fn a_helper_trims_after_a_long_piece_of_work() {
        let mut memory_trim = MemoryTrim::default();
        memory_trim.note_baseline(Some(20 * MB));
        let (kept, given) = (Cell::new(80 * MB), Cell::new(0));
        for (took_ms, trims) in [(MIN_WORK_MS - 1, 0), (MIN_WORK_MS, 1), (MIN_WORK_MS, 1)] {
            memory_trim.look_after_work(
                took_ms,
                || Some(20 * MB + kept.get()),
                || {
                    kept.set(0);
                    given.set(given.get() + 1);
                },
            );
            assert_eq!(given.get(), trims);
        }
    }

    #[test]
    fn there_is_no_check_after_few_connections_or_while_most_of_them_stay() {
        let mut scene = Scene::new();
        scene.kept.set(200 * MB);
        for (most, now) in [(MIN_CONNECTIONS - 1, 0), (1, 0)] {
            scene.turn(most, 10);
            scene.turn(now, 20);
            assert_eq!(scene.memory_trim.within_ms(20), None, "{now} of {most}");
        }
        scene.turn(100, 30);
        scene.turn(51, 40);
        assert_eq!(scene.memory_trim.within_ms(40), None);
    }

    #[test]
    fn memory_in_use_is_trimmed_once_and_checks_keep_an_interval() {
        let mut scene = Scene::new();
        scene.used.set(300 * MB);
        let mut looks = 0;
        for now_ms in (0..60_000).step_by(50) {
            // Clients come and go without end.
            let connections = if now_ms / 50 % 2 == 0 { 100 } else { 0 };
            looks += u64::from(scene.memory_trim.is_due(now_ms));
            scene.turn(connections, now_ms);
        }
        assert_eq!(scene.given.get(), 1);
        assert!(looks <= 60_000 / BETWEEN_MS, "{looks}");
    }

    #[test]
    fn a_check_that_a_client_would_wait_for_is_put_off() {
        let mut scene = Scene::new();
        scene.turn(100, 0);
        scene.turn(0, 10);
        let mut waits = Vec::new();
        for _ in 0..9 {
            scene.memory_trim.put_off(1_000);
            waits.extend(scene.memory_trim.within_ms(1_000));
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!((scene.turn(0, 11_000), scene.memory_trim.busy_ms), (0, 0));
    }
}
