//! Parses the command line like getopt: `--name value`, `--name=value`, `-p 4`, `-p4`, `-Mp4`, unambiguous prefixes of long
//! names, and `--` ends the options. As in getopt, positional arguments come after all options, wherever they stand.

use std::path::Path;

use bolide_options::catalog::catalog;
use bolide_options::row::{Argument, Value};
use bolide_other_servers::ServerSetting;

/// If a pidfile follows, it reloads a running instance, as in uWSGI; otherwise it has the meaning of other servers: [`DEVELOP`].
const RELOAD: &str = "reload";
const DEVELOP: &str = "develop";
/// A flag without a value of uvicorn and granian. daphne's has a value, and means the other one, which is gunicorn's.
const ACCESS_LOG: &str = "access-log";
const ACCESS_LOG_FILE: &str = "access-logfile";
/// `--prot 80` is a slip of `--port`, although it is the beginning of this option of uWSGI.
const PROTOCOL: &str = "protocol";
/// Largest file that may be a pidfile, in bytes.
const PIDFILE_BYTES: u64 = 32;

/// An option of Bolide or of another server on the command line, by its long name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedOption {
    pub name: String,
    pub value: Option<String>,
    /// It was written as a letter.
    pub is_letter: bool,
    /// It is a letter of another server: the note about that, and the advice.
    pub note: Option<(String, String)>,
}

impl ParsedOption {
    fn new(name: impl Into<String>, value: Option<String>) -> ParsedOption {
        ParsedOption { name: name.into(), value, is_letter: false, note: None }
    }
}

/// A command line that can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentError {
    pub message: String,
    /// The unknown option, for a "did you mean".
    pub unknown: Option<String>,
    /// What to do about it, if known.
    pub advice: Option<String>,
}

/// Parses `arguments`, which follow the program's name, one option at a time, so that an option can declare others before they
/// occur. `declared` returns whether an option that the configuration itself declared takes a value.
pub struct Arguments<'a> {
    rest: std::slice::Iter<'a, String>,
    /// The rest of a group of letters such as `-Mp4`.
    letters: &'a str,
    positional: Vec<String>,
}

impl<'a> Arguments<'a> {
    pub fn new(arguments: &'a [String]) -> Arguments<'a> {
        Arguments { rest: arguments.iter(), letters: "", positional: Vec::new() }
    }

    /// Returns the next option; `None` if only positional arguments are left.
    ///
    /// # Errors
    /// An unknown option, a missing value, or an unexpected one.
    pub fn next_option(&mut self, declared: impl Fn(&str) -> Option<Argument>) -> Result<Option<ParsedOption>, ArgumentError> {
        if !self.letters.is_empty() {
            return self.letter().map(Some);
        }
        loop {
            let Some(argument) = self.rest.next() else { return Ok(None) };
            if argument == "--" {
                self.positional.extend(self.rest.by_ref().cloned());
                return Ok(None);
            }
            if let Some(long) = argument.strip_prefix("--") {
                return self.long(long, &declared).map(Some);
            }
            match argument.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => {
                    self.letters = letters;
                    return self.letter().map(Some);
                }
                _ => self.positional.push(argument.clone()),
            }
        }
    }

    /// The positional arguments so far.
    pub fn positional(&self) -> &[String] {
        &self.positional
    }

    /// Returns the positional arguments; they are complete once `next_option` has returned `None`.
    pub fn into_positional(self) -> Vec<String> {
        self.positional
    }

