//! Slow, numerous and impatient clients, on real sockets.

use std::io::Read;
use std::os::unix::net::UnixStream;

use bolide_contract::settings::Address;

use super::*;
use crate::polling;

/// More than a socket accepts at a time.
const LONG_BYTES: usize = 8 * 1024 * 1024;

fn server(is_http: bool) -> StatsServer {
    let name = format!("bolide-stats-{}-{:?}", std::process::id(), std::thread::current().id());
    let settings = StatisticsServer { address: Address::Abstract(name), mode: None, is_http, origin: "a test".to_owned() };
    let (socket, endpoint) = crate::sockets::stats_server::bind(&settings, None).expect("bound");
    StatsServer::new(&settings, socket, endpoint)
}

fn client(server: &StatsServer) -> UnixStream {
    use std::os::linux::net::SocketAddrExt;
    let name = server.endpoint().bound.strip_prefix('@').expect("abstract").to_owned();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a name");
    UnixStream::connect_addr(&address).expect("connected")
}

/// The server's part of a turn of the master's loop.
fn turn(server: &mut StatsServer, page: &Page, now_ms: u64) {
    let sources: Vec<Source<'_, ServerToken>> = server.sources(true).collect();
    let news = polling::wait(&sources, 10).expect("waited");
    for token in news {
        server.take_news(token, &mut |_| Answer::bare(page.clone()), now_ms);
    }
    server.look_after_time(now_ms);
}

#[test]
fn a_slow_reader_gets_all_of_a_long_answer_piece_by_piece() {
    let mut server = server(false);
    let page = Page::from(vec![b'x'; LONG_BYTES]);
    let mut stream = client(&server);
    turn(&mut server, &page, 1);
    assert!(matches!(server.clients[0].stage, Stage::Answering { sent, .. } if sent < LONG_BYTES));
    stream.set_nonblocking(true).expect("set");
    let (mut got, mut buffer) = (0, vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        turn(&mut server, &page, 2);
    }
    assert_eq!(got, LONG_BYTES);
    drop(stream);
    turn(&mut server, &page, 3);
    assert!(server.clients.is_empty() && server.wake_ms().is_none());
}

#[test]
fn a_reader_that_takes_nothing_is_let_go_when_its_time_is_over() {
    let mut server = server(false);
    let page = Page::from(vec![b'x'; LONG_BYTES]);
    let _stalled = client(&server);
    turn(&mut server, &page, 100);
    assert_eq!(server.wake_ms(), Some(100 + CLIENT_MS));
    turn(&mut server, &page, 99 + CLIENT_MS);
    assert_eq!(server.clients.len(), 1);
    turn(&mut server, &page, 100 + CLIENT_MS);
    assert!(server.clients.is_empty());
}

#[test]
fn of_too_many_clients_the_oldest_go_and_a_turn_accepts_few() {
    let mut server = server(true);
    let page = Page::from(*b"{}");
    let streams: Vec<UnixStream> = (0..MAX_CLIENTS + MAX_ACCEPTED_TURN).map(|_| client(&server)).collect();
    turn(&mut server, &page, 1);
    assert_eq!(server.clients.len(), MAX_ACCEPTED_TURN);
    while server.next_id < streams.len() as u64 {
        turn(&mut server, &page, 2);
    }
    assert_eq!(server.clients.len(), MAX_CLIENTS);
    assert_eq!(server.clients[0].id, MAX_ACCEPTED_TURN as u64 + 1);
    let mut oldest = &streams[0];
    assert_eq!(oldest.read(&mut [0; 8]).expect("its end"), 0);
}

#[test]
fn a_request_that_does_not_end_is_not_kept() {
    use std::io::Write;
    let mut server = server(true);
    let page = Page::from(*b"{}");
    let mut endless = client(&server);
    endless.write_all(&[b'x'; REQUEST_BYTES + 1]).expect("written");
    turn(&mut server, &page, 1);
    assert!(server.clients.is_empty());
}

#[test]
fn events_reach_each_stream_until_its_client_has_gone_and_slow_ones_miss_some() {
    use std::io::Write;
    let mut server = server(true);
    let streams = |server: &mut StatsServer, count: usize| -> Vec<UnixStream> {
        let clients: Vec<UnixStream> = (0..count).map(|_| client(server)).collect();
        for mut stream in &clients {
            stream.write_all(b"GET /-/events HTTP/1.1\r\n\r\n").expect("written");
        }
        let last = server.next_id + count as u64;
        while server.next_id < last {
            let sources: Vec<Source<'_, ServerToken>> = server.sources(true).collect();
            for token in polling::wait(&sources, 10).expect("waited") {
                server.take_news(token, &mut |_| Answer::events(Page::from(*b"data: 0\n\n")), 1);
            }
        }
        clients
    };
    let clients = streams(&mut server, MAX_STREAMS);
    let refused = streams(&mut server, 1);
    assert!(server.has_streams() && server.streams() == MAX_STREAMS);
    let told = |mut stream: &UnixStream| {
        let mut buffer = vec![0; 4096];
        let count = stream.read(&mut buffer).expect("read");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    assert!(told(&refused[0]).starts_with("HTTP/1.1 503"));
    drop(refused);
    turn(&mut server, &Page::from(*b""), 1);
    assert_eq!(server.wake_ms(), None);
    server.publish(&Page::from(*b"data: 1\n\n"), 2);
    assert!(clients.iter().all(|stream| told(stream).ends_with("data: 0\n\ndata: 1\n\n")));
    // None reads from here on: what the sockets do not take is sent later, and the next event is left out.
    let long = Page::from(vec![b'x'; LONG_BYTES]);
    server.publish(&long, 3);
    server.publish(&long, 4);
    assert_eq!(server.wake_ms(), Some(3 + CLIENT_MS));
    server.look_after_time(3 + CLIENT_MS);
    assert!(!server.has_streams());
}

#[test]
fn a_client_whose_stream_is_idle_and_who_leaves_is_forgotten() {
    use std::io::Write;
    let mut server = server(true);
    let mut stream = client(&server);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    server.take_news(ServerToken::Listener, &mut |_| Answer::events(Page::from(*b"data: 0\n\n")), 1);
    assert!(server.has_streams());
    drop(stream);
    turn(&mut server, &Page::from(*b""), 2);
    assert!(!server.has_streams());
}
