//! A rate limit while workers count at the same moment, also for keys that have the same cells.

use bolide_models::explore;
use bolide_models::rate::{Counted, Rate};
use bolide_models::rate_limit_cells::{Cell, Cells, PROBES};
use loom::sync::Arc;

const NOW_US: u64 = 1_000_000_000;
const RATE: Rate = Rate { interval_us: 1_000_000, burst: 2 };

fn cells() -> Arc<Vec<Cell>> {
    Arc::new((0..PROBES).map(|_| Cell::default()).collect())
}

fn passes(cells: &[Cell], hash: u64) -> bool {
    matches!(Cells(cells).count(hash, RATE, NOW_US), Counted::Passes { .. })
}

fn count_elsewhere(cells: &Arc<Vec<Cell>>, hashes: &'static [u64]) -> loom::thread::JoinHandle<usize> {
    let cells = cells.clone();
    loom::thread::spawn(move || hashes.iter().filter(|hash| passes(&cells, **hash)).count())
}

#[test]
fn workers_that_meet_a_new_key_let_exactly_its_burst_through() {
    explore(|| {
        let cells = cells();
        let other = count_elsewhere(&cells, &[7, 7]);
        let mine = usize::from(passes(&cells, 7)) + usize::from(passes(&cells, 7));
        assert_eq!(mine + other.join().expect("no panic"), 2);
        assert!(!passes(&cells, 7));
    });
}

#[test]
fn a_request_is_never_counted_for_the_key_that_takes_its_cell() {
    explore(|| {
        let cells = cells();
        // All cells are in use, and the key 0 is the one that goes first.
        for hash in 0..PROBES as u64 {
            assert!(passes(&cells, hash));
        }
        let other = count_elsewhere(&cells, &[100]);
        let mine = passes(&cells, 0);
        assert_eq!(other.join().expect("no panic"), 1);
        assert!(mine, "the key 0 has used one request of two");
        let left = usize::from(passes(&cells, 100)) + usize::from(passes(&cells, 100));
        assert_eq!(left, 1, "the key 100 has used one of two");
    });
}

#[test]
fn keys_that_take_cells_at_the_same_moment_are_both_counted() {
    explore(|| {
        let cells = cells();
        let other = count_elsewhere(&cells, &[1]);
        assert!(passes(&cells, 2));
        assert_eq!(other.join().expect("no panic"), 1);
        for hash in [1, 2] {
            assert_eq!((passes(&cells, hash), passes(&cells, hash)), (true, false), "{hash}");
        }
    });
}
