//! Messages of channels between publishers and subscribers of several instances, and what a subscriber is told when the server
//! goes away or says what it must not.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use bolide_distributed::{Engine, PublishedMessage, Publisher, Received, Subscriber, WantedChannels};

use crate::support::{Proxy, Server, TIMEOUT, answering, engine, lines_of, wait_until};

const SLOW: &str = "connect-ms=5000&answer-ms=5000";

/// A subscriber in a thread of its own.
pub struct Listening {
    pub wanted: Arc<WantedChannels>,
    pub heard: Receiver<Received>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    pub fn on(engine: &'static Engine, channels: &[&str]) -> Listening {
        let wanted = Arc::new(WantedChannels::new().expect("descriptors"));
        channels.iter().for_each(|channel| wanted.add(channel));
        let ((sender, heard), seen) = (channel(), wanted.clone());
        let run = move || {
            Subscriber::new(engine).run(&seen, |heard| drop(sender.send(heard)));
        };
        Listening { wanted, heard, thread: Some(std::thread::spawn(run)) }
    }

    pub fn next(&self) -> Received {
        self.heard.recv_timeout(TIMEOUT).expect("in time")
    }

    fn message(&self) -> PublishedMessage {
        match self.next() {
            Received::Message(message) => message,
            heard => panic!("{heard:?}"),
        }
    }

    fn texts(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| String::from_utf8(self.message().data().to_vec()).expect("text")).collect()
    }

    /// Waits for this, and forgets what comes before.
    fn until(&self, is_it: impl Fn(&Received) -> bool) {
        while !is_it(&self.next()) {}
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.wanted.end();
        self.thread.take().expect("one end").join().expect("no panic");
    }
}

fn text(channel: &str, text: &str) -> PublishedMessage {
    PublishedMessage::new(channel, text.as_bytes(), true, 7)
}

fn listeners(server: &Server, count: u32, channel: &str) {
    let found = || server.ask(&format!("PUBLISH bolide:publish:0:{channel} probe"));
    wait_until("the listeners", || found() == format!(":{count}"));
}

#[test]
fn messages_reach_every_subscriber_of_their_channel_in_their_order() {
    let server = Server::start();
    let (first, second) =
        (Listening::on(engine(&server.url()), &["news", "weather"]), Listening::on(engine(&server.url()), &["news"]));
    listeners(&server, 2, "news");
    let publisher = Publisher::new(engine(&server.url()));
    let many: Vec<PublishedMessage> = (0..500).map(|number| text("news", &number.to_string())).collect();
    assert_eq!(publisher.send(&many), Ok(500));
    let large = PublishedMessage::new("weather", &vec![0xff; 16 << 20], false, 8);
    assert_eq!(publisher.send(&[large, text("nobody", "x")]), Ok(2));
    let numbers: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    for listening in [&first, &second] {
        listening.until(|heard| matches!(heard, Received::Message(message) if message.data() == b"0"));
        assert_eq!(listening.texts(499), numbers[1..]);
    }
    let message = first.message();
    assert_eq!((message.channel.as_str(), message.is_text(), message.origin()), ("weather", false, 8));
    assert!(message.data().len() == 16 << 20 && message.data().iter().all(|byte| *byte == 0xff));
}

#[test]
fn channels_come_and_go_while_a_subscriber_listens() {
    let server = Server::start();
    let listening = Listening::on(engine(&server.url()), &["one"]);
    let publisher = Publisher::new(engine(&server.url()));
    listeners(&server, 1, "one");
    for channel in ["two", "three"] {
        listening.wanted.add(channel);
        listeners(&server, 1, channel);
    }
    for channel in ["one", "two"] {
        listening.wanted.remove(channel);
        listeners(&server, 0, channel);
    }
    assert_eq!(publisher.send(&[text("one", "a"), text("two", "b"), text("three", "c")]), Ok(3));
    listening.until(|heard| matches!(heard, Received::Message(message) if message.channel == "three" && message.data() == b"c"));
    // The last one goes and comes back.
    listening.wanted.remove("three");
    listeners(&server, 0, "three");
    listening.wanted.add("three");
    listeners(&server, 1, "three");
}

#[test]
fn databases_and_prefixes_separate_channels() {
    let server = Server::start();
    let url = |more: &str| format!("{}?{SLOW}{more}", server.url());
    let listening = Listening::on(engine(&url("")), &["news"]);
    listeners(&server, 1, "news");
    for other in [url("&db=1"), url("&prefix=shop")] {
        assert_eq!(Publisher::new(engine(&other)).send(&[text("news", "not heard")]), Ok(1));
    }
    assert_eq!(Publisher::new(engine(&url(""))).send(&[text("news", "heard")]), Ok(1));
    listening.until(|heard| matches!(heard, Received::Message(_)));
    assert!(listening.heard.try_recv().is_err());
}

