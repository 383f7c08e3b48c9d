//! Which routes leave memory behind (`leak-report`): from the growth that single requests have caused, to an accusation. It
//! measures nothing and does not know requests; the worker that measures calls it.
//!
//! N measured requests are two windows. In the first half of a window any route whose growth goes on is a suspect. If there is
//! one, the young garbage is collected before each measurement of the second half, so that cycles count only if they stay. A
//! route that grew throughout both halves is found if its memory is still there after a full collection, and accused if two
//! windows in a row find it. So what fills up once (imports, caches, pools), what another route frees again (sessions), and what
//! the collector frees later accuse no route.

mod carried;

use carried::{Carried, Correction, Growth};

/// Parts of each half of a window: growth that goes on is seen in each of them.
pub const PARTS: usize = 4;
/// Routes that are told apart in a window; the others are counted together.
const MAX_ROUTES: usize = 128;
/// The route of the others.
const OTHER_ROUTES: &str = "other routes";
/// Growth of a part that may be chance, on average; each part has at least half of it: buffers of the C library and free lists of
/// the language, in bytes and in objects.
const CHANCE_BYTES: i64 = 1536;
const CHANCE_OBJECTS: i64 = 6;
/// A route that has grown by more than this many times the chance may pause for one part.
const LARGE: i64 = 64;
/// The last part has at least this share of the mean of all: one over this.
const LASTING: i64 = 3;
/// Bytes of a small object of CPython on average: 67 to 96 were measured in Django, Flask and FastAPI.
pub const OBJECT_BYTES: i64 = 80;
/// A route that was accused is accused again after this many windows at the earliest.
const SILENT_WINDOWS: u64 = 16;
/// Windows without a verification after one that has accused no route: they double up to this number.
const MAX_REST: u64 = 4;
/// Growth with each request, in bytes, up to which a route waits for a larger one to be mended: objects that one route frees may
/// stay in a list of free objects until another one takes them, which then seems to grow less, and the first one more.
const SMALL_BYTES: i64 = 512;
/// Windows in a row that find a route before it is accused. Together they have the requests of the option.
const WINDOWS: u64 = 2;
/// The fewest requests of the option: a part has at least ten.
pub const MIN_REQUESTS: u64 = 160;

/// Memory in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryInUse {
    /// Bytes that the C library's allocator has given out.
    pub bytes: u64,
    /// Small objects of the language, which has an allocator of its own for them.
    pub objects: u64,
}

/// What is collected before a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collection {
    Nothing,
    Young,
    Full,
}

/// What the worker does after a measurement.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Continue,
    /// Measures once more after a full collection, and passes the result to [`LeakWatch::conclude`].
    Conclude,
}

/// A route in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    window: u64,
    index: usize,
}

/// A route that leaves memory behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accusation {
    pub route: String,
    /// Requests of the route in the window that were measured, and all measured requests.
    pub requests: u64,
    pub of_requests: u64,
    /// Growth with each request; objects in hundredths.
    pub bytes_per_request: u64,
    pub objects_per_request_hundredths: u64,
    /// Growth in each part of the window, in bytes.
    pub parts: Vec<u64>,
}

/// One half of a window.
#[derive(Debug, Default)]
struct Half {
    measured: u64,
    begin: MemoryInUse,
    end: MemoryInUse,
    /// The growth of each route in each part.
    routes: Vec<[Growth; PARTS]>,
}

/// The watch over the requests of one worker.
#[derive(Debug, Default)]
pub struct LeakWatch {
    /// Measured requests of half a window.
    half_requests: u64,
    names: Vec<String>,
    first: Half,
    second: Half,
    /// What requests of the second half carry over to the next one.
    carried: Carried,
    /// Routes that grew in the first half; empty while that lasts.
    suspects: Vec<usize>,
    windows: u64,
    /// No window before this number is verified, after its windows of rest.
    rests_until: u64,
    rest: u64,
    told: Vec<(String, u64)>,
    /// The routes that the last verified window has found.
    before: Vec<String>,
}

impl LeakWatch {
    pub fn new(requests: u64) -> LeakWatch {
        LeakWatch { half_requests: requests.max(MIN_REQUESTS) / WINDOWS / 2, ..LeakWatch::default() }
    }

    /// What is collected before the next measurement.
    pub fn collection(&self) -> Collection {
        match () {
            () if self.suspects.is_empty() => Collection::Nothing,
            // The end is compared with this.
            () if self.second.measured == 0 => Collection::Full,
            () => Collection::Young,
        }
    }

    /// The place of a route in the present window. A caller keeps this, and not the name, whose memory would be measured too.
    pub fn place(&mut self, route: &str) -> Place {
        Place { window: self.windows, index: self.index_of(route) }
    }

