//! Letters of the command line that mean one thing in uWSGI, and therefore here, and another to users of other servers.

use bolide_options::catalog::catalog;
use bolide_options::row::Argument;
use bolide_options::server::Server;

use super::flags;
use super::row::ServerSetting;
use super::translate::server_list;
use super::translation::Translation;

/// A larger number of workers, given by letter, is a port.
const MAX_PROCESSES_BY_LETTER: u32 = 1024;

/// Returns the setting of another server that a letter means, if its value shows that uWSGI's option of this letter is not meant.
/// For a letter without a value, `value` is the next word.
pub fn meant_setting(letter: char, value: &str) -> Option<&'static ServerSetting> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let theirs = match letter {
        'w' if is_number => "workers",
        'b' if value.contains([':', '/', '.']) => "bind",
        'p' if value.parse::<u32>().is_ok_and(|number| number > MAX_PROCESSES_BY_LETTER) => "port",
        'p' if !is_number && !value.is_empty() && !value.eq_ignore_ascii_case("auto") => "pid",
        'm' if is_number => "umask",
        'h' if is_likely_host(value) => "host",
        'u' if value.contains('/') => "unix-socket",
        'u' if !value.is_empty() && !value.starts_with('-') => "user",
        // A limit of so few variables would refuse every request.
        'v' if matches!(value, "0" | "1" | "2" | "3") => "verbosity",
        'R' if !is_number => "enable-stdio-inheritance",
        'e' if ["ssl:", "tcp:", "tcp6:", "unix:", "fd:"].iter().any(|kind| value.starts_with(kind)) => "endpoint",
        'e' if value.contains('=') => "env",
        _ => return None,
    };
    flags().find(|flag| flag.flag == theirs && flag.letter.is_some_and(|(own, _)| own == letter))
}

/// The note about a letter that was read as another server's; `name` is uWSGI's option of the letter, if it has one.
pub fn reading_of(letter: char, value: &str, setting: &ServerSetting, name: Option<&str>) -> (String, String) {
    let typed = format!("-{letter} {value}");
    let (typed, flag) = (typed.trim_end(), setting.flag);
    let advice = match name {
        Some(name) => format!("with another value `-{letter}` is `--{name}`, as in uWSGI; the long name says which one is meant"),
        None => "the long name is the same in every version".to_owned(),
    };
    (format!("`{typed}` is read as `--{flag}` of {}", owners(setting)), advice)
}

/// Returns the message and the advice if a value shows that a letter was not meant as in uWSGI, and another server's meaning
/// can't be taken. For a letter without a value, `value` is the next word.
pub fn misunderstood_letter(letter: char, value: &str) -> Option<(String, String)> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let (theirs, advice) = match letter {
        'v' if !is_number => ("version", "write `bolide --version` for the version".to_owned()),
        _ => return None,
    };
    let (row, name) = catalog().letter(letter)?;
    let whose = flags().find(|flag| flag.flag == theirs && flag.letter.is_some_and(|(own, _)| own == letter)).map(owners)?;
    let typed = format!("-{letter} {value}");
    let typed = typed.trim_end();
    let help = row.help.split(['.', ',', ';', ':', '(']).next().unwrap_or_default().trim_end();
    Some((format!("`{typed}`: `-{letter}` is `--{name}` here, as in uWSGI ({help}), and `--{theirs}` of {whose}"), advice))
}

/// The one setting of other servers with a letter that uWSGI does not have.
pub fn only_meaning(letter: char) -> Option<&'static ServerSetting> {
    let mut theirs = flags().filter(|flag| flag.letter.is_some_and(|(own, _)| own == letter));
    let first = theirs.next()?;
    theirs.all(|other| other.flag == first.flag && other.argument == first.argument).then_some(first)
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
    fn test_a_value_that_uwsgi_could_not_mean_is_that_of_another_server() {
        for (letter, value, flag) in [
            ('w', "4", "workers"),
            ('b', "0.0.0.0:8000", "bind"),
            ('b', "unix:/run/x.sock", "bind"),
            ('p', "8000", "port"),
            ('p', "/run/x.pid", "pid"),
            ('h', "0.0.0.0", "host"),
            ('m', "007", "umask"),
            ('u', "/run/shop.sock", "unix-socket"),
            ('e', "ssl:8443:privateKey=key.pem:certKey=cert.pem", "endpoint"),
            ('e', "DEBUG=1", "env"),
            ('u', "www-data", "user"),
            ('v', "2", "verbosity"),
            ('R', "app:app", "enable-stdio-inheritance"),
        ] {
            let setting = meant_setting(letter, value).expect(value);
            assert_eq!(setting.flag, flag);
            let (message, _) = reading_of(letter, value, setting, Some("module"));
            assert!(message.starts_with(&format!("`-{letter} {value}` is read as `--{flag}` of ")), "{message}");
        }
        for (letter, value) in [
            ('w', "shop:app"),
            ('b', "32768"),
            ('p', "4"),
            ('p', "auto"),
            ('h', ""),
            ('h', "app:app"),
            ('t', "30"),
            ('v', "64"),
            ('m', ""),
        ] {
            assert!(meant_setting(letter, value).is_none(), "-{letter} {value}");
        }
    }

    #[test]
    fn test_a_letter_whose_other_meaning_has_no_equivalent_is_reported_with_both() {
        for (letter, value, ours, theirs, advice) in [
            ('v', "", "`--max-vars`", "`--version` of gunicorn", "`bolide --version`"),
            ('v', "app:app", "`--max-vars`", "`--version` of gunicorn", "`bolide --version`"),
        ] {
            let (message, said) = misunderstood_letter(letter, value).expect(value);
            assert!(message.contains(ours) && message.contains(theirs) && said.contains(advice), "{message} ({said})");
        }
        assert_eq!(misunderstood_letter('v', "64"), None);
    }

    #[test]
    fn test_a_letter_of_other_servers_only_has_their_meaning_if_they_agree() {
        for (letter, flag) in [('k', "worker-class"), ('n', "name"), ('D', "daemon")] {
            assert_eq!(only_meaning(letter).map(|setting| setting.flag), Some(flag), "-{letter}");
        }
        assert!(only_meaning('u').is_none() && only_meaning('@').is_none());
        let (message, advice) = unknown_letter('u', Some("www-data"));
        assert!(message.contains("`--user` of gunicorn") && advice.is_some_and(|advice| advice.contains("the long name")));
        assert_eq!(unknown_letter('@', None), ("unknown option `-@`".to_owned(), None));
    }
}
