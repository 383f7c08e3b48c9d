//! Rules of internal routing. An input consists of rules, one a line as in a configuration, an empty line, and a path.

use std::borrow::Cow;
use std::path::Path;

use bolide_contract::answering::RouteRule;
use bolide_routes::{Overrides, Routes, ServerValue, Values, Verdict};

use crate::{Kind, Target, ensure};

pub const TARGET: Target = Target { name: "routes", check, seeds, words: WORDS };

const WORDS: &[&[u8]] = &[
    b"route = ",
    b"route-if = ",
    b"route-if-not = ",
    b"route-run = ",
    b"route-label = x\n",
    b"response-route = ",
    b"route-uri = ",
    b"^/(.*)$ ",
    b"equal:",
    b"regexp:${PATH_INFO};",
    b"empty:${X} ",
    b"${PATH_INFO}",
    b"${X}",
    b"${X_$1}",
    b"${cookie[$1]}",
    b"${",
    b"}",
    b"$1",
    b"$$",
    b"addvar:X=",
    b"setpathinfo:",
    b"rewrite:/a?b",
    b"redirect:",
    b"goto:x",
    b"goto:",
    b"static:/srv/$1",
    b"file:filename=/a,status=503",
    b"break:403 x",
    b"return:404",
    b"last:",
    b"addheader:A: ",
    b"log:",
    b"+:X,1",
    b"send:",
    b"metricinc:",
    b"${metric[a]}",
    b"alarm:a b",
    b"signal:1",
    b"[a[b]",
    b"[^]]",
    b"(?i)",
    b"(?!",
    b"\\1",
    b"*+",
    b"\n\n",
    b"\n",
];

/// Steps of a set of rules, at most; more only take longer.
const RULES: usize = 24;

/// Every variable has the same value, so that rules can read it by any name.
struct Same<'a>(&'a [u8]);

impl Values for Same<'_> {
    fn value(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        (name != b"X" && name != b"REMOTE_USER").then_some(Cow::Borrowed(self.0))
    }

    fn server(&self, _: ServerValue) -> u64 {
        200
    }
}

/// Invalid rules are reported; a walk ends with the same result each time, and whether expressions are matched together or one by
/// one.
fn check(input: &[u8]) -> Result<Kind, String> {
    let text = String::from_utf8_lossy(input);
    let (rules, path) = text.split_once("\n\n").unwrap_or((&text, "/a/b"));
    let rules: Vec<RouteRule> = rules.lines().take(RULES).map(rule).collect();
    let (routes, mistakes) = Routes::compile(&rules, Path::new("/nowhere"));
    for mistake in &mistakes {
        ensure!(mistake.rule < rules.len() && !mistake.message.is_empty(), "a mistake of no rule, or without words: {mistake:?}");
    }
    let Some(routes) = routes else {
        ensure!(mistakes.iter().any(|mistake| mistake.is_fatal), "no routes, and no reason");
        let first = mistakes.iter().find(|mistake| mistake.is_fatal).map_or("", |mistake| &mistake.message);
        return Ok(Kind::of((true, first.split('`').next().unwrap_or_default().to_owned())));
    };
    let (verdict, overrides) = walk(&routes, path);
    // Results that differ each time by design.
    if text.contains("time[") || text.contains("uuid") {
        return Ok(Kind::of("time"));
    }
    ensure!(walk(&routes, path) == (verdict, overrides), "a second walk ends otherwise");
    let (verdict, overrides) = walk(&routes, path);
    let one_by_one: Vec<RouteRule> = rules.iter().map(alone).collect();
    let (alone, mistakes) = Routes::compile(&one_by_one, Path::new("/nowhere"));
    let Some(alone) = alone else { return Err(format!("one by one, the rules are refused: {mistakes:?}")) };
    let (other_verdict, other_overrides) = walk(&alone, path);
    ensure!(
        verdict == other_verdict && overrides == other_overrides,
        "one by one, it ends with {other_verdict:?}, not {verdict:?}"
    );
    let ends = match verdict {
        Verdict::Serve => 0,
        Verdict::Answer(answer) => answer.status,
        Verdict::File(..) => 1,
        Verdict::Close => 2,
        Verdict::Cached(_) => 3,
    };
    let many = |count: usize| count.min(3);
    Ok(Kind::of((ends, many(overrides.variables.len()), many(overrides.added.len()), many(overrides.lines.len()))))
}

