//! Files that contain command lines, each kind with its own rules. Functions from text to starts; the file's name determines the
//! kind.

use super::{Start, shell};

/// The kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Procfile,
    Dockerfile,
    Compose,
    Supervisor,
    Unit,
    Script,
}

pub fn kind_of(name: &str) -> FileKind {
    let name = name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if name.starts_with("procfile") {
        FileKind::Procfile
    } else if name.starts_with("dockerfile") || name.starts_with("containerfile") || ends(&[".dockerfile"]) {
        FileKind::Dockerfile
    } else if ends(&[".yml", ".yaml"]) {
        FileKind::Compose
    } else if ends(&[".service"]) {
        FileKind::Unit
    } else if ends(&[".conf", ".ini"]) {
        FileKind::Supervisor
    } else {
        FileKind::Script
    }
}

/// Returns all programs that the file starts, in its order.
pub fn starts(kind: FileKind, text: &str) -> Vec<Start> {
    let lines = joined(text);
    match kind {
        FileKind::Procfile => lines.iter().filter_map(|(line, text)| procfile(*line, text)).flatten().collect(),
        FileKind::Dockerfile => dockerfile(&lines),
        FileKind::Compose => compose(text),
        FileKind::Supervisor => sections(&lines, &["command"], |text| text.replace("%%", "%")),
        FileKind::Unit => sections(&lines, &["ExecStart"], |text| text.trim_start_matches(['-', '@', ':', '+', '!']).to_owned()),
        FileKind::Script => {
            lines.iter().filter(|(_, text)| !text.starts_with('#')).flat_map(|(line, text)| of_shell(*line, text)).collect()
        }
    }
}

/// Lines with their numbers; a backslash at the end joins a line with the next one.
fn joined(text: &str) -> Vec<(u32, String)> {
    let mut lines: Vec<(u32, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let (part, more) = match line.trim_end().strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            // A comment between two parts belongs to neither.
            Some(_) if line.trim_start().starts_with('#') => continue,
            Some((_, before)) => before.push_str(&format!(" {}", part.trim())),
            None => lines.push((number, part.trim().to_owned())),
        }
        goes_on = more;
    }
    lines
}

/// A server for each command of a shell line.
fn of_shell(line: u32, text: &str) -> Vec<Start> {
    shell::commands(text).into_iter().flat_map(|words| of_words(line, text, words)).collect()
}

/// `web: COMMAND`.
fn procfile(line: u32, text: &str) -> Option<Vec<Start>> {
    let (name, command) = text.split_once(':')?;
    let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    is_name.then(|| of_shell(line, command.trim()))
}

/// The last ENTRYPOINT and the last CMD: an image has one of each. Variables of ENV apply to the program.
fn dockerfile(lines: &[(u32, String)]) -> Vec<Start> {
    let (mut entry, mut command) = (Vec::new(), Vec::new());
    let (mut environment, mut directory) = (Vec::new(), None);
    for (line, text) in lines {
        let Some((word, rest)) = text.split_once(char::is_whitespace) else { continue };
        let rest = rest.trim();
        match word.to_ascii_uppercase().as_str() {
            "FROM" => (entry, command, environment, directory) = (Vec::new(), Vec::new(), Vec::new(), None),
            "ENTRYPOINT" => entry = exec_or_shell(*line, rest),
            "CMD" => command = exec_or_shell(*line, rest),
            "WORKDIR" => directory = Some(rest.to_owned()),
            "ENV" => environment.extend(variables(rest)),
            _ => {}
        }
    }
    // A CMD holds the arguments of an ENTRYPOINT.
    let mut starts = match (entry.as_slice(), command.as_slice()) {
        ([entry], [command]) => {
            let words = [entry.words.clone(), command.words.clone()].concat();
            vec![Start { words, text: format!("{} {}", entry.text, command.text), ..entry.clone() }, command.clone()]
        }
        _ => [entry, command].concat(),
    };
    for start in &mut starts {
        start.environment.clone_from(&environment);
        start.directory.clone_from(&directory);
    }
    starts
}

/// A list of JSON strings, or a shell line.
fn exec_or_shell(line: u32, text: &str) -> Vec<Start> {
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(words) => of_words(line, text, words),
        Err(_) => of_shell(line, text),
    }
}

