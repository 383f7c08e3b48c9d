//! Rules that limit rates, whose counts are in a test's own memory.

use std::cell::RefCell;

use bolide_contract::rate::{Counted, Rate};

use crate::testing::{self, compile};
use crate::{Caches, MetricChange, Overrides, Services, Verdict};

/// Answers by the key, and notes what it was asked.
#[derive(Default)]
struct Counter(RefCell<Vec<(usize, String, Rate)>>);

impl Services for Counter {
    fn caches(&self) -> &dyn Caches {
        unimplemented!("no rule of these tests has a cache")
    }

    fn metric(&self, _: &[u8]) -> i64 {
        0
    }

    fn change_metric(&self, _: &[u8], _: MetricChange) -> bool {
        false
    }

    fn raise_signal(&self, _: u8) {}

    fn raise_alarm(&self, _: &[u8], _: &[u8]) {}

    fn count(&self, limit: usize, key: &[u8], rate: Rate) -> Counted {
        self.0.borrow_mut().push((limit, String::from_utf8_lossy(key).into_owned(), rate));
        match key {
            b"10.0.0.1" => Counted::Refused { retry_us: 1_500_000, full_us: 9_000_001 },
            b"10.0.0.2" => Counted::Uncounted,
            _ => Counted::Passes { remaining: 4, full_us: 1_000_000 },
        }
    }
}

fn walk(address: &str, rules: &[(&str, &str)]) -> (Verdict, Overrides, Vec<(usize, String, Rate)>) {
    let counter = Counter::default();
    let (verdict, overrides) = testing::walk(&counter, ("REMOTE_ADDR", address), rules);
    (verdict, overrides, counter.0.into_inner())
}

#[test]
fn a_request_beyond_its_rate_is_answered_with_429_and_when_to_come_back() {
    let rules = [("rate-limit", "60/m"), ("route-run", "return:204")];
    let (verdict, overrides, asked) = walk("10.0.0.1", &rules);
    let Verdict::Answer(answer) = verdict else { panic!("{verdict:?}") };
    assert_eq!((answer.status, answer.is_in_own_words), (429, true));
    assert!(answer.fields.contains(&("Retry-After".into(), b"2".to_vec())), "{answer:?}");
    assert_eq!(asked, [(0, "10.0.0.1".to_owned(), Rate { interval_us: 1_000_000, burst: 60 })]);
    assert_eq!(overrides.added, [b""; 0]);
    for address in ["10.0.0.2", "10.0.0.3"] {
        let (verdict, ..) = walk(address, &rules);
        assert!(matches!(&verdict, Verdict::Answer(answer) if answer.status == 204), "{address}: {verdict:?}");
    }
    let (verdict, _, asked) = walk("", &rules);
    assert!(matches!(&verdict, Verdict::Answer(answer) if answer.status == 204), "{verdict:?}");
    assert_eq!(asked, [], "a request without the key is not counted");
}

