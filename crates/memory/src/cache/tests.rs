//! The cache in one process: what uWSGI's functions do, and the bounds.

use std::mem::MaybeUninit;

use bolide_contract::clock::advance_thread_clock;
use bolide_contract::services::WhenFull;

use super::testing::{cache, settings};
use super::{Cache, Calculation, Change, Waiting, Written};

fn put(cache: &Cache, key: &str, change: Change<'_>, expires_s: i64) -> Written {
    cache.put(key.as_bytes(), change, expires_s, Waiting::Bounded)
}

fn add(cache: &Cache, key: &str, value: &str) -> Written {
    put(cache, key, Change::Add(value.as_bytes()), 0)
}

fn get(cache: &Cache, key: &str) -> Option<String> {
    let mut value = Vec::new();
    let outcome = cache.get(key.as_bytes(), &mut value);
    matches!(outcome, super::Outcome::Hit { .. }).then(|| String::from_utf8(value).expect("text"))
}

fn number(cache: &Cache, key: &str) -> i64 {
    let mut value = Vec::new();
    cache.get(key.as_bytes(), &mut value);
    i64::from_ne_bytes(value.try_into().expect("a number"))
}

fn delete(cache: &Cache, key: &str) -> Written {
    cache.delete(key.as_bytes(), Waiting::Bounded)
}

fn keys(cache: &Cache) -> Vec<String> {
    let mut keys: Vec<String> = cache.keys().into_iter().map(|key| String::from_utf8(key).expect("text")).collect();
    keys.sort();
    keys
}

#[test]
fn what_is_set_is_read_and_only_an_update_replaces_it() {
    let cache = cache(&settings(10));
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(add(&cache, "a", "one"), Written::Done);
    assert_eq!(add(&cache, "a", "two"), Written::Unchanged);
    assert_eq!(get(&cache, "a").as_deref(), Some("one"));
    assert_eq!(put(&cache, "a", Change::Update(b"a longer value than the first"), 0), Written::Done);
    assert_eq!(get(&cache, "a").as_deref(), Some("a longer value than the first"));
    assert!(cache.exists(b"a") && !cache.exists(b"b"));
    assert_eq!((delete(&cache, "a"), delete(&cache, "a")), (Written::Done, Written::Unchanged));
    assert_eq!(get(&cache, "a"), None);
    let counts = cache.counts();
    assert_eq!((counts.items, counts.hits, counts.misses), (0, 2, 2));
}

#[test]
fn a_cache_holds_exactly_its_items_with_one_shard_and_with_many() {
    for items in [1, 10, 2000] {
        let cache = cache(&settings(items));
        for item in 0..items {
            assert_eq!(add(&cache, &format!("key {item}"), "value"), Written::Done, "{item} of {items}");
        }
        assert_eq!(add(&cache, "one more", "value"), Written::Full { is_to_be_said: true });
        assert_eq!(add(&cache, "one more", "value"), Written::Full { is_to_be_said: false });
        assert_eq!(put(&cache, "key 0", Change::Update(b"other"), 0), Written::Done, "an existing item may be replaced");
        assert_eq!((cache.counts().items, keys(&cache).len() as u64), (items, items));
        assert_eq!(delete(&cache, "key 0"), Written::Done);
        assert_eq!(add(&cache, "one more", "value"), Written::Done);
        assert_eq!(cache.clear(Waiting::Bounded), Written::Done);
        assert_eq!((cache.counts().items, keys(&cache).len()), (0, 0));
    }
}

#[test]
fn keys_and_values_that_do_not_fit_are_counted_and_not_stored() {
    let cache = cache(&settings(10));
    for (key, value) in [(33, 1), (0, 1), (1, 0), (1, 101)] {
        let (key, value) = ("k".repeat(key), "v".repeat(value));
        assert_eq!(add(&cache, &key, &value), Written::Unfit);
        assert_eq!(get(&cache, &key), None);
    }
    assert_eq!(cache.counts().refused, 4);
    assert_eq!(add(&cache, &"k".repeat(32), &"v".repeat(100)), Written::Done);
    assert_eq!(get(&cache, &"k".repeat(32)), Some("v".repeat(100)));
}

