//! Words that people know from elsewhere, and what replaces them here: directives of nginx, flags and settings of the servers in
//! `other_servers`, and general words such as `cors`. `bolide explain`, `bolide help`, `bolide options` and the messages about
//! unknown options look here before they guess a similar name. Plain data and functions over it; it must not read files.

use std::sync::LazyLock;

use bolide_configuration::documentation::{self, with_pages};
use bolide_options::catalog::catalog;
use bolide_options::server::Server;

use crate::{Meaning, ServerSetting};

/// The words. The head of the file describes the columns.
const WORDS: &str = include_str!("other_words.tsv");

/// Shorter words are parts of too many others.
const MIN_PART: usize = 4;

/// A word without an option of its name.
struct OtherWord {
    /// Its spellings; the first one is the usual one.
    names: Vec<&'static str>,
    /// The program that it is a word of; empty for a general word.
    whose: &'static str,
    /// The option that replaces it; empty if there is none.
    option: &'static str,
    /// What the option does, or why there is none: the rest of a sentence.
    says: &'static str,
}

static TABLE: LazyLock<Vec<OtherWord>> =
    LazyLock::new(|| WORDS.lines().filter(|line| !line.starts_with('#')).map(OtherWord::read).collect());

impl OtherWord {
    /// Reads one line. `other_words.tsv` is compiled in, so a malformed line is a bug of Bolide.
    fn read(line: &'static str) -> OtherWord {
        let columns: Vec<&str> = line.split('\t').map(|text| if text == "-" { "" } else { text }).collect();
        let [whose, names, option, says] = columns[..] else { panic!("other_words.tsv: not four columns: {line}") };
        OtherWord { names: names.split(' ').collect(), whose, option, says }
    }
}

/// The meanings of a word.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KnownWord {
    /// One sentence for each program that has the word, without full stops.
    pub sentences: Vec<String>,
    /// The option to explain.
    pub option: Option<&'static str>,
}

impl KnownWord {
    fn add(&mut self, sentence: String, option: Option<&'static str>) {
        if !self.sentences.contains(&sentence) {
            self.sentences.push(sentence);
        }
        self.option = self.option.or(option);
    }
}

/// Returns the meanings of a word, with or without dashes at its start.
pub fn about(word: &str) -> Option<KnownWord> {
    let wanted = normal(word);
    let mut answer = KnownWord::default();
    for setting in crate::flags() {
        if let Some((sentence, option)) = of_setting(setting, &wanted) {
            answer.add(sentence, option);
        }
    }
    let is_flag = word.starts_with("--") && !answer.sentences.is_empty();
    for row in TABLE.iter().filter(|row| row.names.contains(&wanted.as_str()) && !is_flag) {
        // A general word says nothing more about an option that a server's own word has led to.
        if row.whose.is_empty() && answer.option == Some(row.option) {
            continue;
        }
        answer.add(of_row(row, &wanted), Some(row.option).filter(|option| !option.is_empty()));
    }
    (!answer.sentences.is_empty()).then_some(answer)
}

/// Returns the beginning of the first sentence about a word that is unknown somewhere, as advice.
pub fn advice(word: &str) -> Option<String> {
    let first = about(word)?.sentences.into_iter().next()?;
    Some(first.split("; ").next().unwrap_or_default().to_owned())
}

/// Returns the words that contain a part of a word, at most `most`, and their meanings; the word itself is the first.
pub fn containing(part: &str, most: usize) -> Vec<(String, KnownWord)> {
    let wanted = normal(part);
    let flags = crate::flags().filter(|row| !row.flag.is_empty()).map(|row| normal(row.flag));
    let words = flags.chain(TABLE.iter().flat_map(|row| &row.names).map(|name| (*name).to_owned()));
    let is_near = |word: &String| wanted.len() >= MIN_PART && word.contains(&wanted) && catalog().get(word).is_none();
    let mut found: Vec<(String, KnownWord)> = Vec::new();
    for word in std::iter::once(wanted.clone()).chain(words.filter(is_near)) {
        if found.len() < most && !found.iter().any(|(known, _)| *known == word) {
            found.extend(about(&word).map(|answer| (word, answer)));
        }
    }
    found
}

/// The flags of other servers that the command line takes, which are not options of these names, and the help of each.
pub fn taken_flags() -> impl Iterator<Item = (&'static ServerSetting, String)> {
    let is_first = |row: &ServerSetting| crate::long(None, row.flag).is_some_and(|first| std::ptr::eq(first, row));
    let taken = move |row: &&'static ServerSetting| {
        is_first(row) && catalog().get(row.flag).is_none() && !matches!(row.meaning, Meaning::Refused(_) | Meaning::Taken(..))
    };
    crate::flags().filter(taken).map(|row| (row, of_setting(row, &normal(row.flag)).map_or_else(String::new, |(text, _)| text)))
}

/// The form in which words are compared.
pub fn normal(word: &str) -> String {
    let word = word.split_once('=').map_or(word, |(name, _)| name);
    word.trim_start_matches('-').trim().to_ascii_lowercase().replace(['_', ' '], "-")
}

/// A sentence about a row of the tables.
fn of_row(row: &OtherWord, word: &str) -> String {
    let OtherWord { whose, option, .. } = row;
    let says = with_pages(row.says);
    match (*whose, option.is_empty()) {
        ("", false) => format!("for `{word}` there is `{option}`: {says}"),
        ("", true) => format!("`{word}` has no option: {says}"),
        (whose, false) => format!("`{}` of {whose} is `{option}`: {says}", word.replace('-', "_")),
        (whose, true) => format!("`{}` of {whose} has no option here: {says}", word.replace('-', "_")),
    }
}

