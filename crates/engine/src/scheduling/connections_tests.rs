//! Tests of the connection table: the order of turns, and the time limits.

use super::*;

#[test]
fn an_event_of_a_connection_that_is_gone_is_dropped() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let first = connections.insert(Box::new("first"), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(first));
    assert!(connections.check_out(first).is_some());
    connections.remove(first);
    let second = connections.insert(Box::new("second"), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(second));
    connections.note_event(first);
    assert_eq!(connections.next_ready(), None);
    assert!(connections.check_out(first).is_none() && connections.check_out(second).is_some());
}

#[test]
fn an_event_while_a_connection_is_away_is_not_lost() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let key = connections.insert(Box::new("one"), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(key));
    let connection = connections.check_out(key).expect("here");
    connections.note_event(key);
    assert_eq!(connections.next_ready(), None);
    assert!(connections.check_out(key).is_none());
    connections.check_in(key, connection, NEVER_MS);
    assert_eq!(connections.next_ready(), Some(key));
}

#[test]
fn connections_and_listening_sockets_have_their_turns_in_the_order_of_their_events() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let key = connections.insert(Box::new("one"), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(key));
    connections.note_event(Key::listener(0));
    connections.note_event(key);
    connections.note_event(Key::listener(0));
    connections.note_event(Key::CONTROL);
    let turns: Vec<Key> = std::iter::from_fn(|| connections.next_ready()).collect();
    assert_eq!(turns, [Key::CONTROL, Key::listener(0), key]);
    connections.note_event(Key::listener(0));
    assert_eq!(connections.next_ready(), Some(Key::listener(0)));
}

#[test]
fn a_limit_that_is_put_off_is_looked_at_again_and_one_that_comes_nearer_counts() {
    let mut connections: ConnectionTable<u64> = ConnectionTable::new();
    let key = connections.insert(Box::new(100), 100);
    assert_eq!((connections.next_ready(), connections.next_look_ms()), (Some(key), 100));
    let mut seen = Vec::new();
    let mut look = |now_ms: u64, connections: &mut ConnectionTable<u64>| {
        connections.look(now_ms, |limit| {
            seen.push(now_ms);
            if *limit <= now_ms { Due::Now } else { Due::At(*limit) }
        });
        connections.next_ready()
    };
    let mut connection = connections.check_out(key).expect("here");
    *connection = 300;
    connections.check_in(key, connection, 300);
    assert_eq!(look(99, &mut connections), None);
    assert_eq!(look(100, &mut connections), None);
    assert_eq!(connections.next_look_ms(), 300);
    connections.change_all(|limit| {
        *limit = 200;
        *limit
    });
    assert_eq!(look(200, &mut connections), Some(key));
    // The limit at 300 is no longer in effect.
    assert_eq!(look(1_000, &mut connections), None);
    assert_eq!(seen, [100, 200]);
}

#[test]
fn a_connection_that_is_away_when_its_time_comes_brings_its_limit_back() {
    let mut connections: ConnectionTable<u64> = ConnectionTable::new();
    let key = connections.insert(Box::new(100), 100);
    assert_eq!(connections.next_ready(), Some(key));
    let connection = connections.check_out(key).expect("here");
    connections.look(150, |_| unreachable!("it is away"));
    connections.check_in(key, connection, 100);
    connections.look(150, |_| Due::Now);
    assert_eq!(connections.next_ready(), Some(key));
    connections.remove(key);
    assert_eq!(connections.next_look_ms(), NEVER_MS);
}

#[test]
fn limits_that_come_nearer_again_and_again_leave_no_heap_of_entries() {
    let mut connections: ConnectionTable<u64> = ConnectionTable::new();
    let key = connections.insert(Box::new(0), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(key));
    for limit in (0..10_000u64).rev() {
        assert!(connections.change(key, |_| limit));
        assert!(!connections.deadlines.is_crowded(1));
    }
    assert_eq!(connections.next_look_ms(), 0);
}

#[test]
fn the_end_of_a_peer_is_remembered_for_its_connection_alone() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let first = connections.insert(Box::new("first"), NEVER_MS);
    assert!(connections.check_out(first).is_some());
    connections.note_end(first);
    assert!(connections.has_ended(first), "also while it is away");
    connections.remove(first);
    let second = connections.insert(Box::new("second"), NEVER_MS);
    connections.note_end(first);
    assert!(!connections.has_ended(second));
}

#[test]
fn special_keys_are_told_apart() {
    assert_eq!(Key::CONTROL.source(), EventSource::Control);
    assert_eq!(Key::HEARTBEAT.source(), EventSource::Heartbeat);
    assert_eq!(Key::BELL.source(), EventSource::Bell);
    assert_eq!(Key::QUEUE.source(), EventSource::Queue);
    assert_eq!(Key::listener(3).source(), EventSource::Listener(3));
    assert_eq!(Key::new(7, 9).source(), EventSource::Connection(Key::new(7, 9)));
    assert_eq!(Key::new(7, u32::MAX - 2).source(), EventSource::Connection(Key::new(7, u32::MAX - 2)));
}

