//! The views of a snapshot that is made by hand.

use bolide_contract::sharing::MetricKind;
use bolide_scoreboard::{ApplicationWork, Work};

use super::*;
use crate::reloads::ReloadCause;
use crate::statistics::{
    AdmissionFacts, LogFacts, MessageCounts, Metric, RateLimitFacts, ReforkCounts, RemoteMessageCounts, SocketFacts, SpanCounts,
};

/// Two workers: one that serves a request on its second thread, and one without a process.
pub fn snapshot() -> Snapshot {
    let mut work = Work { requests: 8, sent_bytes: 6595, busy_us: 1288, static_requests: 1, ..Work::default() };
    work.applications[0] = ApplicationWork { requests: 7, exceptions: 1 };
    let request = RequestFacts { began_s: 1_795_354_498, line: "GET /sl%6fw%zz?x=\"1".to_owned() };
    let busy = WorkerFacts {
        number: 1,
        pid: 42,
        is_accepting: true,
        requests_since_spawn: 5,
        harakiri_count: 2,
        resident_bytes: 11_988_992,
        address_space_bytes: 135_028_736,
        last_spawn_s: 1_795_354_496,
        spawn_count: 3,
        proportional_bytes: Some(5_000_000),
        private_bytes: Some(3_000_000),
        average_us: 170,
        signals: 6,
        signal_queue: 1,
        cores: vec![CoreFacts { work, ..CoreFacts::default() }, CoreFacts { in_flight: Some(request), ..CoreFacts::default() }],
        ..WorkerFacts::default()
    };
    Snapshot {
        spans: Some(SpanCounts { exported: 7, failed: 1, dropped: 2 }),
        reforks: Some(ReforkCounts { done: 2, failed: 1 }),
        admission: Some(AdmissionFacts { rejected: 3, waiting: 2, limit: Some(40), service_us: Some(20_000) }),
        messages: Some(MessageCounts {
            published: 10,
            delivered: 39,
            missed: 1,
            listeners: 4,
            remote: Some(RemoteMessageCounts::default()),
        }),
        version: "1.2.3".to_owned(),
        pid: 40,
        uid: 1000,
        gid: 1001,
        cwd: "/srv/\"shop\"".to_owned(),
        queue_errors: 4,
        signal_queue: 3,
        sockets: vec![
            SocketFacts { name: "127.0.0.1:8000".to_owned(), protocol: "http".to_owned(), queue: 2, queue_most: 100 },
            SocketFacts { name: "/run/a.sock".to_owned(), protocol: "uwsgi".to_owned(), queue: 7, queue_most: 9 },
        ],
        daemons: vec![DaemonFacts { command: "redis-server \"x\"".to_owned(), pid: 50, respawns: 2 }],
        applications: vec![ApplicationFacts::default()],
        worker_ends: vec![("harakiri", 2)],
        workers: vec![busy, WorkerFacts { number: 2, ..WorkerFacts::default() }],
        helpers: Vec::new(),
        refused_messages: 0,
        logs: vec![LogFacts { name: "log".to_owned(), lost: 2, absence: None, absent_ms: None }],
        locks: vec![("user 0".to_owned(), 42)],
        rate_limits: vec![RateLimitFacts { name: "login".to_owned(), refused: 2, ..RateLimitFacts::default() }],
        caches: vec![CacheFacts { name: "pages".to_owned(), items: 3, hits: 2, misses: 1, ..CacheFacts::default() }],
        metrics: vec![Metric { name: "a".to_owned(), oid: "3.1".to_owned(), kind: MetricKind::Gauge, value: -7 }],
        jobs: vec![
            JobFacts {
                schedule: Schedule { minute: -5, ..Schedule::ALWAYS },
                command: "a".to_owned(),
                is_unique: true,
                running: None,
            },
            JobFacts {
                schedule: Schedule { minute: 1, hour: 2, day: 3, month: 4, weekday: 5 },
                command: "b".to_owned(),
                is_unique: false,
                running: Some((51, 1_795_354_499)),
            },
        ],
        reloads: reloads(),
        is_leaving: false,
    }
}

