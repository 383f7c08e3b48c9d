//! The messages about rules from their compilation.

use std::path::Path;

use bolide_contract::answering::RouteRule;

use super::Routes;

fn rule(option: &str, text: &str) -> RouteRule {
    RouteRule { option: option.to_owned(), text: text.to_owned(), origin: "uwsgi.ini:1".to_owned() }
}

/// Returns the messages about one rule, with a label `later` after it.
fn said(option: &str, text: &str) -> Vec<(bool, String)> {
    let label = if option.starts_with("response-") { "response-route-label" } else { "route-label" };
    let (routes, mistakes) = Routes::compile(&[rule(option, text), rule(label, "later")], Path::new(""));
    assert_eq!(routes.is_none(), mistakes.iter().any(|mistake| mistake.is_fatal));
    mistakes.into_iter().map(|mistake| (mistake.is_fatal, mistake.message)).collect()
}

#[test]
fn rules_of_uwsgis_manual_compile() {
    for (option, text) in [
        ("route", "^/foo goto:later"),
        ("route", "^/zap/(.+)$ rewrite:/bar/$1?x=1"),
        ("route-uri", "^/foo\\?bar=(.*)$ redirect-permanent:https://www.example.com/$1"),
        ("route-host", "^localhost$ break:403 Forbidden"),
        ("route-user-agent", ".*curl.* return:403"),
        ("route-qs", "debug=1 log:${QUERY_STRING} ${cookie[id]} ${qs[debug]} ${uwsgi[uuid]}"),
        ("route-remote-addr", "^127\\.0\\.0\\.1$ last:"),
        ("route-remote-user", "^$ basicauth:Realm,ann:secret"),
        ("route-referer", "(.*) addvar:SEEN=$1"),
        ("route-if", "equal:${HTTP_X_FORWARDED_PROTO};http redirect-permanent:https://${HTTP_HOST}${REQUEST_URI}"),
        ("route-if", "regexp:${REMOTE_ADDR};^(\\d+)\\. addheader:X-First: $1"),
        ("route-if-not", "exists:/srv/${PATH_INFO} return:404"),
        ("route-if", "ipv4in:${REMOTE_ADDR};10.0.0.0/8 continue:"),
        ("route-if", "ishigherequal:${CONTENT_LENGTH};1000 +:SIZE,5"),
        ("route-run", "harakiri:5"),
        ("route-run", "cancel-on-disconnect:"),
        ("route-run", "cancel-on-disconnect:fin"),
        ("route-run", "chunked:"),
        ("response-route-status", "404 addheader:Cache-Control: no-store"),
        ("response-route-if", "empty:${CSP} addheader:Content-Security-Policy: default-src 'self' https:"),
        ("route", "^/[*+]a\\*+b log:x"),
        ("response-route", "^/x delheader:Server"),
    ] {
        assert_eq!(said(option, text), [], "{option} = {text}");
    }
}

#[test]
fn a_mistake_in_a_rule_is_named() {
    for (option, text, message) in [
        ("route", "^/foo", "`route = ^/foo` has no action"),
        ("route", "^/foo nothing", "the action `nothing` has no colon"),
        ("route", "^/foo nothing:", "there is no action `nothing`"),
        ("route", "^/(foo log:x", "`^/(foo` is not a regular expression: unclosed group"),
        ("route", "^/.*(?!foo) log:x", "has a negative lookahead at `(?!foo)`, which is not supported"),
        ("route", "^/(?<=foo) log:x", "has a lookbehind at `(?<=foo)`"),
        ("route", "^/(a)\\1 log:x", "has a backreference at `\\1`"),
        ("route", "^/a*+b log:x", "has a possessive quantifier at `*+b`"),
        ("route-if", "equal log:x", "the condition `equal` has no colon"),
        ("route-if", "equal:a log:x", "`equal:a` compares with nothing"),
        ("route-if", "like:a;b log:x", "there is no condition `like`"),
        ("route-if", "lord:x log:x", "the condition `lord` is not supported"),
        ("route-if", "ipv4in:${REMOTE_ADDR};10/8 log:x", "`10/8` is not a network"),
        ("route-run", "goto:nowhere", "there is no label `nowhere`"),
        ("route-run", "goto:0", "`goto:0` leads backwards"),
        ("route-run", "return:999", "`return:999` does not contain a standard status"),
        ("route-run", "break:no", "`break:no` has no status"),
        ("route-run", "addvar:x", "`addvar:x` does not set a variable"),
        ("route-run", "addheader:x", "`addheader:x` is not a header field"),
        ("route-run", "basicauth:x", "`basicauth:x` does not contain a user"),
        ("route-run", "harakiri:soon", "`harakiri:soon` is not a time limit"),
        ("route-run", "cancel-on-disconnect:yes", "`cancel-on-disconnect:yes` is neither on nor off"),
        ("response-route-run", "cancel-on-disconnect:", "the action `cancel-on-disconnect` can't be used in a response-route"),
        ("route-run", "memcached:key=x", "the action `memcached` is known, but not supported yet"),
        ("route-run", "ldapauth:x", "the action `ldapauth` is known, but not supported yet"),
        ("route-run", "log:${mime[PATH_INFO]}", "`${mime[PATH_INFO]}` is not supported yet"),
        ("route-run", "log:${uwsgi[x]}", "`${uwsgi[x]}`: `uwsgi` has no `x`"),
        ("route-run", "log:${x[y]}", "`${x[y]}`: there is no function `x`"),
        ("response-route-run", "return:404", "the action `return` can't be used in a response-route"),
        ("response-route-run", "sse:x", "the action `sse` is known, but not supported yet"),
        ("response-route-status", "4xx log:x", "`4xx` is not a status"),
    ] {
        let said = said(option, text);
        assert!(said.iter().any(|(is_fatal, found)| *is_fatal && found.contains(message)), "{option} = {text}: {said:?}");
    }
}

