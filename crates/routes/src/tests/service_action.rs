//! Walks of rules that use signals, alarms and metrics, which are lists in a test's own memory.

use std::cell::RefCell;

use bolide_contract::rate::{Counted, Rate};

use crate::testing::{self, compile};
use crate::{Caches, MetricChange, Operator, Overrides, Services, Verdict};

#[derive(Default)]
struct Noted(RefCell<Vec<String>>);

impl Noted {
    fn note(&self, line: String) {
        self.0.borrow_mut().push(line);
    }
}

impl Services for Noted {
    fn caches(&self) -> &dyn Caches {
        unimplemented!("no rule of these tests has a cache")
    }

    fn metric(&self, name: &[u8]) -> i64 {
        if name == b"open" { 12 } else { 0 }
    }

    fn change_metric(&self, name: &[u8], change: MetricChange) -> bool {
        self.note(format!("{} {change:?}", String::from_utf8_lossy(name)));
        name != b"absent" && change != MetricChange::Calculate(Operator::Divide, 0)
    }

    fn raise_signal(&self, number: u8) {
        self.note(format!("signal {number}"));
    }

    fn raise_alarm(&self, name: &[u8], text: &[u8]) {
        self.note(format!("alarm {}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(text)));
    }

    fn count(&self, _: usize, _: &[u8], _: Rate) -> Counted {
        unimplemented!("no rule of these tests has a limit")
    }
}

fn walk(rules: &[(&str, &str)]) -> (Verdict, Overrides, Vec<String>) {
    let noted = Noted::default();
    let (verdict, overrides) = testing::walk(&noted, ("PATH_INFO", "/orders/5"), rules);
    (verdict, overrides, noted.0.into_inner())
}

#[test]
fn actions_ask_their_services() {
    let (verdict, overrides, noted) = walk(&[
        ("route", r"^/(\w+)/(\d) metricinc:$1,$2"),
        ("route-run", "metricdec:orders"),
        ("route-run", "metricmul:orders,${metric[open]}x"),
        ("route-run", "metricdiv:orders,3"),
        ("route-run", "metricset:orders,-7"),
        ("route-run", "signal: 17"),
        ("route", r"^/(\w+) alarm:team-$1 ${PATH_INFO} is slow"),
        ("route-if", "ishigher:${metric[open]};11 addvar:HIGH=${metric[absent]}"),
    ]);
    assert_eq!(
        noted,
        [
            "orders Calculate(Plus, 5)",
            "orders Calculate(Minus, 1)",
            "orders Calculate(Times, 12)",
            "orders Calculate(Divide, 3)",
            "orders Set(-7)",
            "signal 17",
            "alarm team-orders: /orders/5 is slow",
        ]
    );
    assert_eq!((verdict, overrides.value(b"HIGH")), (Verdict::Serve, Some(&b"0"[..])));
}

#[test]
fn a_metric_that_can_not_be_changed_ends_the_request() {
    for (text, message) in [
        ("metricinc:absent", "there is no metric `absent` that a rule may change"),
        ("metricdiv:orders,0", "the metric `orders` can't be divided by 0"),
    ] {
        let (verdict, overrides, noted) = walk(&[("route-run", text), ("route-run", "signal:1")]);
        assert_eq!((verdict, noted.len()), (Verdict::Close, 1));
        assert_eq!(overrides.lines, [format!("bolide: uwsgi.ini:1: {message}").into_bytes()]);
    }
}

#[test]
fn a_wrong_argument_is_named() {
    for (text, message) in [
        ("signal:", "`signal:` is not a signal"),
        ("signal:256", "`signal:256` is not a signal"),
        ("alarm:team", "`alarm:team` has no message"),
    ] {
        let (_, mistakes) = compile(&[("route-run", text)]);
        assert!(mistakes.iter().any(|mistake| mistake.message.contains(message) && mistake.is_fatal), "{mistakes:?}");
    }
}

#[test]
fn the_alarms_and_metrics_that_rules_name_are_known() {
    let rules = [
        ("route-run", "signal:1"),
        ("route-run", "metricinc:orders"),
        ("route", "^/(.*) metricinc:$1"),
        ("response-route-run", "alarm:team ${PATH_INFO}"),
    ];
    let needs = compile(&rules).0.unwrap().needs;
    assert_eq!((needs.metrics, needs.alarms), (vec![(1, "orders".to_owned())], vec![(3, "team".to_owned())]));
}
