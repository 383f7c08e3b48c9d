//! `bolide check FILE…`: each file read and resolved by itself, with every diagnostic, the line it is
//! about and a caret. Starts nothing.

use std::fmt::Write;

use serde_json::json;

use super::lints;
use crate::command_line::collect;
use crate::command_table::{Command, FAILED};
use crate::diagnostic::{Diagnostic, Location, Severity};
use crate::host_info::HostInfo;
use crate::reader::{EarlyExit, is_gunicorn_configuration};
use crate::reading::Reading;
use crate::resolve::NO_APPLICATION;

/// Warnings with `--strict`.
const WARNED: i32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For people: the line and a caret below each diagnostic.
    Text,
    /// For programs: one list.
    Json,
    /// For editors and CI: `file:line:column: severity: message`.
    Lines,
}

pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let mut form = Form::Text;
    let (mut strict, mut paths, mut environment) = (false, true, false);
    let mut rest = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let format = match word.as_str() {
            "--strict" => {
                strict = true;
                continue;
            }
            "--no-paths" => {
                paths = false;
                continue;
            }
            "--env" => {
                environment = true;
                continue;
            }
            "--format" => words.next().map(String::as_str),
            other => match other.strip_prefix("--format=") {
                Some(format) => Some(format),
                None => {
                    rest.push(word.clone());
                    continue;
                }
            },
        };
        form = match format {
            Some("text") => Form::Text,
            Some("json") => Form::Json,
            Some("lines") => Form::Lines,
            _ => return Command::Check.misused("the format is one of text, json and lines"),
        };
    }
    if rest.is_empty() && !environment {
        return Command::Check.misused("no file is named; --env checks what variables such as UWSGI_MODULE say");
    }
    let mut diagnostics: Vec<Diagnostic> = readings(&rest).iter().flat_map(|reading| diagnostics(reading, host)).collect();
    if !paths {
        for diagnostic in diagnostics.iter_mut().filter(|diagnostic| diagnostic.is_local) {
            diagnostic.severity = diagnostic.severity.min(Severity::Warning);
        }
    }
    let counted = diagnostics.iter().filter(|diagnostic| paths || !diagnostic.is_local);
    let status = match counted.map(|diagnostic| diagnostic.severity).max() {
        Some(Severity::Error) => FAILED,
        Some(Severity::Warning) if strict => WARNED,
        _ => 0,
    };
    Reading::Print { text: render(&diagnostics, form), status }
}

/// Several configurations are checked one by one; everything else on the command line goes with each of them.
fn readings(arguments: &[String]) -> Vec<Vec<String>> {
    let is_file = |word: &&String| {
        let name = word.rsplit_once(':').map_or(word.as_str(), |(name, _)| name);
        let is_data = crate::reader::format_of(word).is_some() || crate::reader::format_of(name).is_some();
        !word.starts_with('-') && (is_data || is_gunicorn_configuration(word))
    };
    // The value of an option, such as `--ini base.ini`, stays with it.
    let follows_option =
        |index: usize| index > 0 && arguments[index - 1].starts_with("--") && !arguments[index - 1].contains('=');
    let files: Vec<usize> = (0..arguments.len()).filter(|&index| is_file(&&arguments[index]) && !follows_option(index)).collect();
    if files.len() < 2 {
        return vec![arguments.to_vec()];
    }
    let with = |file: &usize| {
        (0..arguments.len())
            .filter(|index| index == file || !files.contains(index))
            .map(|index| arguments[index].clone())
            .collect()
    };
    files.iter().map(with).collect()
}

