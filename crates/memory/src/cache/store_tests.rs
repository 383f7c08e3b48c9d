//! The file of a cache after the end of the instance, and after a failure of the system, which leaves pages of several moments.

use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::services::{SharedCache, Store};

use super::digest::{checksum_of, hash_of};
use super::store::{Restored, restore};
use super::table::{Item, marks_of};
use super::testing::{SYSTEM_START, cache, settings};
use super::{Cache, Change, Content, Outcome, Waiting, Written};

fn with_file(items: u64) -> SharedCache {
    let store = Store { path: "/nonexistent/test.cache".into(), sync_s: 0, deletes_foreign: false };
    SharedCache { store: Some(store), ..settings(items) }
}

fn update(cache: &Cache, key: &str, value: &str) {
    assert_eq!(cache.put(key.as_bytes(), Change::Update(value.as_bytes()), 0, Waiting::Never), Written::Done);
}

fn get(cache: &Cache, key: &str) -> Option<String> {
    let mut value = Vec::new();
    let outcome = cache.get(key.as_bytes(), &mut value);
    matches!(outcome, Outcome::Hit { .. }).then(|| String::from_utf8(value).expect("text"))
}

fn slot_of(cache: &Cache, key: &str) -> usize {
    let hash = hash_of(key.as_bytes(), cache.parts.facts.seed.load(Relaxed));
    cache.parts.table.find(hash, key.as_bytes()).expect("an item").slot
}

/// Fills the rest, to see that nothing of the room is lost or used twice.
fn check_room(cache: &Cache) {
    let rest = cache.settings().items - cache.counts().items;
    for item in 0..rest {
        update(cache, &format!("fill {item}"), "x");
    }
    assert!(matches!(cache.put(b"more", Change::Add(b"x"), 0, Waiting::Never), Written::Full { .. }));
}

#[test]
fn a_file_of_the_same_start_of_the_system_keeps_all_items() {
    let cache = cache(&with_file(10));
    for number in 0..8 {
        update(&cache, &format!("{number}"), "first");
        update(&cache, &format!("{number}"), &format!("value {number}"));
    }
    // A process died inside the lock, and then all the others ended.
    std::mem::forget(cache.parts.shards[0].lock.lock().expect("taken"));
    assert_eq!(restore(&cache.parts, SYSTEM_START).expect("restored"), Restored { items: 8, dropped: 0 });
    assert_eq!(get(&cache, "5").as_deref(), Some("value 5"));
    check_room(&cache);
}

#[test]
fn after_a_power_cut_each_item_is_checked_and_those_written_in_part_are_dropped() {
    for mut settings in [with_file(10), with_file(2000), with_file(10)]
        .into_iter()
        .zip([false, false, true])
        .map(|(settings, is_bitmap)| SharedCache { is_bitmap, ..settings })
    {
        if settings.is_bitmap {
            settings.blocks = 40;
        }
        let cache = cache(&settings);
        for number in 0..8 {
            update(&cache, &format!("{number}"), &format!("value {number}"));
        }
        let table = &cache.parts.table;
        // The disk has no chains, and of one value the page of another moment.
        table.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        let torn = &table.slots[slot_of_whole(&cache, 3)];
        table.value_words(torn.block(), 1).expect("words")[0].store(7, Relaxed);
        assert_eq!(restore(&cache.parts, SYSTEM_START + 1).expect("restored"), Restored { items: 7, dropped: 1 });
        for number in 0..8 {
            let expected = (number != 3).then(|| format!("value {number}"));
            assert_eq!(get(&cache, &format!("{number}")), expected);
        }
        if !settings.is_bitmap {
            check_room(&cache);
        }
    }
}

/// The slot of a key whose chain is gone.
fn slot_of_whole(cache: &Cache, number: u32) -> usize {
    let key = format!("{number}").into_bytes();
    let slots = 0..cache.parts.table.slots.len();
    slots.into_iter().find(|slot| cache.parts.table.key(*slot).as_ref() == Some(&key)).expect("a slot")
}

#[test]
fn of_two_values_of_a_key_the_later_one_stays() {
    let cache = cache(&with_file(10));
    update(&cache, "key", "later");
    let parts = &cache.parts;
    // The old slot of an update, whose page was not written again after it had left its chain.
    let hash = hash_of(b"key", parts.facts.seed.load(Relaxed));
    let free = parts.shards[0].spares[1].load(Relaxed) as usize;
    assert_ne!(free, slot_of(&cache, "key"));
    let old = Item {
        hash,
        key: b"key",
        value: b"earlier",
        expires_ms: 0,
        block: free as u64,
        checksum: checksum_of(b"key", b"earlier", 0),
        marks: marks_of(u32::MAX, true),
        content: Content::Body,
    };
    parts.table.fill(free, &old);
    assert_eq!(restore(parts, SYSTEM_START + 1).expect("restored"), Restored { items: 1, dropped: 0 });
    assert_eq!(get(&cache, "key").as_deref(), Some("later"));
    check_room(&cache);
}

#[test]
fn a_file_with_nonsense_in_it_breaks_nothing() {
    let cache = cache(&with_file(10));
    update(&cache, "key", "value");
    let table = &cache.parts.table;
    for (place, bucket) in table.buckets.iter().enumerate() {
        bucket.store(if place.is_multiple_of(2) { u64::MAX } else { 1 }, Relaxed);
    }
    // The same start of the system: the chains are trusted as far as they lead to slots.
    restore(&cache.parts, SYSTEM_START).expect("restored");
    assert_eq!(get(&cache, "absent"), None);
    assert_eq!(cache.clear(Waiting::Never), Written::Done);
    check_room(&cache);
}

#[test]
fn what_an_item_is_to_a_reader_survives_restarts_reads_and_purges_and_is_a_body_unless_it_was_stored_as_a_response() {
    let cache = cache(&with_file(10));
    let content = |key: &[u8]| match cache.get(key, &mut Vec::new()) {
        Outcome::Hit { content, .. } => content,
        outcome => panic!("{outcome:?}"),
    };
    let put = |content, key: &[u8]| cache.put_as(content, key, Change::Update(b"HTTP/1.1 200 OK\r\n\r\n"), 0, Waiting::Never);
    assert_eq!((put(Content::Body, b"a"), put(Content::Response, b"b")), (Written::Done, Written::Done));
    assert_eq!((content(b"a"), content(b"b")), (Content::Body, Content::Response));
    for slot in cache.parts.table.slots {
        slot.take_used();
    }
    assert_eq!((content(b"a"), content(b"b")), (Content::Body, Content::Response));
    restore(&cache.parts, SYSTEM_START + 1).expect("restored");
    assert_eq!((content(b"a"), content(b"b")), (Content::Body, Content::Response));
    assert_eq!((put(Content::Response, b"a"), put(Content::Body, b"b")), (Written::Done, Written::Done));
    assert_eq!((content(b"a"), content(b"b")), (Content::Response, Content::Body));
}