#[test]
fn an_item_that_has_expired_is_never_returned_and_makes_room() {
    for items in [2, 2000] {
        let cache = cache(&settings(items));
        for item in 0..items {
            assert_eq!(put(&cache, &format!("{item}"), Change::Add(b"x"), 10), Written::Done);
        }
        assert!(matches!(add(&cache, "more", "y"), Written::Full { .. }));
        advance_thread_clock(9_000);
        assert_eq!(get(&cache, "1").as_deref(), Some("x"));
        advance_thread_clock(2_000);
        assert_eq!((get(&cache, "1"), cache.exists(b"1"), delete(&cache, "1")), (None, false, Written::Unchanged));
        assert_eq!(keys(&cache), Vec::<String>::new());
        assert_eq!(add(&cache, "0", "new"), Written::Done, "it does not exist any more");
        for item in 1..items {
            assert_eq!(add(&cache, &format!("new {item}"), "y"), Written::Done);
        }
        assert!(matches!(add(&cache, "more", "y"), Written::Full { .. }));
    }
}

#[test]
fn an_item_that_expires_in_the_past_replaces_the_old_one_by_nothing() {
    let cache = cache(&settings(2));
    assert_eq!(add(&cache, "a", "x"), Written::Done);
    assert_eq!(put(&cache, "a", Change::Update(b"y"), -1), Written::Done);
    assert_eq!((get(&cache, "a"), cache.counts().items), (None, 0));
}

#[test]
fn nothing_expires_without_expiry() {
    let cache = cache(&super::SharedCache { never_expires: true, ..settings(2) });
    assert_eq!(put(&cache, "a", Change::Add(b"x"), 1), Written::Done);
    advance_thread_clock(5_000);
    assert_eq!(get(&cache, "a").as_deref(), Some("x"));
}

#[test]
fn a_full_cache_purges_what_was_not_read_or_clears_itself() {
    for items in [10, 2000] {
        let purging = cache(&super::SharedCache { when_full: WhenFull::Purge, ..settings(items) });
        for item in 0..items {
            assert_eq!(add(&purging, &format!("{item}"), "x"), Written::Done);
        }
        // The first search finds everything unread for the first time.
        assert_eq!(add(&purging, "first", "x"), Written::Done);
        for item in 0..items * 5 {
            get(&purging, "kept");
            if item == 0 {
                assert_eq!(add(&purging, "kept", "precious"), Written::Done);
            }
            assert_eq!(add(&purging, &format!("new {item}"), "x"), Written::Done);
            assert_eq!(purging.counts().items, items);
        }
        assert_eq!(get(&purging, "kept").as_deref(), Some("precious"), "of {items}");
        let clearing = cache(&super::SharedCache { when_full: WhenFull::Clear, ..settings(items) });
        for item in 0..=items {
            assert_eq!(add(&clearing, &format!("{item}"), "x"), Written::Done);
        }
        assert_eq!(keys(&clearing), [items.to_string()]);
    }
}

#[test]
fn numbers_are_changed_in_place_and_keep_their_time() {
    let cache = cache(&super::SharedCache { first_number: 100, ..settings(10) });
    let change = |calculation, operand, expires_s| put(&cache, "n", Change::Calculate(calculation, operand), expires_s);
    assert_eq!(change(Calculation::Add, 1, 10), Written::Done);
    assert_eq!(number(&cache, "n"), 101);
    assert_eq!(change(Calculation::Subtract, 2, 0), Written::Done);
    assert_eq!(change(Calculation::Multiply, 3, 0), Written::Done);
    assert_eq!(change(Calculation::Divide, 2, 0), Written::Done);
    assert_eq!(number(&cache, "n"), 148);
    assert_eq!(change(Calculation::Divide, 0, 0), Written::Done);
    assert_eq!(number(&cache, "n"), 0);
    assert_eq!(change(Calculation::Add, i64::MIN, 0), Written::Done);
    assert_eq!(change(Calculation::Divide, -1, 0), Written::Done);
    assert_eq!(number(&cache, "n"), i64::MIN, "it wraps around");
    advance_thread_clock(11_000);
    assert!(!cache.exists(b"n"), "the time of the first call counts");
}