fn of_words(line: u32, text: &str, words: Vec<String>) -> Vec<Start> {
    // `sh -c LINE` is a shell line.
    match words.as_slice() {
        [program, option, inner, ..] if program.ends_with("sh") && option.starts_with('-') && option.ends_with('c') => {
            let commands = shell::commands(inner).into_iter();
            commands.map(|words| Start { text: inner.clone(), line, words, ..Start::default() }).collect()
        }
        _ => vec![Start { text: text.to_owned(), line, words, ..Start::default() }],
    }
}

/// `A=b C="d e"`, or the old form `A b`.
fn variables(text: &str) -> Vec<(String, String)> {
    if let Some((name, value)) = text.split_once(char::is_whitespace).filter(|(name, _)| !name.contains('=')) {
        return vec![(name.to_owned(), value.trim().to_owned())];
    }
    let words = shell::commands(text).concat();
    words.iter().filter_map(|word| word.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Keys of an ini file or of a unit: a server for each section with one of the commands. The section's other keys apply to the
/// server.
fn sections(lines: &[(u32, String)], commands: &[&str], clean: impl Fn(&str) -> String) -> Vec<Start> {
    let mut all: Vec<Start> = Vec::new();
    let mut section: Vec<(u32, &str, &str)> = Vec::new();
    let end = (0, "[end]".to_owned());
    for (line, text) in lines.iter().chain([&end]) {
        if !text.starts_with('[') {
            if let Some((key, value)) = text.split_once('=').filter(|_| !text.starts_with(['#', ';'])) {
                section.push((*line, key.trim(), value.trim()));
            }
            continue;
        }
        let value_of = |names: &[&str]| {
            section.iter().rev().find(|(_, key, _)| names.contains(key)).map(|(_, _, value)| (*value).to_owned())
        };
        for (line, _, value) in section.iter().filter(|(_, key, _)| commands.contains(key)) {
            // supervisord writes variables as `%(ENV_NAME)s`.
            let command = clean(value).replace("%(ENV_", "${").replace(")s", "}");
            for mut start in of_shell(*line, &command) {
                start.text = (*value).to_owned();
                start.directory = value_of(&["directory", "WorkingDirectory"]);
                start.user = value_of(&["user", "User"]);
                start.group = value_of(&["Group"]);
                for (_, key, value) in &section {
                    match *key {
                        "environment" => start.environment.extend(comma_variables(value)),
                        "Environment" => start.environment.extend(variables(value)),
                        _ => {}
                    }
                }
                all.push(start);
            }
        }
        section.clear();
    }
    all
}

/// supervisord's `A="b",C="d"`.
fn comma_variables(text: &str) -> Vec<(String, String)> {
    let mut separated = String::new();
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            Some(open) if open == letter => quote = None,
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            _ => {}
        }
        separated.push(if quote.is_none() && letter == ',' { ' ' } else { letter });
    }
    variables(&separated)
}

/// `command:` of services: a line, a list in brackets, a list of lines, or a folded text. `environment:` is left to Compose.
fn compose(text: &str) -> Vec<Start> {
    let lines: Vec<&str> = text.lines().collect();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut all = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(value) = line.trim_start().strip_prefix("command:") else { continue };
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let below = lines[index + 1..].iter().take_while(|next| {
            next.trim().is_empty()
                || depth(next) > depth(line)
                || next.trim_start().starts_with("- ") && depth(next) == depth(line)
        });
        let below: Vec<&str> = below.map(|next| next.trim()).filter(|next| !next.is_empty() && !next.starts_with('#')).collect();
        let value = value.trim();
        let unquoted = |text: &str| {
            let text = text.trim();
            let inner = |mark: char| text.strip_prefix(mark).and_then(|text| text.strip_suffix(mark));
            inner('"').or_else(|| inner('\'')).unwrap_or(text).replace("$$", "$")
        };
        if let Some(list) = value.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            all.extend(of_words(number, value, list.split(',').map(unquoted).collect()));
        } else if value.is_empty() || value.starts_with(['>', '|']) {
            match below.iter().map(|item| item.strip_prefix("- ")).collect::<Option<Vec<_>>>() {
                Some(items) => all.extend(of_words(number, &items.join(" "), items.into_iter().map(unquoted).collect())),
                None => all.extend(of_shell(number, &below.join(" ").replace("\\ ", " ").replace("$$", "$"))),
            }
        } else {
            let rest: String = std::iter::once(value).chain(below).collect::<Vec<_>>().join(" ");
            all.extend(of_shell(number, &unquoted(&rest)));
        }
    }
    all
}