/// Two that are done, and one that has failed after them.
fn reloads() -> ReloadFacts {
    let mut reloads = ReloadFacts::default();
    for (at_s, failure) in [(1, None), (2, None), (1_795_354_499, Some("no \"database\"".to_owned()))] {
        reloads.note(at_s, ReloadCause::Signal, failure);
    }
    reloads
}

#[test]
fn the_json_has_uwsgis_keys_and_the_sums_of_the_threads() {
    let expected = concat!(
        r#"{"version":"1.2.3","listen_queue":7,"listen_queue_errors":4,"signal_queue":3,"load":7,"pid":40,"#,
        r#""uid":1000,"gid":1001,"#,
        r#""cwd":"/srv/\"shop\"","daemons":[{"cmd":"redis-server \"x\"","pid":50,"respawns":2}],"locks":[{"user 0":42}],"#,
        r#""caches":[{"name":"pages","hash":"seeded","hashsize":0,"keysize":0,"max_items":0,"blocks":0,"blocksize":0,"#,
        r#""items":3,"hits":2,"miss":1,"full":0,"refused":0,"last_modified_at":0}],"#,
        r#""metrics":{"a":{"type":1,"oid":"3.1","value":-7}},"sockets":["#,
        r#"{"name":"127.0.0.1:8000","proto":"http","queue":2,"max_queue":100,"shared":0,"can_offload":0},"#,
        r#"{"name":"/run/a.sock","proto":"uwsgi","queue":7,"max_queue":9,"shared":0,"can_offload":0}],"#,
        r#""workers":[{"id":1,"pid":42,"accepting":1,"requests":8,"delta_requests":5,"exceptions":1,"harakiri_count":2,"#,
        r#""signals":6,"signal_queue":1,"status":"busy","rss":11988992,"vsz":135028736,"running_time":1288,"#,
        r#""last_spawn":1795354496,"respawn_count":3,"tx":6595,"avg_rt":170,"#,
        r#""apps":[{"id":0,"modifier1":0,"mountpoint":"","startup_time":0,"requests":7,"exceptions":1,"chdir":""}],"#,
        r#""cores":[{"id":0,"requests":8,"static_requests":1,"routed_requests":0,"offloaded_requests":0,"write_errors":0,"#,
        r#""read_errors":0,"in_request":0,"vars":[],"req_info":{}},"#,
        r#"{"id":1,"requests":0,"static_requests":0,"routed_requests":0,"offloaded_requests":0,"write_errors":0,"#,
        r#""read_errors":0,"in_request":1,"vars":["REQUEST_METHOD=GET","PATH_INFO=/slow%zz","REQUEST_URI=/sl%6fw%zz?x=\"1","#,
        r#""QUERY_STRING=x=\"1"],"req_info":{"request_start":1795354498}}]},"#,
        r#"{"id":2,"pid":0,"accepting":0,"requests":0,"delta_requests":0,"exceptions":0,"harakiri_count":0,"#,
        r#""signals":0,"signal_queue":0,"status":"cheap","rss":0,"vsz":0,"running_time":0,"#,
        r#""last_spawn":0,"respawn_count":0,"tx":0,"avg_rt":0,"#,
        r#""apps":[{"id":0,"modifier1":0,"mountpoint":"","startup_time":0,"requests":0,"exceptions":0,"chdir":""}],"#,
        r#""cores":[]}],"#,
        r#""crons":[{"minute":-5,"hour":-1,"day":-1,"month":-1,"week":-1,"command":"a","unique":1,"legion":"","#,
        r#""pid":-1,"started_at":0},"#,
        r#"{"minute":1,"hour":2,"day":3,"month":4,"week":5,"command":"b","unique":0,"legion":"","#,
        r#""pid":51,"started_at":1795354499}],"#,
        r#""reloads":2,"failed_reloads":1,"last_reload":{"at":1795354499,"outcome":"failed","why":"no \"database\""}}"#,
    );
    assert_eq!(as_json(&snapshot(), Form { is_minified: true, omits_cores: false, omits_metrics: false }), expected);
}