/// Everything there is to say about one reading, in the order of the lines.
fn diagnostics(arguments: &[String], host: &HostInfo) -> Vec<Diagnostic> {
    let (configuration, application) = match collect(arguments, host) {
        Ok(read) => read,
        Err(EarlyExit::Failed(diagnostic)) => return vec![*diagnostic],
        Err(EarlyExit::SignalInstance { .. } | EarlyExit::AskInstance(_)) => {
            let message = "this tells a running instance something and ends: it does not serve";
            return vec![Diagnostic::note(Some(&Location::command_line()), message)];
        }
        Err(EarlyExit::Print { .. }) => {
            return vec![Diagnostic::note(Some(&Location::command_line()), "this prints something and ends: it does not serve")];
        }
    };
    let (settings, mut diagnostics) = crate::resolve::resolve(&configuration, application.as_ref(), host);
    let is_program_alone =
        configuration.files.iter().all(|file| is_gunicorn_configuration(file)) && !configuration.files.is_empty();
    if is_program_alone {
        // gunicorn's file seldom names the application: the command line does.
        diagnostics.iter_mut().filter(|one| one.message == NO_APPLICATION).for_each(|one| one.severity = Severity::Note);
    }
    diagnostics.extend(lints::all(&configuration, settings.as_ref(), host));
    diagnostics.sort_by_key(|diagnostic| diagnostic.location.as_ref().map(|location| (location.file.clone(), location.line)));
    diagnostics.dedup();
    diagnostics
}

fn render(diagnostics: &[Diagnostic], form: Form) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    match form {
        Form::Json => {
            let list: Vec<_> = diagnostics
                .iter()
                .map(|diagnostic| {
                    let location = diagnostic.location.as_ref();
                    json!({
                        "file": location.map(|location| &*location.file),
                        "line": location.map(|location| location.line).filter(|&line| line > 0),
                        "column": column(diagnostic),
                        "severity": diagnostic.severity.word(),
                        "message": diagnostic.message,
                        "advice": diagnostic.advice,
                    })
                })
                .collect();
            let _ = writeln!(text, "{:#}", serde_json::Value::Array(list));
        }
        Form::Lines => {
            for diagnostic in diagnostics {
                let location = diagnostic.location.as_ref();
                let (file, line) = location.map_or(("-", 0), |location| (&*location.file, location.line));
                let advice = diagnostic.advice.as_ref().map(|advice| format!(" ({advice})")).unwrap_or_default();
                let column = column(diagnostic).unwrap_or(1);
                let _ = writeln!(
                    text,
                    "{file}:{}:{column}: {}: {}{advice}",
                    line.max(1),
                    diagnostic.severity.word(),
                    diagnostic.message
                );
            }
        }
        Form::Text => {
            for diagnostic in diagnostics {
                let _ = writeln!(text, "{}", Diagnostic { advice: None, ..diagnostic.clone() });
                if let (Some(source), Some(column)) =
                    (diagnostic.location.as_ref().and_then(|location| location.text.as_ref()), column(diagnostic))
                {
                    let before: String =
                        source.chars().take(column - 1).map(|character| if character == '\t' { '\t' } else { ' ' }).collect();
                    let _ = writeln!(text, "    {source}\n    {before}^");
                }
                if let Some(advice) = &diagnostic.advice {
                    let _ = writeln!(text, "    {advice}");
                }
            }
            text.push_str(&summary(diagnostics));
        }
    }
    text
}

fn summary(diagnostics: &[Diagnostic]) -> String {
    let count = |severity: Severity, word: &str| {
        let count = diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
        (count > 0).then(|| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
    };
    let parts: Vec<String> =
        [count(Severity::Error, "error"), count(Severity::Warning, "warning"), count(Severity::Note, "note")]
            .into_iter()
            .flatten()
            .collect();
    match parts.is_empty() {
        true => "nothing to report\n".to_owned(),
        false => format!("{}\n", parts.join(", ")),
    }
}

/// Where in its line a diagnostic points to: at what it quotes first, if the line has that; counted in characters from one.
fn column(diagnostic: &Diagnostic) -> Option<usize> {
    let text = diagnostic.location.as_ref()?.text.as_ref()?;
    let quoted = diagnostic.message.split('`').nth(1).unwrap_or_default();
    let candidates = [quoted, quoted.split(" = ").next().unwrap_or_default(), quoted.rsplit(" = ").next().unwrap_or_default()];
    let byte = candidates.iter().filter(|candidate| !candidate.is_empty()).find_map(|candidate| text.find(*candidate));
    let byte = byte.unwrap_or_else(|| text.len() - text.trim_start().len());
    Some(text.get(..byte)?.chars().count() + 1)
}