fn walk(routes: &Routes, path: &str) -> (Verdict, Overrides) {
    let mut overrides = Overrides::default();
    let verdict = routes.requests.walk(&Same(path.as_bytes()), &mut overrides);
    let mut answer = Overrides::default();
    routes.responses.walk(&Same(path.as_bytes()), &mut answer);
    overrides.added.append(&mut answer.added);
    (verdict, overrides)
}

fn rule(line: &str) -> RouteRule {
    let (option, text) = line.split_once(" = ").unwrap_or(("route", line));
    let is_known =
        ["route", "route-if", "route-if-not", "route-run", "route-label", "route-uri", "response-route"].contains(&option);
    let option = if is_known { option } else { "route" };
    RouteRule { option: option.to_owned(), text: text.to_owned(), origin: "fuzz:1".to_owned() }
}

/// The same rule in a form that is matched by itself.
fn alone(rule: &RouteRule) -> RouteRule {
    match rule.option.as_str() {
        "route" => {
            RouteRule { option: "route-if".to_owned(), text: format!("regexp:${{PATH_INFO}};{}", rule.text), ..rule.clone() }
        }
        "route-uri" => {
            RouteRule { option: "route-if".to_owned(), text: format!("regexp:${{REQUEST_URI}};{}", rule.text), ..rule.clone() }
        }
        _ => rule.clone(),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    const TEXTS: &[&str] = &[
        "",
        "^/a addvar:X=1",
        "^/(a)/(.*)$ addvar:X=$2-$1\n^/b addvar:X=2\n^/a addvar:X=${X}3\n\n/a/b",
        "^/a setpathinfo:/b\n^/a addvar:X=1\n^/b addvar:X=2\n^/c addvar:X=3\n\n/a",
        "^/a rewrite:/b?c\n^/b addvar:X=${QUERY_STRING}\nroute-uri = ^/a addvar:Y=1\n\n/a",
        "route-uri = ^/a seturi:/b\nroute-uri = ^/b addvar:X=1\nroute-uri = ^/a addvar:X=2\n\n/a",
        "route-if = equal:${PATH_INFO};/a goto:x\nroute-run = addvar:X=1\nroute-label = x\nroute-run = last:\n\n/a",
        "route-if-not = empty:${X} return:403\nroute-run = addvar:X=1\nroute-if-not = empty:${X} return:404",
        "^/old/(.*)$ redirect:/new/$1\n\n/old/\u{e9}\r",
        "^/a break:403 Not you\n\n/a",
        "^/a break:\n\n/a",
        "^/(.*)$ static:/srv/$1\n\n/../x",
        "^/(.*)$ file:filename=/srv/x,status=503\n\n/x",
        "^/(.*)$ static:$1",
        "route-run = goto:nowhere",
        "route-run = nothing:x",
        "^/(?!a) log:x",
        "^/(a)\\1 log:x",
        "^/a*+ log:x",
        "^/( log:x",
        "^/[a[b]+$ addvar:X=1\n^/[^]]$ addvar:X=2\n^/[a&&b] addvar:X=3\n\n/[",
        "^/(.*)$ addvar:X=${HTTP_$1}${cookie[$1]}${${X}}\n\n/HOST",
        "^/(.*)$ addvar:X=$1\nroute-run = addvar:Y=${X}\nroute-run = log:${Y}\n\n/${PATH_INFO}",
        "route-run = +:X,5\nroute-run = *:X,${PATH_INFO}\nroute-run = -:X\nroute-run = /:X,0\n\n/7",
        "route-run = clearheaders:418 Short\nroute-run = send:a\nroute-run = break:",
        "response-route = ^/a addheader:X: ${uwsgi[status]}\nresponse-route = ^/b delheader:X\n\n/a",
        "route-if = ipv4in:${REMOTE_ADDR};10.0.0.0/8 donotlog:\n\n10.1.2.3",
        "route-if = regexp:${PATH_INFO};^(\\d+)$ addvar:X=$1$1\n\n12",
        "route-run = addvar:X=${time[unix]}",
        "route-run = goto:${PATH_INFO}\nroute-label = /a\nroute-run = return:200\n\n/a",
    ];
    TEXTS.iter().map(|text| text.as_bytes().to_vec()).collect()
}