#[test]
fn values_of_each_length_are_copied_whole_and_nothing_behind_them() {
    let cache = cache(&settings(2));
    for length in 1..=100 {
        let value: Vec<u8> = (1..=length).collect();
        assert_eq!(put(&cache, "key", Change::Update(&value), 0), Written::Done);
        let mut room = Room([MaybeUninit::new(0xff); 101]);
        assert!(matches!(cache.get(b"key", &mut room), super::Outcome::Hit { .. }));
        // SAFETY: each byte was written above.
        let bytes = room.0.map(|byte| unsafe { byte.assume_init() });
        let (copied, behind) = bytes.split_at(value.len());
        assert_eq!(copied, value);
        assert!(behind.iter().all(|byte| *byte == 0xff));
    }
}

/// A buffer that is filled as one of Python is.
struct Room([MaybeUninit<u8>; 101]);

impl super::Sink for Room {
    fn copy(&mut self, words: &[super::AtomicU64], bytes: usize) -> bool {
        super::table::copy_words(words, &mut self.0[..bytes]);
        true
    }
}

#[test]
fn a_count_returns_the_sum() {
    let cache = cache(&settings(2));
    assert_eq!(cache.count(b"n", 5, 0, Waiting::Bounded), Ok(5));
    assert_eq!(cache.count(b"n", -7, 0, Waiting::Bounded), Ok(-2));
    assert_eq!(cache.count(b"", 1, 0, Waiting::Bounded), Err(Written::Unfit));
}

#[test]
fn values_of_several_blocks_take_consecutive_ones_and_give_them_back() {
    let mut settings = settings(4);
    (settings.is_bitmap, settings.blocks) = (true, 8);
    let cache = cache(&settings);
    assert_eq!(add(&cache, "a", &"a".repeat(300)), Written::Done);
    assert_eq!(add(&cache, "b", &"b".repeat(500)), Written::Done);
    assert!(matches!(add(&cache, "c", "c"), Written::Full { .. }), "no block is left");
    assert_eq!(delete(&cache, "a"), Written::Done);
    assert!(matches!(add(&cache, "c", &"c".repeat(313)), Written::Full { .. }), "there are three, not four");
    assert_eq!(cache.counts().items, 1);
    assert_eq!(add(&cache, "c", &"c".repeat(100)), Written::Done);
    assert_eq!(put(&cache, "c", Change::Update("d".repeat(200).as_bytes()), 0), Written::Done);
    assert_eq!((get(&cache, "b"), get(&cache, "c")), (Some("b".repeat(500)), Some("d".repeat(200))));
    assert_eq!(add(&cache, "all", &"x".repeat(801)), Written::Unfit);
    assert_eq!(cache.clear(Waiting::Bounded), Written::Done);
    assert_eq!(add(&cache, "all", &"x".repeat(800)), Written::Done);
    assert_eq!(get(&cache, "all"), Some("x".repeat(800)));
}

#[test]
fn a_cache_of_blocks_purges_until_a_large_value_fits() {
    let mut settings = settings(8);
    (settings.is_bitmap, settings.blocks, settings.when_full) = (true, 8, WhenFull::Purge);
    let cache = cache(&settings);
    for item in 0..8 {
        assert_eq!(add(&cache, &format!("{item}"), "x"), Written::Done);
    }
    assert_eq!(add(&cache, "large", &"x".repeat(800)), Written::Done);
    assert_eq!(keys(&cache), ["large"]);
}

#[test]
fn the_time_of_the_last_change_is_kept_on_request() {
    let plain = cache(&settings(2));
    add(&plain, "a", "x");
    assert_eq!(plain.counts().changed_s, 0);
    let noting = cache(&super::SharedCache { notes_changes: true, ..settings(2) });
    add(&noting, "a", "x");
    assert!(noting.counts().changed_s > 1_700_000_000);
}

#[test]
fn a_writer_without_patience_does_not_wait() {
    let cache = cache(&settings(2));
    let guard = cache.parts.shards[0].lock.lock().expect("taken");
    let busy = std::thread::scope(|scope| {
        let write = || cache.put(b"a", Change::Add(b"x"), 0, Waiting::Never);
        scope.spawn(write).join().expect("no panic")
    });
    assert_eq!(busy, Written::Busy);
    drop(guard);
    assert_eq!(cache.put(b"a", Change::Add(b"x"), 0, Waiting::Never), Written::Done);
}