/// Inserts a connection, which has its first turn.
fn enter<'a>(connections: &mut ConnectionTable<&'a str>, name: &'a str) -> Key {
    let key = connections.insert(Box::new(name), NEVER_MS);
    assert_eq!(connections.next_ready(), Some(key));
    key
}

/// Inserts streams of a connection, which wait for their turn.
fn enter_streams(connections: &mut ConnectionTable<&str>, connection: Key, count: usize) -> Vec<Key> {
    (0..count).map(|_| connections.insert_stream(connection, Box::new("stream"), NEVER_MS)).collect()
}

/// Returns the keys that have their turn before the poll is asked.
fn turns(connections: &mut ConnectionTable<&str>) -> Vec<Key> {
    std::iter::from_fn(|| connections.next_ready()).collect()
}

/// Returns the keys that have their turn until none is left.
fn serve_all(connections: &mut ConnectionTable<&str>) -> Vec<Key> {
    let mut served = Vec::new();
    while connections.has_ready() {
        served.extend(turns(connections));
    }
    served
}

#[test]
fn the_streams_of_a_connection_have_one_place_among_connections() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let (first, second, third) =
        (enter(&mut connections, "first"), enter(&mut connections, "second"), enter(&mut connections, "third"));
    let of_first = enter_streams(&mut connections, first, 1);
    connections.note_event(third);
    let of_second = enter_streams(&mut connections, second, 1);
    let later_of_first = enter_streams(&mut connections, first, 1);
    assert_eq!(connections.ready.len(), 3);
    assert_eq!(connections.ready_count(), 6, "each stream wants a thread, and each place counts");
    assert_eq!(connections.ready().collect::<Vec<_>>(), [third]);
    let mut served = serve_all(&mut connections);
    // It has its turn with the first one if that was quick.
    served.retain(|key| *key != later_of_first[0]);
    assert_eq!(served, [of_first[0], third, of_second[0]]);
    assert!(!connections.has_ready() && connections.ready_count() == 0);
}

#[test]
fn streams_that_have_had_their_turn_are_behind_keys_with_later_events() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let (flooding, kept) = (enter(&mut connections, "flooding"), enter(&mut connections, "kept"));
    let streams = enter_streams(&mut connections, flooding, 100);
    let first_turn = turns(&mut connections);
    assert!(!first_turn.is_empty() && first_turn.len() < streams.len(), "{}", first_turn.len());
    assert!(connections.has_ready());
    connections.note_event(Key::listener(0));
    connections.note_event(kept);
    assert_eq!(connections.next_ready(), Some(Key::listener(0)));
    assert_eq!(connections.next_ready(), Some(kept));
    assert_eq!([first_turn, serve_all(&mut connections)].concat(), streams);
}

#[test]
fn a_stream_that_becomes_more_urgent_is_before_those_that_have_waited() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let connection = enter(&mut connections, "connection");
    let streams = enter_streams(&mut connections, connection, 3);
    assert_eq!(connections.next_ready(), Some(streams[0]));
    connections.note_event(streams[0]);
    connections.order_streams(connection, |key| streams.iter().position(|stream| *stream == key));
    assert_eq!(connections.ready_count(), 4);
    assert_eq!(serve_all(&mut connections), streams);
}

#[test]
fn slow_streams_end_the_turn_of_those_of_their_connection() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let flooding = enter(&mut connections, "flooding");
    let streams = enter_streams(&mut connections, flooding, 10);
    for stream in &streams[..2] {
        assert_eq!(connections.next_ready(), Some(*stream));
        ConnectionTable::streams_of(&mut connections.entries, flooding).expect("it has streams").turn.pretend_slow();
        assert_eq!(connections.next_ready(), None);
    }
    assert_eq!(connections.next_ready(), Some(streams[2]));
}

#[test]
fn streams_whose_connection_is_gone_have_their_turns_still() {
    let mut connections: ConnectionTable<&str> = ConnectionTable::new();
    let gone = enter(&mut connections, "gone");
    let streams = enter_streams(&mut connections, gone, 3);
    assert!(connections.check_out(gone).is_some());
    connections.remove(gone);
    let new = enter_first_streams(&mut connections, &streams);
    let of_new = enter_streams(&mut connections, new, 1);
    assert_eq!(connections.ready_count(), 4);
    connections.note_event(streams[2]);
    assert_eq!(serve_all(&mut connections), [&streams[1..], &of_new[..], &streams[2..]].concat());
    assert_eq!(connections.ready_count(), 0);
}

/// The first stream has its turn; a new connection takes the slot of the one that is gone.
fn enter_first_streams(connections: &mut ConnectionTable<&str>, streams: &[Key]) -> Key {
    let new = connections.insert(Box::new("new"), NEVER_MS);
    connections.bring_forward(1);
    assert_eq!((connections.next_ready(), connections.next_ready()), (Some(new), Some(streams[0])));
    new
}