#[test]
fn daemons_and_jobs_are_keys_only_where_there_are_some_as_in_uwsgi() {
    let text = as_json(&Snapshot { daemons: Vec::new(), jobs: Vec::new(), ..snapshot() }, Form::default());
    assert!(!text.contains("daemons") && !text.contains("crons"));
}

#[test]
fn a_mule_has_an_entry_where_there_are_some() {
    let work = RequestFacts { began_s: 1_795_354_498, line: "a message of 5 bytes".to_owned() };
    let mule = HelperFacts { kind: "mule", number: 1, pid: 60, done: 7, in_flight: Some(work), ..HelperFacts::default() };
    let helpers = vec![mule, HelperFacts { kind: "spooler", number: 1, ..HelperFacts::default() }];
    let expected = concat!(
        r#""refused_messages":3,"mules":[{"id":1,"pid":60,"status":"busy","messages":7,"rss":0,"vsz":0,"last_spawn":0,"#,
        r#""working_since":1795354498,"working_on":"a message of 5 bytes"}],"#,
    );
    let form = Form { is_minified: true, omits_cores: true, omits_metrics: false };
    let text = as_json(&Snapshot { helpers, refused_messages: 3, ..snapshot() }, form);
    assert!(text.contains(expected), "{text}");
    assert!(!as_json(&snapshot(), Form::default()).contains("mules"));
}

#[test]
fn the_last_application_that_is_counted_says_whose_numbers_it_has_too() {
    for (count, expected) in [(8, "\"/8\""), (11, "\"/8 and 3 more\"")] {
        let applications = (1..=count).map(|number| ApplicationFacts { mount: format!("/{number}") }).collect();
        let text = as_json(
            &Snapshot { applications, ..snapshot() },
            Form { is_minified: true, omits_cores: true, omits_metrics: false },
        );
        assert!(text.contains("\"mountpoint\":\"/7\"") && !text.contains("\"/9\""));
        assert!(text.contains(&format!("\"mountpoint\":{expected}")), "{text}");
    }
}

#[test]
fn reloads_are_counted_by_their_outcome_and_the_last_is_told() {
    let mut reloads = ReloadFacts::default();
    reloads.note(5, ReloadCause::Signal, Some("no database".to_owned()));
    reloads.note(7, ReloadCause::Signal, None);
    let text = as_json(
        &Snapshot { reloads, ..Snapshot::default() },
        Form { is_minified: true, omits_cores: true, omits_metrics: false },
    );
    assert!(text.ends_with(r#""reloads":1,"failed_reloads":1,"last_reload":{"at":7,"outcome":"done","why":""}}"#), "{text}");
    let text = as_json(&Snapshot::default(), Form { is_minified: true, omits_cores: true, omits_metrics: false });
    assert!(text.ends_with(r#""reloads":0,"failed_reloads":0,"last_reload":{}}"#), "{text}");
}

#[test]
fn cores_can_be_left_out_and_their_work_stays_in_the_sums() {
    let text = as_json(&snapshot(), Form { is_minified: true, omits_cores: true, omits_metrics: false });
    assert!(!text.contains("\"cores\"") && text.contains("\"requests\":8,\"delta_requests\":5"));
}

#[test]
fn a_worker_is_busy_with_requests_that_an_asynchronous_application_has_in_its_hands() {
    let mut worker = WorkerFacts { pid: 1, cores: vec![CoreFacts::default()], ..WorkerFacts::default() };
    assert_eq!(worker.status(), "idle");
    worker.is_paused = true;
    assert_eq!(worker.status(), "pause");
    worker.cores[0].ongoing = 17;
    assert_eq!((worker.status(), worker.cores[0].in_request()), ("busy", 17));
}

#[test]
fn a_line_that_is_no_request_is_told_as_it_is() {
    let request = RequestFacts { began_s: 1, line: "the event loop, which is not turning".to_owned() };
    assert_eq!(variables_of(&request), ["REQUEST_URI=the event loop, which is not turning"]);
}