#[test]
fn a_killed_server_is_told_and_its_return_too() {
    let mut server = Server::start();
    let listening = Listening::on(engine(&server.url()), &["news"]);
    let publisher = Publisher::new(engine(&server.url()));
    listeners(&server, 1, "news");
    server.kill();
    listening.until(|heard| matches!(heard, Received::Interrupted(_)));
    assert!(publisher.send(&[text("news", "lost")]).expect_err("no server").is_away());
    server.restart_after_kill();
    listening.until(|heard| matches!(heard, Received::Resumed));
    wait_until("the publisher's return", || publisher.send(&[text("news", "again")]) == Ok(1));
    assert_eq!(listening.texts(1), ["again"]);
}

#[test]
fn a_subscriber_that_begins_while_the_server_is_away_is_told_when_it_listens() {
    let mut server = Server::start();
    server.kill();
    let engine = engine(&server.url());
    let listening = Listening::on(engine, &["news"]);
    wait_until("a try", || !lines_of(engine).is_empty());
    server.restart_after_kill();
    assert!(matches!(listening.next(), Received::Resumed));
}

#[test]
fn a_connection_that_the_server_ends_is_made_again() {
    let server = Server::start();
    let listening = Listening::on(engine(&server.url()), &["news"]);
    for _ in 0..2 {
        listeners(&server, 1, "news");
        assert!(server.ask("CLIENT KILL TYPE pubsub").starts_with(':'));
        listening.until(|heard| matches!(heard, Received::Interrupted(_)));
        listening.until(|heard| matches!(heard, Received::Resumed));
    }
}

#[test]
fn a_server_that_does_not_answer_a_question_is_left() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let listening = Listening::on(engine(&format!("{}?connect-ms=5000&answer-ms=100", proxy.url())), &["news"]);
    listeners(&server, 1, "news");
    proxy.cut();
    // A new channel is a question. Without one it comes after the pause.
    listening.wanted.add("weather");
    listening.until(|heard| matches!(heard, Received::Interrupted(reason) if reason.contains("no answer to PING in time")));
    proxy.heal();
    listening.until(|heard| matches!(heard, Received::Resumed));
    listeners(&server, 1, "weather");
}

#[test]
fn a_server_that_forbids_channels_is_told_and_tried_again() {
    let server = Server::start();
    assert_eq!(server.ask("ACL SETUSER shop on >word ~* +@all resetchannels"), "+OK");
    let engine = engine(&format!("{}?{SLOW}&user=shop&pass=word", server.url()));
    let listening = Listening::on(engine, &["news"]);
    assert!(matches!(listening.next(), Received::Interrupted(reason) if reason.contains("NOPERM")));
    assert_eq!(Publisher::new(engine).send(&[text("news", "x")]), Ok(0));
    assert!(lines_of(engine).iter().any(|line| line.contains("refused a command") && line.contains("NOPERM")));
    assert_eq!(server.ask("ACL SETUSER shop allchannels"), "+OK");
    listening.until(|heard| matches!(heard, Received::Resumed));
    assert_eq!(Publisher::new(engine).send(&[text("news", "x")]), Ok(1));
}

#[test]
fn what_other_programs_publish_is_no_message() {
    let server = Server::start();
    let listening = Listening::on(engine(&server.url()), &["news"]);
    listeners(&server, 1, "news");
    assert!(matches!(listening.next(), Received::Foreign));
}

#[test]
fn messages_of_a_hostile_server_end_the_connection_and_nothing_else() {
    let message = |channel: &str, data: &str| {
        format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{data}\r\n", channel.len(), data.len())
    };
    let nested = "*1\r\n".repeat(100_000);
    let long = "x".repeat(300);
    let pong = "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    for (answer, is_heard) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(), false),
        ("*9223372036854775807\r\n:1\r\n:1\r\n".repeat(6), false),
        ("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$99999999999\r\n".to_owned(), false),
        ("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n:1\r\n".to_owned(), false),
        ("*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\nx\r\n".to_owned(), false),
        ("*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$4\r\nnews\r\n$1\r\nx\r\n".to_owned(), false),
        ("*0\r\n".to_owned(), false),
        (":1\r\n".to_owned(), false),
        ("$-1\r\n".to_owned(), false),
        (">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n".to_owned(), false),
        ("-ERR \u{1b}[31m\r\n".to_owned(), false),
        (nested, false),
        // More answers than questions.
        (pong.repeat(3), false),
        (message("news", "x"), true),
        (message("bolide:publish:0:", "\x01\0\0\0\0\0\0\0\0\0"), true),
        (message(&format!("bolide:publish:0:{long}"), "\x01\0\0\0\0\0\0\0\0\0"), true),
        (message("bolide:publish:0:news", "\x01\x01\0\0\0"), true),
    ] {
        let url = format!("{}?connect-ms=5000&answer-ms=5000", answering(answer.clone().into_bytes()));
        let listening = Listening::on(engine(&url), &["news"]);
        match listening.next() {
            Received::Foreign => assert!(is_heard, "{answer:.100}"),
            Received::Interrupted(reason) => {
                assert!(!is_heard, "{answer:.100}: {reason}");
                assert!(!reason.contains('\u{1b}'), "{reason:?}");
            }
            heard => panic!("{answer:.100}: {heard:?}"),
        }
    }
}
