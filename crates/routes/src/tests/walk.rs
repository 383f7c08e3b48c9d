//! Walks of small tables: their changes and their verdicts.

use std::borrow::Cow;

use std::path::Path;

use bolide_contract::answering::RouteRule;

use super::{Overrides, Verdict};
use crate::{Routes, ServerValue, Values};

struct Fixed(&'static [(&'static str, &'static str)]);

impl Values for Fixed {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.0.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, value)| value.as_bytes().into())
    }

    fn server(&self, what: ServerValue) -> u64 {
        if what == ServerValue::Status { 404 } else { 7 }
    }
}

const REQUEST: Fixed = Fixed(&[
    ("PATH_INFO", "/shop/café 1"),
    ("REQUEST_URI", "/shop/caf%C3%A9%201?a=1&b=${HTTP_COOKIE}"),
    ("QUERY_STRING", "a=1&b=${HTTP_COOKIE}"),
    ("REQUEST_METHOD", "GET"),
    ("HTTP_HOST", "shop.example"),
    ("HTTP_COOKIE", "id=7; theme=dark"),
    ("REMOTE_ADDR", "10.1.2.3"),
    ("HTTP_AUTHORIZATION", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
]);

fn walk(rules: &[(&str, &str)]) -> (Verdict, Overrides) {
    let origin = || "uwsgi.ini:1".to_owned();
    let rules: Vec<RouteRule> = rules
        .iter()
        .map(|(option, text)| RouteRule { option: (*option).to_owned(), text: (*text).to_owned(), origin: origin() })
        .collect();
    let (routes, mistakes) = Routes::compile(&rules, Path::new(""));
    let routes = routes.unwrap_or_else(|| panic!("{mistakes:?}"));
    let table = if routes.responses.is_empty() { &routes.requests } else { &routes.responses };
    let mut overrides = Overrides::default();
    let verdict = table.walk(&REQUEST, &mut overrides);
    (verdict, overrides)
}

/// Returns the variable `X` after a walk.
fn x(rules: &[(&str, &str)]) -> Option<String> {
    let (verdict, overrides) = walk(rules);
    assert_eq!(verdict, Verdict::Serve);
    overrides.value(b"X").map(|value| String::from_utf8_lossy(value).into_owned())
}

fn location(rules: &[(&str, &str)]) -> (u16, String) {
    let (Verdict::Answer(answer), _) = walk(rules) else { panic!("no answer") };
    let value = answer.fields.iter().find(|(name, _)| *name == "Location").map(|(_, value)| value.clone());
    (answer.status, String::from_utf8_lossy(&value.unwrap_or_default()).into_owned())
}

#[test]
fn conditions_hold_or_do_not() {
    for (condition, holds) in [
        ("equal:${REQUEST_METHOD};GET", true),
        ("==:${REQUEST_METHOD};get", false),
        ("empty:${HTTP_X}", true),
        ("empty:${HTTP_HOST}", false),
        ("startswith:${HTTP_HOST};shop.", true),
        ("endswith:${HTTP_HOST};.example", true),
        ("endswith:e;.example", false),
        ("contains:${HTTP_COOKIE};theme", true),
        ("regexp:${HTTP_HOST};^shop\\.", true),
        ("ishigher:10;9", true),
        ("islower:10;9", false),
        ("ishigherequal:10;10", true),
        ("<=:x;0", true),
        ("exists:/", true),
        ("isdir:/", true),
        ("isfile:/", false),
        ("exists:/no/${PATH_INFO}", false),
        ("ipv4in:${REMOTE_ADDR};10.0.0.0/8", true),
        ("ipv4in:${REMOTE_ADDR};10.1.2.4", false),
        ("ipv4in:${HTTP_HOST};0.0.0.0/0", false),
        ("ipv6in:fe80::1;fe80::/10", true),
        ("ipv6in:${REMOTE_ADDR};::/0", false),
    ] {
        for (option, expected) in [("route-if", holds), ("route-if-not", !holds)] {
            let rule = format!("{condition} addvar:X=1");
            assert_eq!(x(&[(option, &rule)]).is_some(), expected, "{option} = {condition}");
        }
    }
}

#[test]
fn texts_are_filled_in_once() {
    // A client's data is never parsed as a template, whatever it looks like.
    assert_eq!(x(&[("route-qs", "b=(.*) addvar:X=$1")]).as_deref(), Some("${HTTP_COOKIE}"));
    assert_eq!(x(&[("route-run", "addvar:X=${QUERY_STRING}")]).as_deref(), Some("a=1&b=${HTTP_COOKIE}"));
    for (text, filled) in [
        ("$0|$1", "/shop/café|café"),
        ("$$1", "$$1"),
        ("$${HTTP_HOST}", "$${HTTP_HOST}"),
        ("100$", "100$"),
        ("${", "${"),
        ("${HTTP_HOST", "${HTTP_HOST"),
        ("${cookie[theme]}-${qs[a]}-${cookie[none]}", "dark-1-"),
        ("${base64[HTTP_HOST]} ${hex[REQUEST_METHOD]} ${uwsgi[wid]}", "c2hvcC5leGFtcGxl 474554 7"),
    ] {
        let rule = format!("^/shop/(\\S+) addvar:X={text}");
        assert_eq!(x(&[("route", &rule)]).as_deref(), Some(filled), "{text}");
    }
    assert_eq!(x(&[("route-if", "equal:$1;$1 addvar:X=yes")]).as_deref(), Some("yes"));
}

#[test]
fn rules_see_changes_of_earlier_rules() {
    let changed =
        [("route-run", "setpathinfo:/new"), ("route", "^/new$ addvar:X=${PATH_INFO}"), ("route", "^/shop addvar:X=old")];
    assert_eq!(x(&changed).as_deref(), Some("/new"));
    assert_eq!(x(&[("route-run", "addvar:X=5"), ("route-run", "*:X,3"), ("route-run", "+:X")]).as_deref(), Some("16"));
    assert_eq!(x(&[("route-run", "addvar:X=7"), ("route-run", "/:X,0")]).as_deref(), Some("0"));
}

#[test]
fn expressions_in_a_set_see_changes_of_earlier_rules() {
    for (changing, variable, before, after) in [
        ("setpathinfo:/b", "route", "^/shop", "^/b$"),
        ("rewrite:/b", "route", "^/shop", "^/b$"),
        ("seturi:/b", "route-uri", "^/shop", "^/b$"),
        ("addvar:HTTP_HOST=b", "route-host", "^shop", "^b$"),
        ("addvar:QUERY_STRING=b", "route-qs", "^a=1", "^b$"),
        ("setremoteaddr:10.9.9.9", "route-remote-addr", "^10\\.1", "^10\\.9"),
        ("setuser:b", "route-remote-user", "^$", "^b$"),
        ("addvar:HTTP_USER_AGENT=b", "route-user-agent", "^$", "^b$"),
        ("addvar:HTTP_REFERER=b", "route-referer", "^$", "^b$"),
    ] {
        let rule = |pattern: &str, value: &str| format!("{pattern} addvar:X=${{X}}{value}");
        let (first, second) = (rule(before, "1"), rule(after, "2"));
        let rules = [(variable, first.as_str()), ("route-run", changing), (variable, &first), (variable, &second)];
        assert_eq!(x(&rules).as_deref(), Some("12"), "{variable}");
    }
}

#[test]
fn expressions_match_the_same_one_by_one_and_as_a_set() {
    let expressions = ["^/shop", "caf", "^/SHOP", "(?i)^/SHOP", "\\s1$", "^$", "[^a]", "(x)?", "\\xc3\\xa9", "^/shop/(.)"];
    let rules: Vec<String> =
        expressions.iter().enumerate().map(|(number, text)| format!("{text} addvar:X=${{X}}{number}")).collect();
    let together: Vec<(&str, &str)> = rules.iter().map(|rule| ("route", rule.as_str())).collect();
    let one_by_one: String = together.iter().filter_map(|rule| x(&[*rule])).collect();
    assert_eq!(x(&together), Some(one_by_one.clone()));
    assert!(one_by_one.len() > 3 && one_by_one.len() < expressions.len());
}

#[test]
fn names_can_be_put_together() {
    for (text, filled) in [
        ("${HTTP_$1}", "shop.example"),
        ("${HTTP_${PART}}", "shop.example"),
        ("${cookie[$2]}", "dark"),
        ("${cookie[${KEY}]}-${${FULL}}", "dark-shop.example"),
        ("${HTTP_$1", "${HTTP_HOST"),
        ("${NONE_$1}${qs[$2]}${oops[$1]}", ""),
    ] {
        let rule = format!("^(HOST).(theme)$ addvar:X={text}");
        let rules = [
            ("route-run", "addvar:PART=HOST"),
            ("route-run", "addvar:KEY=theme"),
            ("route-run", "addvar:FULL=HTTP_${PART}"),
            ("route-run", "setpathinfo:HOST theme"),
            ("route", rule.as_str()),
        ];
        assert_eq!(x(&rules).as_deref(), Some(filled), "{text}");
    }
    // Also in a condition.
    let rules = [("route-run", "addvar:PART=HOST"), ("route-if", "equal:${HTTP_${PART}};shop.example addvar:X=1")];
    assert_eq!(x(&rules).as_deref(), Some("1"));
}

#[test]
fn goto_leads_forward() {
    let rules = [
        ("route", "^/shop goto:end"),
        ("route-run", "addvar:X=passed over"),
        ("route-label", "end"),
        ("route-if", "empty:${X} addvar:X=arrived"),
        ("route-run", "last:"),
        ("route-run", "addvar:X=too far"),
    ];
    assert_eq!(x(&rules).as_deref(), Some("arrived"));
    assert_eq!(x(&[("route-run", "goto:2"), ("route-run", "addvar:X=1"), ("route-run", "log:")]), None);
    let computed = [("route-run", "goto:${REQUEST_METHOD}"), ("route-run", "addvar:X=1"), ("route-label", "GET")];
    assert_eq!(x(&computed), None);
    let (verdict, overrides) = walk(&[("route-label", "GET"), ("route-run", "goto:${REQUEST_METHOD}")]);
    assert!(matches!(verdict, Verdict::Answer(answer) if answer.status == 500));
    assert!(String::from_utf8_lossy(&overrides.lines[0]).contains("uwsgi.ini:1: there is no label `GET` after this rule"));
}

#[test]
fn redirects_are_uris() {
    let cases = [
        ("redirect:https://${HTTP_HOST}${REQUEST_URI}", 302, "https://shop.example/shop/caf%C3%A9%201?a=1&b=$%7BHTTP_COOKIE%7D"),
        ("redirect-permanent:/x", 301, "/x"),
        ("redirect-301:${PATH_INFO}", 301, "/shop/caf%C3%A9%201"),
    ];
    for (action, status, expected) in cases {
        assert_eq!(location(&[("route-run", action)]), (status, expected.to_owned()));
    }
}

#[test]
fn a_rewrite_keeps_the_query() {
    let after = |target: &str| {
        let rule = format!("rewrite:{target}");
        let (_, overrides) = walk(&[("route-run", &rule)]);
        let text = |name: &[u8]| overrides.value(name).map(|value| String::from_utf8_lossy(value).into_owned());
        (text(b"PATH_INFO"), text(b"QUERY_STRING"))
    };
    assert_eq!(after("/new%20path"), (Some("/new path".to_owned()), None));
    assert_eq!(after("/new?c=2"), (Some("/new".to_owned()), Some("c=2&a=1&b=${HTTP_COOKIE}".to_owned())));
    assert_eq!(after("/%41%zz%4"), (Some("/A%zz%4".to_owned()), None));
}

#[test]
fn answers_of_rules() {
    let answer = |action: &str| match walk(&[("route-run", action)]).0 {
        Verdict::Answer(answer) => {
            (answer.status, answer.reason.into_owned(), String::from_utf8_lossy(&answer.body).into_owned())
        }
        verdict => panic!("{verdict:?}"),
    };
    let own = |status, reason: &str, body: &str| (status, reason.to_owned(), body.to_owned());
    assert_eq!(answer("return:404"), own(404, "Not Found", "Not Found"));
    assert_eq!(answer("break-with-status:503"), own(503, "Service Unavailable", "Service Unavailable"));
    assert_eq!(answer("break:403 Go away"), own(403, "Go away", ""));
    assert_eq!(answer("break:410"), own(410, "Gone", ""));
    assert_eq!(walk(&[("route-run", "break:")]).0, Verdict::Close);
    assert_eq!(answer("send:hello"), own(200, "OK", "hello"));
    let rules = [("route-run", "clearheaders:418 Short"), ("route-run", "send-crnl:a"), ("route-run", "break:")];
    let (Verdict::Answer(made), _) = walk(&rules) else { panic!("no answer") };
    assert_eq!((made.status, &*made.reason, made.body.as_slice()), (418, "Short", &b"a\r\n"[..]));
}

#[test]
fn basicauth_names_the_user_or_asks() {
    let (verdict, overrides) = walk(&[("route-run", "basicauth:Cave \"1\",Aladdin:open sesame")]);
    assert_eq!((verdict, overrides.value(b"REMOTE_USER")), (Verdict::Serve, Some(&b"Aladdin"[..])));
    let (Verdict::Answer(answer), _) = walk(&[("route-run", "basicauth:Cave \"1\",Aladdin:shut sesame")]) else {
        panic!("passed")
    };
    assert_eq!(answer.status, 401);
    assert_eq!(answer.fields[0], ("WWW-Authenticate".into(), b"Basic realm=\"Cave \\\"1\\\"\"".to_vec()));
    let two = [("route-run", "basicauth-next:R,ann:x"), ("route-run", "basicauth:R,Aladdin:open sesame")];
    assert_eq!(walk(&two).0, Verdict::Serve);
    assert_eq!(walk(&[("route-run", "setuser:eve:x"), ("route-run", "basicauth:R,ann:x")]).0, Verdict::Serve);
}

#[test]
fn changes_for_the_answer_and_the_log() {
    let (verdict, overrides) = walk(&[
        ("route-run", "addheader:X-Path: ${PATH_INFO}"),
        ("route-run", "delheader:Server"),
        ("route-run", "donotlog:"),
        ("route-run", "log:seen ${REMOTE_ADDR}"),
        ("route-run", "harakiri:5"),
        ("route-run", "gzip:"),
    ]);
    assert_eq!(verdict, Verdict::Serve);
    assert_eq!(overrides.added, ["X-Path: /shop/café 1".as_bytes()]);
    assert_eq!(overrides.removed, [b"Server"]);
    assert_eq!(overrides.lines, [b"seen 10.1.2.3"]);
    assert!(overrides.is_unlogged && overrides.is_compressed && overrides.harakiri_ms == Some(5000));
}

#[test]
fn the_status_of_an_answer_is_a_condition() {
    let rules = [("response-route-status", "404 clearheaders:410"), ("response-route-status", "200 addheader:X: 1")];
    let (_, overrides) = walk(&rules);
    assert_eq!(overrides.cleared, Some((410, "Gone".to_owned())));
    assert!(overrides.added.is_empty());
}