    fn long(&mut self, text: &str, declared: &impl Fn(&str) -> Option<Argument>) -> Result<ParsedOption, ArgumentError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let mut is_others = false;
        let (name, argument) = match catalog().get(name) {
            Some(row) => (name.to_owned(), row.argument),
            None => match (declared(name), bolide_other_servers::long(None, name)) {
                (Some(argument), _) => (name.to_owned(), argument),
                (None, Some(flag)) => {
                    is_others = true;
                    (name.to_owned(), flag.argument)
                }
                (None, None) => beginning_of(name)?,
            },
        };
        if name == ACCESS_LOG && is_others && value.is_some() {
            return Ok(ParsedOption::new(ACCESS_LOG_FILE, value));
        }
        if is_others && argument == Argument::None && value.is_some() {
            let message = format!("`--{name}` does not take a value");
            return Err(ArgumentError { message, unknown: None, advice: Some(format!("write `--{name}` only")) });
        }
        if name == RELOAD && value.is_none() && !self.rest.as_slice().first().is_some_and(|next| is_pidfile(next)) {
            return Ok(ParsedOption::new(DEVELOP, None));
        }
        if let (Argument::Optional, None, Some(number)) = (argument, &value, self.next_word().filter(|next| is_number(next))) {
            // uWSGI takes it for a word of its own, and no application has such a name.
            let message = format!("`--{name} {number}`: the value of `--{name}` is optional, so it must follow a `=`");
            return Err(ArgumentError { message, unknown: None, advice: Some(format!("write `--{name}={number}`")) });
        }
        let value = match (argument, value) {
            // getopt rejects a value here. It is accepted, since `--master=true` can mean only one thing.
            (Argument::None | Argument::Optional, value) => value,
            (Argument::Required, Some(value)) => Some(value),
            (Argument::Required, None) => Some(self.value_of(&format!("--{name}"))?),
        };
        match value.as_deref().filter(|value| name == PROTOCOL && text != PROTOCOL && is_number(value)) {
            Some(number) if !text.starts_with("protocol=") => Err(misspelled_port(text, number)),
            _ => Ok(ParsedOption::new(name, value)),
        }
    }

    /// `-c FILE` is gunicorn's or hypercorn's; uWSGI's `-c` does not take values.
    fn configuration(&mut self) -> Option<ParsedOption> {
        let value = self.letters.strip_prefix('c')?;
        let value = if value.is_empty() { self.rest.as_slice().first()?.clone() } else { value.to_owned() };
        if !is_configuration(&value) {
            return None;
        }
        if self.letters == "c" {
            self.rest.next();
        }
        self.letters = "";
        Some(ParsedOption::new("config", Some(value)))
    }

    /// `-A NAME` is flask's; uWSGI's is a number.
    fn application(&mut self) -> Option<ParsedOption> {
        let value = self.letters.strip_prefix('A')?;
        let value = if value.is_empty() { self.next_word()?.to_owned() } else { value.to_owned() };
        if value.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            return None;
        }
        if self.letters == "A" {
            self.rest.next();
        }
        self.letters = "";
        let note = (format!("`-A {value}` is read as `--app` of flask"), "with a number `-A` is uWSGI's".to_owned());
        Some(ParsedOption { note: Some(note), ..ParsedOption::new("app", Some(value)) })
    }

    fn letter(&mut self) -> Result<ParsedOption, ArgumentError> {
        if let Some(option) = self.configuration().or_else(|| self.application()) {
            return Ok(option);
        }
        let mut letters = self.letters.chars();
        let letter = letters.next().unwrap_or('-');
        self.letters = letters.as_str();
        let Some((row, name)) = catalog().letter(letter) else {
            let follows = if self.letters.is_empty() { self.next_word().unwrap_or_default() } else { self.letters };
            let meant = bolide_other_servers::meant_setting(letter, follows);
            if let Some(setting) = meant.or_else(|| bolide_other_servers::only_meaning(letter)) {
                return self.of_another_server(letter, setting, None);
            }
            let attached = Some(std::mem::take(&mut self.letters)).filter(|text| !text.is_empty());
            let (message, advice) = bolide_other_servers::unknown_letter(letter, attached.or(self.next_word()));
            return Err(ArgumentError { message, unknown: None, advice });
        };
        if row.value != Value::Address || !self.letters.starts_with("=0") {
            // Python's argument parsers accept `-w=4`. In uWSGI `=` begins the number of a shared socket.
            self.letters = self.letters.strip_prefix('=').unwrap_or(self.letters);
        }
        let follows = if self.letters.is_empty() { self.next_word() } else { Some(self.letters) };
        // If a letter within a group does not take values, more letters follow it.
        let may_belong = self.letters.is_empty() || row.argument == Argument::Required;
        let follows = follows.filter(|_| may_belong).unwrap_or_default();
        if let Some(setting) = bolide_other_servers::meant_setting(letter, follows) {
            return self.of_another_server(letter, setting, Some(name));
        }
        if let Some((message, advice)) = bolide_other_servers::misunderstood_letter(letter, follows) {
            return Err(ArgumentError { message, unknown: None, advice: Some(advice) });
        }
        let attached = || Some(self.letters.to_owned()).filter(|text| !text.is_empty());
        let value = match row.argument {
            Argument::None => None,
            Argument::Optional => {
                let value = attached();
                if let (None, Some(number)) = (&value, self.next_word().filter(|next| is_number(next))) {
                    let message =
                        format!("`-{letter} {number}`: the value of `-{letter}` is optional, so it must follow without a space");
                    return Err(ArgumentError { message, unknown: None, advice: Some(format!("write `-{letter}{number}`")) });
                }
                self.letters = "";
                value
            }
            Argument::Required => match attached() {
                Some(value) => {
                    self.letters = "";
                    Some(value)
                }
                None => Some(self.value_of(&format!("-{letter}"))?),
            },
        };
        Ok(ParsedOption { is_letter: true, ..ParsedOption::new(name, value) })
    }

    /// Reads a letter as that of another server, with its value. `name` is uWSGI's option of the letter.
    fn of_another_server(
        &mut self,
        letter: char,
        setting: &'static ServerSetting,
        name: Option<&str>,
    ) -> Result<ParsedOption, ArgumentError> {
        let value = match setting.argument {
            Argument::None => None,
            _ => match std::mem::take(&mut self.letters).trim_start_matches('=') {
                "" => Some(self.value_of(&format!("-{letter}"))?),
                attached => Some(attached.to_owned()),
            },
        };
        let note = bolide_other_servers::reading_of(letter, value.as_deref().unwrap_or_default(), setting, name);
        Ok(ParsedOption { note: Some(note), ..ParsedOption::new(setting.flag, value) })
    }

    /// The next word, which may be a value.
    fn next_word(&self) -> Option<&'a str> {
        self.rest.as_slice().first().map(String::as_str)
    }

    fn value_of(&mut self, option: &str) -> Result<String, ArgumentError> {
        self.rest.next().cloned().ok_or_else(|| ArgumentError {
            message: format!("`{option}` needs a value"),
            unknown: None,
            advice: None,
        })
    }
}