/// A sentence about a setting of another server that has this name, and the option to explain; `None` if it has another name, or
/// is just Bolide's option of the same name.
fn of_setting(row: &ServerSetting, wanted: &str) -> Option<(String, Option<&'static str>)> {
    let is_flag = !row.flag.is_empty() && normal(row.flag) == wanted;
    if !is_flag && (row.setting.is_empty() || normal(row.setting) != wanted) {
        return None;
    }
    let name = if is_flag { format!("`--{}`", row.flag) } else { format!("`{}`", row.setting) };
    let whose = whose(row, is_flag, &name);
    // The setting `sendfile` is the opposite of the flag `--no-sendfile`.
    let name = if row.is_negated && !is_flag { format!("{whose}, turned off,") } else { whose };
    let known = |text: &str| catalog().get(text).map(|row| row.name());
    let (text, option) = match row.meaning {
        Meaning::Same | Meaning::Listed(_) | Meaning::Worded(..) if known(row.flag).is_some_and(|_| !is_flag) => {
            (format!("{name} is `{}`", row.flag), known(row.flag))
        }
        Meaning::Same | Meaning::Listed(_) | Meaning::Worded(..) => return None,
        Meaning::Option(option) => (format!("{name} is `{option}`"), known(option)),
        Meaning::Fixed(pairs) => {
            let made: Vec<String> = pairs.iter().map(|(name, value)| format!("`{name} = {value}`")).collect();
            (format!("{name} is {}", made.join(", ")), pairs.first().and_then(|(name, _)| known(name)))
        }
        Meaning::Made(_, made) | Meaning::Kept(_, _, made) => (described(&name, made), first_option(made)),
        Meaning::Done(why) => (format!("{name} is not needed: {why}"), None),
        Meaning::Nothing(why) => (format!("{name} has no effect here: {why}"), None),
        Meaning::Refused(advice) => (format!("{name} is not taken: {advice}"), first_option(advice)),
        Meaning::Taken(_, advice) => (format!("{name} has another meaning than here: {advice}"), None),
    };
    let says = if row.says.is_empty() { String::new() } else { format!("; {}", without_links(row.says)) };
    Some((format!("{text}{says}"), option))
}

/// "gunicorn's `--timeout`", or "`--backlog` of gunicorn and uvicorn".
fn whose(row: &ServerSetting, is_flag: bool, name: &str) -> String {
    // A file of settings is gunicorn's alone.
    match row.servers {
        _ if !is_flag => format!("{}'s {name}", Server::Gunicorn.command()),
        [one] => format!("{}'s {name}", one.command()),
        _ => format!("{name} of {}", crate::server_list(row)),
    }
}

/// The result of a flag whose value is translated; a single option is named without its value.
fn described(name: &str, made: &str) -> String {
    let only = made.strip_prefix('`').and_then(|text| text.strip_suffix('`')).filter(|text| !text.contains('`'));
    let besides = made.strip_prefix("nothing; ");
    match (made, only.and_then(|text| text.split_once(" = "))) {
        ("nothing", _) => format!("{name} has no effect here"),
        _ if besides.is_some_and(|text| text.starts_with('`')) => {
            format!("{name} has no effect here, or becomes {}", besides.unwrap_or_default())
        }
        _ if besides.is_some() => format!("{name} has no effect here: {}", besides.unwrap_or_default()),
        ("the same", _) => format!("{name} is the same here"),
        (_, Some((option, value))) if value.bytes().all(|byte| byte.is_ascii_uppercase()) => format!("{name} is `{option}`"),
        _ => format!("{name} becomes {made}"),
    }
}

/// The first option that a text names.
fn first_option(text: &str) -> Option<&'static str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let mut names = quoted.filter_map(|quote| quote.trim_start_matches('-').split([' ', '=']).next());
    names.find_map(|name| catalog().get(name)).map(|row| row.name())
}

/// Replaces `[title](page.md)` by the address or the title of the page, for a terminal.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        made.truncate(made.rfind('[').unwrap_or(made.len()));
        let (page, rest) = part.split_once(')').unwrap_or((part, ""));
        made.push_str(&documentation::page(&page.replacen(".md", "", 1)));
        made.push_str(rest);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_options::row::Status;

    #[test]
    fn test_every_word_leads_to_an_option_that_has_an_effect_or_says_why_there_is_none() {
        for row in TABLE.iter() {
            assert!(!row.says.is_empty() && !row.says.ends_with('.'), "{:?}", row.names);
            assert!(row.names.iter().all(|name| normal(name) == **name), "{:?}", row.names);
            let option = catalog().get(row.option);
            let is_supported = option.is_some_and(|row| matches!(row.status, Status::Supported(_)));
            assert!(is_supported || row.option.is_empty(), "{:?} → {}", row.names, row.option);
        }
    }

    #[test]
    fn test_every_page_that_a_word_names_exists() {
        let sentences = TABLE.iter().map(|row| with_pages(row.says)).chain(taken_flags().map(|(_, help)| help));
        for text in sentences {
            // A page without a title would be named by its file.
            assert!(!text.contains("the page `") && !text.contains("[["), "{text}");
        }
    }

    #[test]
    fn test_a_flag_is_described_by_its_row() {
        let said = |word| about(word).expect("the word is known");
        assert_eq!(said("--limit-max-requests").sentences, ["uvicorn's `--limit-max-requests` is `max-requests`"]);
        assert!(said("--timeout").sentences[0].starts_with("gunicorn's `--timeout` is `harakiri`; "));
        assert_eq!(said("timeout").option, Some("harakiri"));
        assert_eq!(said("proxy_protocol").option, Some("http-enable-proxy-protocol"));
        assert_eq!(said("client_max_body_size").option, Some("limit-post"));
        assert_eq!(about("nothing-of-this-name"), None);
    }
}