    /// Notes a request that had the worker to itself. One whose window has ended in the meantime is ignored.
    /// `previous` is the route of the request before it, if that is known.
    pub fn note(&mut self, place: Place, previous: Option<Place>, before: MemoryInUse, after: MemoryInUse) -> Step {
        if place.window != self.windows {
            return Step::Continue;
        }
        let place = place.index;
        let is_second = !self.suspects.is_empty();
        let half_requests = self.half_requests;
        let half = if is_second { &mut self.second } else { &mut self.first };
        if half.measured == 0 {
            half.begin = before;
        }
        if half.routes.len() <= place {
            half.routes.resize(place + 1, [Growth::default(); PARTS]);
        }
        let part = (half.measured * PARTS as u64 / half_requests).min(PARTS as u64 - 1) as usize;
        let growth = &mut half.routes[place][part];
        let (bytes, objects) = (difference(after.bytes, before.bytes), difference(after.objects, before.objects));
        growth.requests += 1;
        growth.bytes += bytes;
        growth.objects += objects;
        // The first part has what the collection before it has left unsettled.
        if let Some(previous) = previous.filter(|previous| is_second && part > 0 && previous.window == self.windows) {
            self.carried.note(place, previous.index, bytes, objects);
        }
        half.measured += 1;
        half.end = after;
        if half.measured < half_requests {
            return Step::Continue;
        }
        if is_second {
            return Step::Conclude;
        }
        self.choose_suspects();
        Step::Continue
    }

    fn index_of(&mut self, route: &str) -> usize {
        if let Some(place) = self.names.iter().position(|known| known == route) {
            return place;
        }
        let route = if self.names.len() < MAX_ROUTES { route } else { OTHER_ROUTES };
        if let Some(place) = self.names.iter().position(|known| known == route) {
            return place;
        }
        self.names.push(route.to_owned());
        self.names.len() - 1
    }

    fn choose_suspects(&mut self) {
        let rests = self.windows < self.rests_until;
        let is_new = |place: &usize| {
            let told = self.told.iter().find(|(route, _)| *route == self.names[*place]);
            told.is_none_or(|(_, window)| self.windows >= window + SILENT_WINDOWS)
        };
        let suspects: Vec<usize> = (0..self.first.routes.len()).filter(|place| !rests && self.first.goes_on(*place)).collect();
        // The collections of the second half are for routes that are worth a line.
        if suspects.iter().any(is_new) {
            self.suspects = suspects;
            self.carried = Carried::new(self.names.len());
        } else {
            self.begin_window();
        }
    }

    fn begin_window(&mut self) {
        self.names.clear();
        self.suspects.clear();
        self.carried = Carried::default();
        (self.first, self.second) = (Half::default(), Half::default());
        self.windows += 1;
    }

    /// Returns the routes that leave memory behind; `collected` is the memory in use after a full collection.
    pub fn conclude(&mut self, collected: MemoryInUse) -> Vec<Accusation> {
        let own = self.second.without(&self.carried.corrections());
        let lasts = |place: &usize| self.second.lasts(*place, &own, collected) && own.lasts(*place, &own, collected);
        let guilty: Vec<usize> = self.suspects.iter().copied().filter(lasts).collect();
        let guilty = self.without_small(guilty);
        // Chance does not repeat itself.
        let names = guilty.iter().map(|place| self.names[*place].clone()).collect();
        let before = std::mem::replace(&mut self.before, names);
        let guilty: Vec<usize> = guilty.into_iter().filter(|place| before.contains(&self.names[*place])).collect();
        let mut accusations = Vec::new();
        for place in &guilty {
            let route = self.names[*place].clone();
            if self.told.iter().any(|(told, window)| *told == route && self.windows < window + SILENT_WINDOWS) {
                continue;
            }
            self.told.retain(|(told, _)| *told != route);
            if self.told.len() >= MAX_ROUTES {
                self.told.remove(0);
            }
            accusations.push(self.accusation(*place));
            self.told.push((route, self.windows));
        }
        self.rest = if self.before.is_empty() { (self.rest * 2).clamp(1, MAX_REST) } else { 0 };
        self.begin_window();
        self.rests_until = self.windows + self.rest;
        accusations
    }

    /// Leaves out routes that grow by little, if another one grows by more in all.
    fn without_small(&self, guilty: Vec<usize>) -> Vec<usize> {
        let bytes = |place: usize| self.second.total(place).all_bytes(OBJECT_BYTES);
        let largest = guilty.iter().map(|place| bytes(*place)).max().unwrap_or(0);
        let is_small = |place: usize| bytes(place) <= SMALL_BYTES * self.second.total(place).requests.cast_signed();
        guilty.into_iter().filter(|place| !is_small(*place) || bytes(*place) >= largest).collect()
    }

