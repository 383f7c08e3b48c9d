//! Letters of the command line that mean one thing in uWSGI, and therefore here, and another to users of other servers.

use super::flags;
use super::row::ServerSetting;
use super::server::Server;
use super::translate::server_list;
use super::translation::Translation;
use crate::catalogue::catalogue;
use crate::catalogue::row::Argument;

/// A larger number of workers, given by letter, is a port.
const PROCESSES_BY_LETTER_MOST: u32 = 1024;

/// Returns the message and the advice if a value shows that a letter was not meant as in uWSGI. For a letter without a value,
/// `value` is the next word.
pub fn misunderstood_letter(letter: char, value: &str) -> Option<(String, String)> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let (theirs, advice) = match letter {
        'v' if !is_number => ("version", "write `bolide --version` for the version".to_owned()),
        'w' if is_number => ("workers", format!("write `--workers {value}`")),
        'b' if value.contains([':', '/', '.']) => ("bind", format!("write `--bind {value}`")),
        'p' if value.parse::<u32>().is_ok_and(|number| number > PROCESSES_BY_LETTER_MOST) => {
            ("port", format!("write `--port {value}`"))
        }
        'p' if !is_number && !value.is_empty() && !value.eq_ignore_ascii_case("auto") => {
            ("pid", format!("write `--pid {value}`"))
        }
        'm' if is_number => {
            ("umask", format!("write `--umask {value}`; beside `--bind` it applies to UNIX sockets only, as there"))
        }
        'h' if is_likely_host(value) => ("host", format!("write `--host {value}`")),
        'c' if value.ends_with(".py") || value.ends_with(".toml") => {
            ("config", "write `bolide FILE` for a configuration of Bolide or uWSGI".to_owned())
        }
        _ => return None,
    };
    let (row, name) = catalogue().letter(letter)?;
    let whose = flags().find(|flag| flag.flag == theirs && flag.letter.is_some_and(|(own, _)| own == letter)).map(owners)?;
    let typed = format!("-{letter} {value}");
    let typed = typed.trim_end();
    let help = row.help.split(['.', ',', ';', ':', '(']).next().unwrap_or_default().trim_end();
    Some((format!("`{typed}`: `-{letter}` is `--{name}` here, as in uWSGI ({help}), and `--{theirs}` of {whose}"), advice))
}

fn is_likely_host(value: &str) -> bool {
    value == "localhost"
        || value.contains(['.', ':']) && value.chars().all(|letter| letter.is_ascii_hexdigit() || ".:[]".contains(letter))
}

/// Returns the message and the advice about a letter that uWSGI does not have; `value` is the next word.
pub fn unknown_letter(letter: char, value: Option<&str>) -> (String, Option<String>) {
    let theirs: Vec<&ServerSetting> = flags().filter(|flag| flag.letter.is_some_and(|(own, _)| own == letter)).collect();
    let mut names: Vec<&str> = Vec::new();
    for flag in &theirs {
        if !names.contains(&flag.flag) {
            names.push(flag.flag);
        }
    }
    let Some(first) = theirs.first() else { return (format!("unknown option `-{letter}`"), None) };
    let meanings: Vec<String> = theirs.iter().map(|flag| format!("`--{}` of {}", flag.flag, owners(flag))).collect();
    let message = format!("`-{letter}` is not an option here: it is {}", meanings.join(", "));
    // The word after a flag without a value is not its value.
    let value = value.filter(|_| first.argument != Argument::None).unwrap_or_default();
    let advice = match (names.as_slice(), Translation::new(None).translate(first, value)) {
        ([_], Err(refusal)) => refusal.advice,
        ([name], Ok(())) => format!("write `{}`", format!("--{name} {value}").trim_end()),
        _ => "write the long name".to_owned(),
    };
    (message, Some(advice))
}

/// The servers that have the letter of a flag.
fn owners(flag: &ServerSetting) -> String {
    let servers: &'static [Server] = flag.letter.map_or(flag.servers, |(_, servers)| servers);
    server_list(&ServerSetting { servers, ..*flag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_letter_that_means_two_things_is_reported_with_both() {
        for (letter, value, ours, theirs, advice) in [
            ('w', "4", "`--module`", "`--workers` of gunicorn and hypercorn", "`--workers 4`"),
            ('b', "0.0.0.0:8000", "`--buffer-size`", "`--bind` of gunicorn, hypercorn and daphne", "`--bind 0.0.0.0:8000`"),
            ('p', "8000", "`--processes`", "`--port` of flask run and daphne", "`--port 8000`"),
            ('p', "/run/x.pid", "`--processes`", "`--pid` of gunicorn and hypercorn", "`--pid /run/x.pid`"),
            ('h', "0.0.0.0", "`--help`", "`--host` of flask run", "`--host 0.0.0.0`"),
            ('v', "", "`--max-vars`", "`--version` of gunicorn", "`bolide --version`"),
            ('v', "app:app", "`--max-vars`", "`--version` of gunicorn", "`bolide --version`"),
            ('m', "007", "`--memory-report`", "`--umask` of gunicorn and hypercorn", "`--umask 007`"),
        ] {
            let (message, said) = misunderstood_letter(letter, value).expect(value);
            assert!(message.contains(ours) && message.contains(theirs) && said.contains(advice), "{message} ({said})");
        }
        for (letter, value) in
            [('w', "shop:app"), ('b', "32768"), ('p', "4"), ('p', "auto"), ('h', ""), ('h', "app:app"), ('t', "30"), ('v', "64")]
        {
            assert_eq!(misunderstood_letter(letter, value), None, "-{letter} {value}");
        }
    }

    #[test]
    fn test_a_letter_of_other_servers_only_is_reported_with_the_long_name() {
        for (letter, value, wanted, advice) in [
            ('k', Some("gevent"), "`--worker-class` of gunicorn and hypercorn", "write `--worker-class gevent`"),
            ('k', Some("eventlet"), "`--worker-class` of gunicorn and hypercorn", "write `gevent` instead"),
            ('u', Some("www-data"), "`--user` of gunicorn", "the long name"),
            ('n', Some("shop"), "`--name` of gunicorn", "`--name shop`"),
            ('D', Some("app:app"), "`--daemon` of gunicorn and hypercorn", "write `--daemon`"),
        ] {
            let (message, said) = unknown_letter(letter, value);
            let said = said.expect("there is advice");
            assert!(message.contains(wanted) && said.contains(advice), "{message} ({said})");
        }
        assert_eq!(unknown_letter('@', None), ("unknown option `-@`".to_owned(), None));
    }
}