/// Whether a word names a configuration of gunicorn or hypercorn: a Python file, TOML, or any other file that is neither an
/// application nor in one of uWSGI's formats.
fn is_configuration(word: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|end| word.ends_with(end));
    let is_named = ["python:", "file:"].iter().any(|scheme| word.starts_with(scheme));
    is_named
        || ends(&[".py", ".toml", ".conf", ".config", ".cfg"])
        || !ends(&[".ini", ".yaml", ".yml", ".json", ".js", ".xml", ".wsgi"]) && Path::new(word).is_file()
}

/// The error about a number for an abbreviation of `--protocol`.
fn misspelled_port(typed: &str, number: &str) -> ArgumentError {
    let name = typed.split('=').next().unwrap_or_default();
    ArgumentError {
        message: format!("`--{name} {number}`: `--{name}` is short for `--{PROTOCOL}`, and {number} is not a protocol"),
        unknown: None,
        advice: Some(format!("did you mean `--port {number}`?")),
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word names a pidfile: by its extension, or because the file exists and contains a number.
fn is_pidfile(word: &str) -> bool {
    let path = Path::new(word);
    if path.extension().is_some_and(|extension| extension == "pid") {
        return true;
    }
    let is_small = path.metadata().is_ok_and(|file| file.is_file() && (1..=PIDFILE_BYTES).contains(&file.len()));
    let text = if is_small { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    text.trim().parse::<u32>().is_ok()
}

/// The one long name with this prefix.
fn beginning_of(start: &str) -> Result<(String, Argument), ArgumentError> {
    let unknown =
        || ArgumentError { message: format!("unknown option `--{start}`"), unknown: Some(start.to_owned()), advice: None };
    if start.is_empty() {
        return Err(unknown());
    }
    let mut matching: Vec<&str> = catalog().names().filter(|name| name.starts_with(start)).collect();
    let theirs = bolide_other_servers::beginning_with(start).filter(|_| matching.len() != 1);
    if let Some(flag) = theirs {
        return Ok((flag.flag.to_owned(), flag.argument));
    }
    match matching.as_slice() {
        [] => Err(unknown()),
        [name] => Ok(((*name).to_owned(), catalog().get(name).map_or(Argument::Required, |row| row.argument))),
        _ => {
            matching.sort_unstable();
            matching.truncate(4);
            let list = matching.iter().map(|name| format!("`--{name}`")).collect::<Vec<_>>().join(", ");
            Err(ArgumentError {
                message: format!("`--{start}` is ambiguous: {list}, …"),
                unknown: Some(start.to_owned()),
                advice: None,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<String>, ArgumentError> {
        let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let mut arguments = Arguments::new(&words);
        let mut said = Vec::new();
        while let Some(word) = arguments.next_option(|name| (name == "serve").then_some(Argument::Required))? {
            said.push(match word.value {
                Some(value) => format!("{}={value}", word.name),
                None => word.name,
            });
        }
        said.extend(arguments.into_positional());
        Ok(said)
    }

    #[test]
    fn test_command_lines_as_getopt_reads_them() {
        let cases: &[(&str, &[&str])] = &[
            ("--http :8080 --master", &["http=:8080", "master"]),
            ("--http=:8080 app.ini", &["http=:8080", "app.ini"]),
            ("app.ini --http :8080", &["http=:8080", "app.ini"]),
            ("-p 4 -p4 -Mp4 -M", &["processes=4", "processes=4", "master", "processes=4", "master"]),
            ("-H /venv -w a:b -s /tmp/x", &["home=/venv", "module=a:b", "socket=/tmp/x"]),
            ("-C -C660", &["chmod-socket", "chmod-socket=660"]),
            ("--chmod-socket app.ini", &["chmod-socket", "app.ini"]),
            ("--chmod-socket=660", &["chmod-socket=660"]),
            ("--disable-log -", &["disable-logging", "-"]),
            ("-c gunicorn.conf.py a:b", &["config=gunicorn.conf.py", "a:b"]),
            ("-cgunicorn.conf.py", &["config=gunicorn.conf.py"]),
            ("-c hypercorn.toml a:b", &["config=hypercorn.toml", "a:b"]),
            ("-c python:shop.server -c file:shop", &["config=python:shop.server", "config=file:shop"]),
            ("-c app.ini", &["cgi-mode", "app.ini"]),
            ("-A shop run", &["app=shop", "run"]),
            ("-w=4 -b=0.0.0.0:80 -p=3", &["workers=4", "bind=0.0.0.0:80", "processes=3"]),
            ("--access-log --access-log=a.log", &["access-log", "access-logfile=a.log"]),
            ("--worker-tmp /dev/shm --access-logfi -", &["worker-tmp-dir=/dev/shm", "access-logfile=-"]),
            ("--conf gunicorn.conf.py", &["config=gunicorn.conf.py"]),
            ("--prot http --protocol 80 --protocol=80", &["protocol=http", "protocol=80", "protocol=80"]),
            ("-- --http", &["--http"]),
            ("--serve x", &["serve=x"]),
            ("--master=true", &["master=true"]),
            ("--reload app:app", &["develop", "app:app"]),
            ("app:app --reload", &["develop", "app:app"]),
            ("--reload --reload-dir src app.py", &["develop", "reload-dir=src", "app.py"]),
            ("--reload /run/shop.pid", &["reload=/run/shop.pid"]),
            ("--reload=/run/shop", &["reload=/run/shop"]),
        ];
        for (line, wanted) in cases {
            assert_eq!(
                read(line).as_deref(),
                Ok(wanted.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>().as_slice()),
                "{line}"
            );
        }
    }

    #[test]
    fn test_mistakes_on_the_command_line_are_named() {
        for (line, part) in [
            ("--http", "`--http` needs a value"),
            ("--vaccum", "unknown option `--vaccum`"),
            ("-p", "`-p` needs a value"),
            ("-@", "`-@`"),
            ("--proc 4", "is ambiguous"),
            ("--prot 80 app:app", "`--prot 80`: `--prot` is short for `--protocol`, and 80 is not a protocol"),
            ("--prot=80 app:app", "`--prot 80`: `--prot` is short for `--protocol`"),
            ("--http-keepalive 75 app:app", "`--http-keepalive 75`: the value of `--http-keepalive` is optional"),
            ("--chmod-socket 660", "it must follow a `=`"),
            ("-s app.sock -C 660", "`-C 660`: the value of `-C` is optional, so it must follow without a space"),
        ] {
            let mistake = read(line).expect_err(line);
            assert!(mistake.message.contains(part), "{line}: {}", mistake.message);
        }
    }
}
