//! A lint of `check`: expressions about log lines that are made of uWSGI's words, and match no line that Bolide writes. It
//! compares each with pairs of lines, which docs/log-lines.md lists too. It does not read logs.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_routes::for_lines;
use regex::Regex;

/// A line of uWSGI's, the line that Bolide writes in its place, and an expression that matches that one.
struct LinePair {
    theirs: &'static str,
    ours: &'static str,
    matches: &'static str,
}

const PAIRS: &[LinePair] = &[
    LinePair {
        theirs: "*** HARAKIRI ON WORKER 1 (pid: 42, try: 1) ***",
        ours: "bolide: harakiri: killing worker 1 (pid 42) while it serves GET /slow (for 30.0 s)",
        matches: "harakiri",
    },
    LinePair {
        theirs: "DAMN ! worker 1 (pid: 42) died, killed by signal 9 :( trying respawn ...",
        ours: "bolide: worker 1 (pid 42) was killed by SIGKILL; it is replaced",
        matches: "was killed by",
    },
    LinePair {
        theirs: "DAMN ! worker 1 (pid: 42) died :( trying respawn ...",
        ours: "bolide: worker 1 (pid 42) exited with status 3; it is replaced",
        matches: "exited with",
    },
    LinePair {
        theirs: "Respawned uWSGI worker 1 (new pid: 43)",
        ours: "bolide: worker 1 (pid 42) was killed by SIGKILL; it is replaced",
        matches: "it is replaced",
    },
    LinePair {
        theirs: "Gracefully killing worker 1 (pid: 42)...",
        ours: "bolide: worker 1 (pid 42) got SIGHUP from pid 7: it is replaced",
        matches: "got SIGHUP",
    },
    LinePair {
        theirs: "spawned uWSGI worker 1 (pid: 42, cores: 1)",
        ours: "bolide: ready: 1 worker in 80 ms",
        matches: "ready:",
    },
    LinePair {
        theirs: "SIGPIPE: writing to a closed pipe/socket/fd (probably the client disconnected) on request / (ip 192.0.2.1) !!!",
        ours: "bolide: GET /: the client disconnected after 0.1 s",
        matches: "the client disconnected after",
    },
];
/// Lines that have uWSGI's tag, when an expression sees them.
const TAGGED: [&str; 2] = [
    "[uwsgi-cron] bolide: cron echo (pid 42) exited with status 0 after 0.1 s",
    "[uwsgi-daemons] bolide: daemon sleep: started (pid 42)",
];
/// Options with an expression, and whether a name comes before it.
const OPTIONS: [(&str, bool); 6] = [
    ("log-route", true),
    ("alarm-log", true),
    ("log-alarm", true),
    ("not-alarm-log", true),
    ("log-filter", false),
    ("log-drain", false),
];

/// Returns a warning for each expression that matches a line of uWSGI's and none of ours.
pub fn of_uwsgi(effects: &[Pair]) -> Vec<Diagnostic> {
    effects.iter().filter_map(of_pair).collect()
}

fn of_pair(pair: &Pair) -> Option<Diagnostic> {
    let (_, has_name) = OPTIONS.iter().find(|(name, _)| *name == pair.key)?;
    let text = pair.value.as_deref()?;
    let text = if *has_name { text.split_once(' ').map_or(text, |(_, text)| text) } else { text };
    let (matches, except) = for_lines(text).ok()?;
    let (matches, except) = (Regex::new(&matches).ok()?, except.map(|except| Regex::new(&except)).transpose().ok()?);
    let is_match = |line: &str| matches.is_match(line) && !except.as_ref().is_some_and(|except| except.is_match(line));
    let met = PAIRS.iter().find(|lines| is_match(lines.theirs))?;
    if PAIRS.iter().any(|lines| is_match(lines.ours)) || TAGGED.iter().any(|line| is_match(line)) {
        return None;
    }
    let message = format!(
        "`{} = {}` matches no line of the server: uWSGI's `{}` is `{}` here",
        pair.key,
        pair.value.as_deref()?,
        met.theirs,
        met.ours
    );
    Some(Diagnostic::warning(Some(&pair.location), message).advise(format!("write `{}`", met.matches)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_configuration::diagnostic::Location;

    fn warned(key: &str, value: &str) -> bool {
        let location = Location::file("uwsgi.ini", 3);
        let (key, value) = (key.to_owned(), Some(value.to_owned()));
        let pair = Pair { key, value, location, acted: false, placeholder: false };
        !of_uwsgi(&[pair]).is_empty()
    }

    #[test]
    fn each_expression_of_the_table_matches_our_line_and_not_uwsgis() {
        for lines in PAIRS {
            let expression = Regex::new(lines.matches).expect("compiled");
            assert!(expression.is_match(lines.ours) && !expression.is_match(lines.theirs), "{}", lines.matches);
        }
    }

    #[test]
    fn words_of_uwsgi_alone_are_warned_of() {
        for (key, value) in [
            ("log-route", "dead DAMN"),
            ("alarm-log", "mail HARAKIRI"),
            ("log-route", "new ^Respawned uWSGI worker"),
            ("log-filter", "spawned uWSGI"),
        ] {
            assert!(warned(key, value), "{key} = {value}");
        }
        for (key, value) in [
            ("log-route", "cron uwsgi-cron"),
            ("log-route", "x \\[uwsgi-daemons\\]"),
            ("log-route", "dead (?i)harakiri"),
            ("alarm-log", "mail (DAMN|was killed by)"),
            ("log-route", "orders order=\\d+"),
            ("log-drain", "GET /health"),
        ] {
            assert!(!warned(key, value), "{key} = {value}");
        }
    }
}
