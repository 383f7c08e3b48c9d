//! Memory that a request leaves for the next one: pieces in lists of free objects, tasks that end after the answer. It seems to
//! grow with a route and to shrink with whichever comes next. It is told apart from what stays by the order of the requests: what
//! comes after many different routes, and before them.

/// The growth of some requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Growth {
    pub requests: u64,
    pub bytes: i64,
    pub objects: i64,
}

impl Growth {
    /// All bytes, with this number for an object.
    pub fn all_bytes(&self, of_object: i64) -> i64 {
        self.bytes + self.objects * of_object
    }
}

/// Rounds in which the estimates approach each other.
const ROUNDS: usize = 200;
/// A single request says no more than this about what is carried, in bytes and in objects: a large piece is never carried.
const MAX: Growth = Growth { requests: 1, bytes: 2048, objects: 16 };

/// The growth of requests of each route after requests of each other one.
#[derive(Debug, Default)]
pub struct Carried {
    routes: usize,
    /// By the route, and then by the route before.
    pairs: Vec<Growth>,
}

/// What a route's requests have grown by because of what was carried, for each request, in bytes and in objects.
#[derive(Debug, Clone, Copy, Default)]
pub struct Correction {
    pub bytes: f64,
    pub objects: f64,
}

impl Carried {
    pub fn new(routes: usize) -> Carried {
        Carried { routes, pairs: vec![Growth::default(); routes * routes] }
    }

    pub fn note(&mut self, route: usize, previous: usize, bytes: i64, objects: i64) {
        if route >= self.routes || previous >= self.routes {
            return;
        }
        let pair = &mut self.pairs[route * self.routes + previous];
        pair.requests += 1;
        pair.bytes += bytes.clamp(-MAX.bytes, MAX.bytes);
        pair.objects += objects.clamp(-MAX.objects, MAX.objects);
    }

    /// Returns the correction of each route: nothing where the order of the requests does not tell.
    pub fn corrections(&self) -> Vec<Correction> {
        let (bytes, objects) = (self.solve(|pair| pair.bytes), self.solve(|pair| pair.objects));
        bytes.into_iter().zip(objects).map(|(bytes, objects)| Correction { bytes, objects }).collect()
    }

    /// A request of route r after one of route p grows by stays[r] + left[r] - left[p]: finds the numbers that fit best.
    fn solve(&self, of: impl Fn(&Growth) -> i64) -> Vec<f64> {
        let count = self.routes;
        let pair = |route: usize, previous: usize| {
            let pair = &self.pairs[route * count + previous];
            (pair.requests as f64, of(pair) as f64)
        };
        let (mut stays, mut left) = (vec![0.0; count], vec![0.0; count]);
        for _ in 0..ROUNDS {
            for route in 0..count {
                let sums = (0..count).map(|previous| (pair(route, previous), left[route] - left[previous]));
                stays[route] = mean(sums.map(|((n, sum), carried)| (n, sum - n * carried)));
            }
            for route in 0..count {
                let others = (0..count).filter(|other| *other != route);
                let after = others.clone().map(|previous| {
                    let (n, sum) = pair(route, previous);
                    (n, sum - n * (stays[route] - left[previous]))
                });
                let before = others.map(|next| {
                    let (n, sum) = pair(next, route);
                    (n, n * (stays[next] + left[next]) - sum)
                });
                left[route] = mean(after.chain(before));
            }
        }
        (0..count)
            .map(|route| {
                mean(
                    (0..count)
                        .map(|previous| (pair(route, previous).0, pair(route, previous).0 * (left[route] - left[previous]))),
                )
            })
            .collect()
    }
}

/// The mean of sums with their counts.
fn mean(sums: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (count, sum) = sums.fold((0.0, 0.0), |(count, sum), (n, more)| (count + n, sum + more));
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_is_told_from_what_stays_by_the_order() {
        let (stays, left) = ([0, 5, 0], [9, 2, -3]);
        let mut carried = Carried::new(3);
        let mut previous = 0;
        for number in 0u64..300 {
            let route = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 3;
            carried.note(route, previous, 0, stays[route] + left[route] - left[previous]);
            previous = route;
        }
        let corrections = carried.corrections();
        for route in 0..3 {
            let (mut grown, mut count) = (0, 0);
            for other in 0..3 {
                let pair = carried.pairs[route * 3 + other];
                grown += pair.objects;
                count += pair.requests;
            }
            let own = grown as f64 / count as f64 - corrections[route].objects;
            assert!((own - f64::from(stays[route] as i32)).abs() < 0.2, "{route}: {own}");
        }
    }
}
