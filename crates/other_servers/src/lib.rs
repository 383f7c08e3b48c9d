//! The settings of other servers (gunicorn, uvicorn, granian, hypercorn, waitress, flask, fastapi, daphne) and their equivalents
//! here: one row for each setting, which serves the flag of a command line, `gunicorn.conf.py` (`gunicorn`), the keyword of
//! `bolide.run` and `init --from`. A setting with one meaning becomes options of Bolide, a setting without an effect is reported,
//! and any other is refused with advice. It starts nothing but the child that executes a `gunicorn.conf.py`, and does not open
//! files except to recognize the framework of an application (`line_owner`). Runs in the process that reads the configuration.

mod access_format;
mod addresses;
mod application;
mod developing;
#[cfg(test)]
mod guide;
pub mod gunicorn;
pub mod hypercorn;
pub mod import_config;
pub mod keywords;
mod letters;
pub mod line_owner;
mod logging;
pub mod other_words;
mod processes;
pub mod reading;
mod requests;
mod row;
mod tls;
mod translate;
mod translation;
mod unix_sockets;
mod unlisted;
mod values;

pub use letters::{meant_setting, misunderstood_letter, only_meaning, reading_of, unknown_letter};
pub use row::{Meaning, ServerSetting};
pub use translate::{CERTIFICATE, Refusal, server_list};
pub use translation::{MadeOption, SettingRemark, Subject, Translation};

use bolide_options::catalog::catalog;
use bolide_options::row::Value;
use bolide_options::server::Server;

/// The rows, by theme.
const TABLES: &[&[ServerSetting]] = &[
    addresses::FLAGS,
    application::FLAGS,
    processes::FLAGS,
    requests::FLAGS,
    logging::FLAGS,
    tls::FLAGS,
    developing::FLAGS,
    unlisted::FLAGS,
];

/// Every row.
pub fn flags() -> impl Iterator<Item = &'static ServerSetting> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// Returns the row of a long name, without its dashes: that of `server`, or the first one if the server is not known.
pub fn long(server: Option<Server>, name: &str) -> Option<&'static ServerSetting> {
    flags().find(|flag| flag.flag == name && !name.is_empty() && flag.is_of(server))
}

/// Returns the servers that have a flag of this name.
pub fn servers_of(name: &str) -> Vec<Server> {
    flags().filter(|flag| flag.flag == name).flat_map(|flag| flag.servers).copied().collect()
}

/// Returns the one flag that begins like this, of the servers that accept it.
pub fn beginning_with(start: &str) -> Option<&'static ServerSetting> {
    let accepts = |server: &Server| matches!(server, Server::Gunicorn | Server::Hypercorn | Server::Daphne | Server::Waitress);
    let mut found = flags().filter(|flag| flag.flag.starts_with(start) && !start.is_empty() && flag.servers.iter().any(accepts));
    let first = found.next()?;
    found.all(|other| other.flag == first.flag && other.argument == first.argument).then_some(first)
}

/// Returns the row of a letter of a server.
pub fn letter(server: Server, letter: char) -> Option<&'static ServerSetting> {
    flags().find(|flag| flag.letter.is_some_and(|(own, servers)| own == letter && servers.contains(&server)))
}

/// The flag of the letter `p` of flask and daphne.
pub fn meant_port() -> Option<&'static ServerSetting> {
    letter(Server::Flask, 'p')
}

/// Returns the row of a setting of gunicorn.conf.py.
pub fn setting(name: &str) -> Option<&'static ServerSetting> {
    flags().find(|flag| flag.setting == name && !name.is_empty())
}

/// Returns the row of a keyword of `bolide.run`.
pub fn keyword(name: &str) -> Option<&'static ServerSetting> {
    let mut named = flags().filter(|row| !row.flag.is_empty());
    named.find(|row| row.keyword == name || row.flag.replace('-', "_") == name)
}

/// Returns the row of a word of a server's command line, and the value if it is part of the word (`-w4`, `--workers=4`).
pub fn of_word(server: Server, word: &str) -> Option<(&'static ServerSetting, Option<&str>)> {
    if let Some(name) = word.strip_prefix("--") {
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        return Some((long(Some(server), name)?, value));
    }
    let own = word.chars().nth(1)?;
    let value = &word[1 + own.len_utf8()..];
    Some((letter(server, own)?, Some(value).filter(|value| !value.is_empty())))
}

/// Returns the options for a word of another server, if Bolide has an option with the flag's name that does not accept the word.
pub fn word(name: &str, value: &str) -> Option<&'static [(&'static str, &'static str)]> {
    flags().filter(|flag| flag.flag == name).find_map(|flag| match flag.meaning {
        Meaning::Worded(words, _) => words.iter().find(|(word, _)| *word == value).map(|(_, pairs)| *pairs),
        _ => None,
    })
}

/// Returns the setting of another server that an option of Bolide's name means with this value, which uWSGI's can't have.
pub fn meant_option(name: &str, value: &str) -> Option<&'static ServerSetting> {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let server = match name {
        "listen" if value.contains(':') => Server::Waitress,
        // A directory of this name would have a comma.
        "pythonpath" if value.contains(',') => Server::Gunicorn,
        // uWSGI's belongs to a command that Bolide does not have.
        "ping-timeout" if is_number => Server::Daphne,
        _ => return None,
    };
    long(Some(server), name)
}

/// Returns the message and the advice if a value on Bolide's own command line shows that another server's option of the same name
/// was meant, or no option of that name.
pub fn misunderstood(name: &str, value: &str) -> Option<(String, String)> {
    let row = catalog().get(name)?;
    let doubt = flags().filter(|flag| row.names.contains(&flag.flag)).find_map(|flag| match flag.meaning {
        Meaning::Taken(doubt, _) | Meaning::Listed(doubt) | Meaning::Worded(_, doubt) => doubt(value),
        _ => None,
    });
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    doubt.or_else(|| {
        (row.value == Value::Address && is_number).then(|| {
            let message = format!("`--{name} {value}` would be a UNIX socket in the file `{value}`, not a port");
            (message, format!("write `--{name} :{value}` for the port, or `--{name} ./{value}` for the file"))
        })
    })
}

#[cfg(test)]
mod tests;
