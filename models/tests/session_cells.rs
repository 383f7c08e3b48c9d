//! Owners of sessions while workers learn keys at the same moment, also in the same cells.

use bolide_models::explore;
use bolide_models::session_cells::{Cell, Cells, Owner, PROBES, Reason};
use loom::sync::Arc;

const EVERYONE: fn(Owner) -> bool = |_| true;

fn owner(row: u16) -> Owner {
    Owner { row, pid: 100 + u32::from(row), side: false }
}

fn cells() -> Arc<Vec<Cell>> {
    Arc::new((0..PROBES).map(|_| Cell::default()).collect())
}

fn learn(cells: &Arc<Vec<Cell>>, hash: u64, row: u16) -> loom::thread::JoinHandle<Owner> {
    let cells = cells.clone();
    loom::thread::spawn(move || Cells(&cells).learn(hash, owner(row), Reason::Request, 1, EVERYONE))
}

#[test]
fn two_workers_that_learn_a_key_leave_one_owner() {
    explore(|| {
        let cells = cells();
        let other = learn(&cells, 7, 1);
        let mine = Cells(&cells).learn(7, owner(2), Reason::Request, 1, EVERYONE);
        let theirs = other.join().expect("no panic");
        let found = Cells(&cells).find(7, 1, EVERYONE);
        assert!([Some(mine), Some(theirs)].contains(&found), "{found:?}");
        assert!(found == Some(owner(1)) || found == Some(owner(2)));
    });
}

#[test]
fn a_key_never_has_the_owner_of_the_key_that_it_replaces() {
    explore(|| {
        let cells = cells();
        let table = Cells(&cells);
        // All cells are full, so the next key replaces the first one.
        for hash in 0..PROBES as u64 {
            table.learn(hash, owner(1), Reason::Request, 1 + hash, EVERYONE);
        }
        let other = learn(&cells, 100, 2);
        let seen = [table.find(0, 9, EVERYONE), table.find(100, 9, EVERYONE)];
        assert!([None, Some(owner(1))].contains(&seen[0]), "{seen:?}");
        assert!([None, Some(owner(2))].contains(&seen[1]), "{seen:?}");
        other.join().expect("no panic");
    });
}