    fn accusation(&self, place: usize) -> Accusation {
        let both = [&self.first, &self.second];
        let parts = both.iter().flat_map(|half| half.routes.get(place).copied().unwrap_or_default());
        let parts: Vec<Growth> = parts.collect();
        let requests = parts.iter().map(|part| part.requests).sum::<u64>().max(1);
        let bytes_of = |part: &Growth| part.all_bytes(OBJECT_BYTES).max(0).cast_unsigned();
        // The second half alone has no garbage of cycles.
        let lasting = self.second.total(place);
        let lasting_requests = lasting.requests.max(1);
        Accusation {
            route: self.names[place].clone(),
            requests,
            of_requests: self.first.measured + self.second.measured,
            bytes_per_request: bytes_of(&lasting) / lasting_requests,
            objects_per_request_hundredths: lasting.objects.max(0).cast_unsigned() * 100 / lasting_requests,
            parts: parts.iter().map(bytes_of).collect(),
        }
    }
}

impl Half {
    fn total(&self, place: usize) -> Growth {
        let mut total = Growth::default();
        for part in self.routes.get(place).into_iter().flatten() {
            total.requests += part.requests;
            total.bytes += part.bytes;
            total.objects += part.objects;
        }
        total
    }

    /// Whether a route grew in each part, without coming to an end.
    fn goes_on(&self, place: usize) -> bool {
        self.grows(place, |growth| growth.bytes, CHANCE_BYTES) || self.grows(place, |growth| growth.objects, CHANCE_OBJECTS)
    }

    fn grows(&self, place: usize, of: impl Fn(&Growth) -> i64, chance: i64) -> bool {
        let Some(parts) = self.routes.get(place) else { return false };
        let total: i64 = parts.iter().map(&of).sum();
        let last = parts.last().map_or(0, &of);
        let still = parts.iter().filter(|part| of(part) * 2 <= chance).count();
        // Large pieces are rare.
        let may_be_still = usize::from(total > chance * LARGE);
        total > chance * PARTS as i64 && still <= may_be_still && last * LASTING * PARTS as i64 >= total
    }

    /// Returns the half without what requests have only carried over to the next one.
    fn without(&self, corrections: &[Correction]) -> Half {
        let corrected = |(place, parts): (usize, &[Growth; PARTS])| {
            let correction = corrections.get(place).copied().unwrap_or_default();
            parts.map(|part| Growth {
                requests: part.requests,
                bytes: part.bytes - (part.requests as f64 * correction.bytes) as i64,
                objects: part.objects - (part.requests as f64 * correction.objects) as i64,
            })
        };
        let routes = self.routes.iter().enumerate().map(corrected).collect();
        Half { measured: self.measured, begin: self.begin, end: self.end, routes }
    }

    /// What a route has freed, without its largest part: something may be freed once by chance.
    fn frees(&self, place: usize, of: &dyn Fn(&Growth) -> i64) -> i64 {
        let parts = self.routes.get(place).copied().unwrap_or_default();
        let least = parts.iter().map(of).min().unwrap_or(0);
        let rest: i64 = parts.iter().map(of).sum::<i64>() - least.min(0);
        (-rest).max(0) * PARTS as i64 / (PARTS as i64 - 1)
    }

    /// Whether a route's growth goes on, the worker has grown with it, and no other route frees what this one leaves. `own` is
    /// the half without what was carried.
    fn lasts(&self, place: usize, own: &Half, collected: MemoryInUse) -> bool {
        let bytes = |growth: &Growth| growth.bytes;
        let objects = |growth: &Growth| growth.objects;
        let end = |of: fn(&MemoryInUse) -> u64| of(&self.end).min(of(&collected));
        let stays = |of: &dyn Fn(&Growth) -> i64, worker_grew: i64| {
            let left = of(&self.total(place));
            // Either explanation of what the others have freed will do.
            let freed = |half: &Half| -> i64 {
                (0..half.routes.len()).filter(|other| *other != place).map(|other| half.frees(other, of)).sum()
            };
            let freed = freed(self).min(freed(own));
            worker_grew * 2 >= left && left > freed * 2
        };
        let bytes_grew = difference(end(|memory| memory.bytes), self.begin.bytes);
        let objects_grew = difference(end(|memory| memory.objects), self.begin.objects);
        self.grows(place, bytes, CHANCE_BYTES) && stays(&bytes, bytes_grew)
            || self.grows(place, objects, CHANCE_OBJECTS) && stays(&objects, objects_grew)
    }
}