#[test]
fn a_rule_without_effect_is_a_warning() {
    for (option, text, message) in [
        ("route-run", "setprocname:a", "the action `setprocname` is known, but not supported yet: it has no effect"),
        ("route-run", "log:$1", "`$1` is always empty: this rule has no regular expression"),
        ("route", "^/(.*) log:$2", "`$2` is always empty: the regular expression has 1 groups"),
        ("route-run", "basicauth:R,/nowhere/at/all", "the file `/nowhere/at/all` does not exist yet"),
    ] {
        let said = said(option, text);
        assert!(said.iter().any(|(is_fatal, found)| !is_fatal && found.contains(message)), "{option} = {text}: {said:?}");
    }
}

#[test]
fn variables_that_rules_read_are_known() {
    let (routes, _) = Routes::compile(
        &[
            rule("response-route-if", "equal:${A};${cookie[x]} addheader:X: ${B}"),
            rule("response-route-host", "^a addheader:X: ${base64[C]}"),
            rule("response-route-run", "*:D,2"),
        ],
        Path::new(""),
    );
    let names = routes.unwrap_or_default().responses.variables;
    assert_eq!(names, [&b"A"[..], b"HTTP_COOKIE", b"B", b"HTTP_HOST", b"C", b"D"]);
}

#[test]
fn a_file_lies_in_the_directory_that_its_rule_names() {
    for (text, directory) in [
        ("static:/srv/logo.png", "/srv/logo.png"),
        ("static:/srv/media/$1", "/srv/media/"),
        ("static:/srv/media/$1/big/$1.png", "/srv/media/"),
        ("static:/srv/media$1", "/srv/"),
        ("static:media/${PATH_INFO}", "/app/media/"),
        ("file:filename=/srv/down.html,status=503 Service Unavailable,content_type=text/html", "/srv/down.html"),
        ("sendfile:filename=/srv/$1,mime=1", "/srv/"),
        ("file-next:filename=pages/$1.html", "/app/pages/"),
    ] {
        let (routes, mistakes) = Routes::compile(&[rule("route", &format!("^/(.*)$ {text}"))], Path::new("/app"));
        assert!(mistakes.iter().all(|mistake| mistake.message.contains("nothing is served from it yet")), "{text}: {mistakes:?}");
        assert_eq!(routes.map(|routes| routes.needs.directories), Some(vec![directory.into()]), "{text}");
    }
    for (text, message) in [
        ("static:$1", "does not say in which directory the file must be"),
        ("static:/$1", "does not say in which directory the file must be"),
        ("static:${DOCUMENT_ROOT}/$1", "does not say in which directory the file must be"),
        ("static:", "does not say in which directory the file must be"),
        ("file:status=503", "does not contain a file"),
        ("file:filename=/srv/a,status=oops", "`status=oops` is not a status"),
        ("file:/srv/a", "has no `/srv/a`"),
    ] {
        let (routes, mistakes) = Routes::compile(&[rule("route", &format!("^/(.*)$ {text}"))], Path::new("/app"));
        assert!(routes.is_none() && mistakes.iter().any(|mistake| mistake.message.contains(message)), "{text}: {mistakes:?}");
    }
}

#[test]
fn missing_groups_are_left_out_of_a_file_name() {
    let (routes, mistakes) = Routes::compile(&[rule("route", "^/x static:/srv/$1é")], Path::new("/app"));
    assert_eq!(routes.map(|routes| routes.needs.directories), Some(vec!["/srv/é".into()]));
    assert!(mistakes.iter().any(|mistake| mistake.message.contains("`$1` is always empty")), "{mistakes:?}");
}

#[test]
fn classes_are_those_of_pcre() {
    for (text, matching, others) in [
        ("^[a[b]+$", &["a[b", "["][..], &["c", "]"][..]),
        ("^[a&&b]$", &["a", "b", "&"], &["c"]),
        ("^[a~~b]$", &["~"], &["c"]),
        ("^[+--]$", &["+", ",", "-"], &["."]),
        ("^[]x]$", &["]", "x"], &["["]),
        ("^[^]x]$", &["["], &["]", "x"]),
        ("^[[:digit:]x]$", &["1", "x"], &[":", "d"]),
        ("^[^[:digit:][]$", &["x"], &["1", "["]),
        ("^\\[a[b]$", &["[ab"], &["[a["]),
        ("^[\\]&]$", &["]", "&"], &["\\"]),
        ("^&&--~~$", &["&&--~~"], &["&"]),
    ] {
        let pattern = super::pattern(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        for subject in matching {
            assert!(pattern.is_match(subject.as_bytes()), "{text} and {subject}");
        }
        for subject in others {
            assert!(!pattern.is_match(subject.as_bytes()), "{text} and {subject}");
        }
    }
}