#[test]
fn the_fields_of_the_draft_say_what_is_left() {
    let rules = [("route-run", "ratelimit:rate=10/s,burst=5,name=api,headers=on")];
    let fields = |address: &str| {
        walk(address, &rules).1.added.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(fields("10.0.0.3"), ["RateLimit-Policy: \"api\";q=5;w=1", "RateLimit: \"api\";r=4;t=1"]);
    assert_eq!(fields("10.0.0.1"), ["RateLimit-Policy: \"api\";q=5;w=1", "RateLimit: \"api\";r=0;t=10"]);
    assert_eq!(fields("10.0.0.2"), [""; 0]);
}

#[test]
fn a_key_has_the_network_of_an_address_and_rules_are_counted_where_they_stand() {
    let key = |address: &str, rule: &str| {
        let (_, _, asked) = walk(address, &[("rate-limit", "name=first,rate=1/h"), ("route-run", rule)]);
        asked.into_iter().map(|(limit, key, _)| (limit, key)).collect::<Vec<_>>()
    };
    let [first, again] =
        ["2001:db8:1:2::1", "2001:db8:1:2:a:b:c:d"].map(|address| key(address, "ratelimit:rate=1/s,key=a-${REMOTE_ADDR}"));
    assert_eq!(first, again);
    assert_eq!(first.iter().map(|(limit, _)| *limit).collect::<Vec<_>>(), [0, 1]);
    assert_ne!(first, key("2001:db8:1:3::1", "ratelimit:rate=1/s,key=a-${REMOTE_ADDR}"));
    let of_four = key("::ffff:192.0.2.7", "ratelimit:rate=1/s,key=a-${REMOTE_ADDR}");
    assert_eq!(of_four, [(0, "192.0.2.7".to_owned()), (1, "a-192.0.2.7".to_owned())]);
}

#[test]
fn rates_are_requests_and_a_time() {
    for (text, interval_us, burst) in [
        ("10/s", 100_000, 10),
        ("60/m", 1_000_000, 60),
        ("1000/h", 3_600_000, 1000),
        ("1/d", 86_400_000_000, 1),
        ("20/30s", 1_500_000, 20),
        ("3/m", 20_000_000, 3),
        ("7/s", 142_857, 7),
        ("10000/s", 100, 10_000),
        ("rate=60/m,burst=1", 1_000_000, 1),
        ("burst=1000000, rate=10000/s", 100, 1_000_000),
    ] {
        let (_, _, asked) = walk("10.0.0.3", &[("rate-limit", text)]);
        assert_eq!(asked.iter().map(|(_, _, rate)| *rate).collect::<Vec<_>>(), [Rate { interval_us, burst }], "{text}");
    }
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    for (rules, wanted) in [
        (&["60"][..], "`60` is not a rate"),
        (&["60/x"], "`60/x` is not a rate"),
        (&["-1/s"], "`-1/s` is not a rate"),
        (&["60/0s"], "the time of `60/0s` is not between a second and 31 days"),
        (&["60/32d"], "the time of `60/32d` is not between"),
        (&["0/s"], "no request passes at the rate `0/s`"),
        (&["10001/s"], "higher than 10000 requests a second"),
        (&["burst=5"], "`rate-limit = burst=5` has no rate"),
        (&["rate=1/s,burst=0"], "`burst=0` is not a number"),
        (&["rate=1/s,bursts=2"], "there is no argument `bursts`"),
        (&["rate=1/s,rate=2/s"], "`rate` is there twice"),
        (&["rate=1/s,name="], "`name` has no value"),
        (&["rate=1/s,headers=yes"], "`headers=yes` is neither on nor off"),
        (&["rate=1/s,name=a b"], "`name=a b` is not a name"),
        (&["rate=1/s,route=("], "regular expression"),
        (&["rate=1/d,burst=32"], "full again after more than 31 days"),
        (&["name=a,rate=1/s", "name=a,rate=2/s"], "two rate limits with the name `a`; the other one is at uwsgi.ini:1"),
    ] {
        let rules: Vec<(&str, &str)> = rules.iter().map(|text| ("rate-limit", *text)).collect();
        let (routes, mistakes) = compile(&rules);
        assert!(routes.is_none(), "{rules:?}");
        assert!(mistakes.iter().any(|mistake| mistake.is_fatal && mistake.message.contains(wanted)), "{rules:?}: {mistakes:?}");
    }
    let (routes, mistakes) = compile(&[("route-run", "ratelimit:rate=1/s,route=^/a")]);
    assert!(routes.is_none() && mistakes[0].message.contains("no argument `route`"), "{mistakes:?}");
    let (routes, mistakes) = compile(&[("response-route-run", "ratelimit:rate=1/s")]);
    assert!(routes.is_none() && mistakes[0].message.contains("can't be used in a response-route"), "{mistakes:?}");
}

#[test]
fn keys_that_clients_choose_and_keys_that_all_share_are_told() {
    for (key, wanted) in [("${HTTP_X_FORWARDED_FOR}", "any client may send"), ("site", "all clients share")] {
        let (routes, mistakes) = compile(&[("rate-limit", &format!("rate=1/s,key={key}"))]);
        assert!(routes.is_some() && mistakes.len() == 1 && mistakes[0].message.contains(wanted), "{mistakes:?}");
    }
}

#[test]
fn an_expression_may_have_commas() {
    let (routes, mistakes) = compile(&[("rate-limit", "route=^/[a,b]{1,3}$,rate=1/s,key=${qs[a]}")]);
    assert!(routes.is_some(), "{mistakes:?}");
}