fn difference(after: u64, before: u64) -> i64 {
    after.wrapping_sub(before).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a route's request of this number adds, in bytes and in objects.
    type Grows<'a> = &'a dyn Fn(u64) -> (i64, i64);

    /// Serves requests in turn from these routes, whose growth in bytes and objects is a function of the route's own count, and
    /// returns the accused routes. `frees` is what a full collection frees.
    fn accused(requests: u64, routes: &[(&str, Grows<'_>)], frees: (u64, u64)) -> Vec<Accusation> {
        let mut watch = LeakWatch::new(400 * routes.len() as u64);
        let mut now = MemoryInUse { bytes: 50_000_000, objects: 500_000 };
        let mut found = Vec::new();
        let mut previous = None;
        for number in 0..requests {
            let (route, growth) = routes[(number % routes.len() as u64) as usize];
            let before = now;
            let (bytes, objects) = growth(number / routes.len() as u64);
            now.bytes = now.bytes.wrapping_add_signed(bytes);
            now.objects = now.objects.wrapping_add_signed(objects);
            let place = watch.place(route);
            if watch.note(place, previous.replace(place), before, now) == Step::Conclude {
                let collected = MemoryInUse { bytes: now.bytes - frees.0, objects: now.objects - frees.1 };
                found.extend(watch.conclude(collected));
            }
        }
        found
    }

    const NOTHING: (u64, u64) = (0, 0);

    #[test]
    fn growth_that_goes_on_accuses_its_route_alone() {
        let leaks: [Grows<'_>; 4] = [
            &|_| (208, 0),
            &|_| (0, 3),
            // Rare and large.
            &|count| if count % 20 == 19 { (1_000_000, 1) } else { (0, 0) },
            // A table that doubles, with its entries.
            &|count| if count.is_power_of_two() { (count as i64 * 40, 2) } else { (0, 2) },
        ];
        for leak in leaks {
            let found = accused(2400, &[("GET /", &|_| (0, 0)), ("GET /leak", leak)], NOTHING);
            assert_eq!(found.iter().map(|found| found.route.as_str()).collect::<Vec<_>>(), ["GET /leak"]);
        }
        let found = accused(800, &[("GET /", &|_| (0, 0)), ("GET /leak", &|_| (208, 0))], NOTHING);
        let [found] = found.as_slice() else { panic!("one, not {found:?}") };
        assert_eq!((found.requests, found.of_requests, found.bytes_per_request), (200, 400, 208));
        assert_eq!(found.parts, [25 * 208; 2 * PARTS]);
    }

    #[test]
    fn growth_that_ends_or_is_freed_accuses_no_route() {
        let clean: [(Grows<'_>, Grows<'_>); 6] = [
            // A cache that fills up.
            (&|count| if count < 130 { (500, 5) } else { (0, 0) }, &|_| (0, 0)),
            // Its keys come again more and more often.
            (&|count| (3000 / (count as i64 + 1), 0), &|_| (0, 0)),
            // Sessions that another route ends.
            (&|_| (900, 9), &|_| (-900, -9)),
            // Garbage that is collected once in a while.
            (&|count| if count % 60 == 59 { (0, -590) } else { (0, 10) }, &|_| (0, 0)),
            // Sizes that vary.
            (&|count| ((count as i64 * 7919 % 4001) - 2000, 0), &|_| (0, 0)),
            (&|count| if count == 3 { (80_000_000, 400_000) } else { (0, 0) }, &|_| (16, 0)),
        ];
        for (number, (one, other)) in clean.into_iter().enumerate() {
            assert_eq!(accused(4000, &[("GET /one", one), ("GET /other", other)], NOTHING), [], "{number}");
        }
        // What a full collection frees is not a leak.
        assert_eq!(accused(1600, &[("GET /one", &|_| (0, 0)), ("GET /cycles", &|_| (0, 10))], (0, 1600)), []);
    }

    #[test]
    fn a_route_is_told_once_and_again_after_a_while() {
        let found = accused(400 * 40, &[("GET /", &|_| (0, 0)), ("GET /leak", &|_| (208, 2))], NOTHING);
        assert!((2..=5).contains(&found.len()), "{}", found.len());
    }

    #[test]
    fn a_small_growth_beside_a_larger_one_waits_until_that_is_mended() {
        let found =
            accused(1200, &[("GET /", &|_| (0, 2)), ("GET /leak", &|_| (4000, 9)), ("GET /large", &|_| (900, 0))], NOTHING);
        assert_eq!(found.iter().map(|found| found.route.as_str()).collect::<Vec<_>>(), ["GET /leak", "GET /large"]);
    }

    #[test]
    fn many_routes_have_a_bounded_memory() {
        let mut watch = LeakWatch::new(10_000);
        for number in 0..20_000u64 {
            let place = watch.place(&format!("GET /{number}"));
            watch.note(place, None, MemoryInUse::default(), MemoryInUse { bytes: number, objects: 0 });
            assert!(watch.names.len() <= MAX_ROUTES + 1);
        }
    }
}
