//! An engine that is away: calls return in time and fail immediately afterwards, few lines are logged, and it comes back by
//! itself.

use std::time::{Duration, Instant};

use bolide_contract::engine_row::EngineState as State;
use bolide_distributed::{CacheBounds, Fault, Leases, RemoteCache, Write};

use crate::support::{Proxy, Server, TIMEOUT, answering, engine, lines_of, wait_until};

const BOUNDS: CacheBounds = CacheBounds { key_bytes: 100, value_bytes: 100_000, initial: 0 };

fn is_back(cache: &RemoteCache) {
    wait_until("the engine's return", || cache.set(b"back", b"v", 0, Write::Any));
    assert_eq!(cache.get(b"back").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_killed_server_is_a_miss_and_its_return_is_noticed() {
    let mut server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "c", BOUNDS);
    assert_eq!(cache.engine().state(), State::Unused);
    assert!(cache.set(b"k", b"v", 0, Write::Any));
    assert_eq!(cache.engine().state(), State::Connected);
    server.kill();
    for _ in 0..100 {
        assert_eq!(cache.get(b"k"), None);
        assert!(!cache.set(b"k", b"w", 0, Write::Any) && !cache.delete(b"k") && !cache.exists(b"k"));
        assert!(!cache.add(b"n", 1, 0) && !cache.multiply(b"n", 2, 0) && !cache.clear() && cache.keys().is_none());
        assert_eq!(cache.number(b"n"), 0);
    }
    assert!(matches!(cache.engine().state(), State::Away { .. }));
    let lines = lines_of(cache.engine());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("is away: no connection"), "{lines:?}");
    server.restart_after_kill();
    is_back(&cache);
    assert_eq!(cache.get(b"k").as_deref(), Some(b"v".as_slice()), "the server has kept it");
    let lines = lines_of(cache.engine());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("is back after"), "{lines:?}");
}

#[test]
fn a_server_that_hangs_holds_a_call_no_longer_than_its_limit() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&format!("{}?connect-ms=1000&answer-ms=50", server.url())), "c", BOUNDS);
    is_back(&cache);
    server.freeze();
    let before = Instant::now();
    assert_eq!(cache.get(b"back"), None);
    assert!(matches!(cache.engine().state(), State::Away { .. }));
    for _ in 0..1000 {
        assert_eq!(cache.get(b"back"), None);
    }
    assert!(before.elapsed() < TIMEOUT, "a thousand calls did not wait");
    server.thaw();
    is_back(&cache);
}

#[test]
fn a_network_that_is_cut_holds_a_call_no_longer_than_its_limit() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let cache = RemoteCache::new(engine(&format!("{}?connect-ms=1000&answer-ms=50", proxy.url())), "c", BOUNDS);
    is_back(&cache);
    proxy.cut();
    assert_eq!(cache.get(b"back"), None);
    assert!(!cache.set(b"large", &[b'x'; 90_000], 0, Write::Any));
    let lines = lines_of(cache.engine());
    assert!(lines[0].contains("is away: no answer in time"), "{lines:?}");
    proxy.heal();
    is_back(&cache);
}

#[test]
fn an_idle_connection_that_the_server_has_closed_costs_no_call() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&server.url()), "c", BOUNDS);
    assert!(cache.set(b"k", b"v", 0, Write::Any));
    for _ in 0..20 {
        assert!(server.ask("CLIENT KILL TYPE normal SKIPME yes").starts_with(':'));
        assert_eq!(cache.get(b"k").as_deref(), Some(b"v".as_slice()));
    }
    assert_eq!(lines_of(cache.engine()), Vec::<String>::new());
}

#[test]
fn a_server_that_repeats_the_password_in_its_error_does_not_bring_it_into_the_log() {
    let server = Server::with(&["--rename-command", "AUTH", "OTHER"]);
    let url = server.url();
    let cache = RemoteCache::new(engine(&format!("{url}?pass=s3cr3tPASS&connect-ms=5000&answer-ms=5000")), "c", BOUNDS);
    assert_eq!(cache.get(b"k"), None);
    let lines = lines_of(cache.engine());
    assert!(lines.iter().any(|line| line.contains("refuses the password: ERR unknown command 'AUTH'")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("s3cr3t")), "{lines:?}");
}

#[test]
fn a_wrong_password_is_told_without_it() {
    let server = Server::with(&["--requirepass", "right"]);
    let with = |password: &str| format!("{}?pass={password}&connect-ms=5000&answer-ms=5000", server.url());
    let cache = RemoteCache::new(engine(&with("right")), "c", BOUNDS);
    is_back(&cache);
    let cache = RemoteCache::new(engine(&with("secret-word")), "c", BOUNDS);
    assert_eq!(cache.get(b"k"), None);
    let lines = lines_of(cache.engine());
    assert!(lines.iter().any(|line| line.contains("refuses the password: WRONGPASS")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("secret-word")), "{lines:?}");
}

#[test]
fn a_database_is_chosen() {
    let server = Server::start();
    let cache = RemoteCache::new(engine(&format!("{}?db=3&connect-ms=5000&answer-ms=5000", server.url())), "c", BOUNDS);
    is_back(&cache);
    assert_eq!(server.ask("DBSIZE"), ":0");
}

#[test]
fn a_command_that_the_server_refuses_is_no_absence() {
    let server = Server::with(&["--maxmemory", "1"]);
    let cache = RemoteCache::new(engine(&server.url()), "c", BOUNDS);
    for _ in 0..10 {
        assert!(!cache.set(b"k", b"v", 0, Write::Any));
    }
    assert_eq!((cache.exists(b"k"), cache.engine().state()), (false, State::Connected));
    let lines = lines_of(cache.engine());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("refused a command") && lines[0].contains("OOM"), "{lines:?}");
}

#[test]
fn answers_that_are_no_answers_end_a_call_and_nothing_else() {
    let nested = "*1\r\n".repeat(100_000);
    for answer in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*9223372036854775807\r\n",
        "$9223372036854775807\r\n",
        "%-1\r\n",
        &nested,
        ":\r\n",
        "\0\0",
    ] {
        let url = format!("{}?connect-ms=1000&answer-ms=50", answering(answer.as_bytes().to_vec()));
        let cache = RemoteCache::new(engine(&url), "c", BOUNDS);
        assert_eq!(cache.get(b"k"), None);
        assert!(
            answer.starts_with('$') || matches!(cache.engine().state(), State::Away { .. }),
            "{:?}",
            lines_of(cache.engine())
        );
    }
    // Answers of another type than the command's.
    for answer in [":1\r\n", "*1\r\n$1\r\nx\r\n", "+text\r\n", "*0\r\n"] {
        let url = format!("{}?connect-ms=1000&answer-ms=500", answering(answer.as_bytes().to_vec()));
        let leases = Leases::new(engine(&url));
        assert!(RemoteCache::new(leases.engine(), "c", BOUNDS).get(b"k").is_none());
        let taken = leases.take("l", Duration::from_secs(1));
        assert!(answer == ":1\r\n" || matches!(taken, Err(Fault::Away(_))), "{answer:?}: {taken:?}");
    }
}
