//! `bolide check FILE…`: each file read and settled by itself, with every finding, the line it is
//! about and a caret. Starts nothing.

use std::fmt::Write;

use serde_json::json;

use super::{FAILED, lints, misused};
use crate::reader::Halt;
use crate::surroundings::Surroundings;
use crate::{Finding, Place, Reading, Severity};

/// Warnings with `--strict`.
const WARNED: i32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For people: the line and a caret below each finding.
    Text,
    /// For programs: one list.
    Json,
    /// For editors and CI: `file:line:column: severity: message`.
    Lines,
}

pub fn run(arguments: &[String], around: &Surroundings) -> Reading {
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
            _ => return misused("check", "the format is one of text, json and lines"),
        };
    }
    if rest.is_empty() && !environment {
        return misused("check", "no file is named; --env checks what variables such as UWSGI_MODULE say");
    }
    let mut findings: Vec<Finding> = readings(&rest).iter().flat_map(|reading| findings(reading, around)).collect();
    if !paths {
        for finding in findings.iter_mut().filter(|finding| finding.is_local) {
            finding.severity = finding.severity.min(Severity::Warning);
        }
    }
    let counted = findings.iter().filter(|finding| paths || !finding.is_local);
    let status = match counted.map(|finding| finding.severity).max() {
        Some(Severity::Error) => FAILED,
        Some(Severity::Warning) if strict => WARNED,
        _ => 0,
    };
    Reading::Print { text: render(&findings, form), status }
}

/// Several configurations are checked one by one; everything else on the command line goes with each of them.
fn readings(arguments: &[String]) -> Vec<Vec<String>> {
    let is_file = |word: &&String| {
        let name = word.rsplit_once(':').map_or(word.as_str(), |(name, _)| name);
        !word.starts_with('-') && (crate::reader::format_of(word).is_some() || crate::reader::format_of(name).is_some())
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
fn findings(arguments: &[String], around: &Surroundings) -> Vec<Finding> {
    let (configuration, application) = match crate::collect(arguments, around) {
        Ok(read) => read,
        Err(Halt::Failed(finding)) => return vec![*finding],
        Err(Halt::Tell { .. }) => {
            let message = "this tells a running instance something and ends: it does not serve";
            return vec![Finding::note(Some(&Place::command_line()), message)];
        }
        Err(Halt::Print { .. }) => {
            return vec![Finding::note(Some(&Place::command_line()), "this prints something and ends: it does not serve")];
        }
    };
    let (settings, mut findings) = crate::settle::settle(&configuration, application.as_ref(), around);
    findings.extend(lints::all(&configuration, settings.as_ref(), around));
    findings.sort_by_key(|finding| finding.place.as_ref().map(|place| (place.file.clone(), place.line)));
    findings.dedup();
    findings
}

fn render(findings: &[Finding], form: Form) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    match form {
        Form::Json => {
            let list: Vec<_> = findings
                .iter()
                .map(|finding| {
                    let place = finding.place.as_ref();
                    json!({
                        "file": place.map(|place| &*place.file),
                        "line": place.map(|place| place.line).filter(|&line| line > 0),
                        "column": column(finding),
                        "severity": finding.severity.word(),
                        "message": finding.message,
                        "advice": finding.advice,
                    })
                })
                .collect();
            let _ = writeln!(text, "{:#}", serde_json::Value::Array(list));
        }
        Form::Lines => {
            for finding in findings {
                let place = finding.place.as_ref();
                let (file, line) = place.map_or(("-", 0), |place| (&*place.file, place.line));
                let advice = finding.advice.as_ref().map(|advice| format!(" ({advice})")).unwrap_or_default();
                let column = column(finding).unwrap_or(1);
                let _ =
                    writeln!(text, "{file}:{}:{column}: {}: {}{advice}", line.max(1), finding.severity.word(), finding.message);
            }
        }
        Form::Text => {
            for finding in findings {
                let _ = writeln!(text, "{}", Finding { advice: None, ..finding.clone() });
                if let (Some(source), Some(column)) =
                    (finding.place.as_ref().and_then(|place| place.text.as_ref()), column(finding))
                {
                    let before: String =
                        source.chars().take(column - 1).map(|character| if character == '\t' { '\t' } else { ' ' }).collect();
                    let _ = writeln!(text, "    {source}\n    {before}^");
                }
                if let Some(advice) = &finding.advice {
                    let _ = writeln!(text, "    {advice}");
                }
            }
            text.push_str(&summary(findings));
        }
    }
    text
}

fn summary(findings: &[Finding]) -> String {
    let count = |severity: Severity, word: &str| {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
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

/// Where in its line a finding points to: at what it quotes first, if the line has that; counted in characters from one.
fn column(finding: &Finding) -> Option<usize> {
    let text = finding.place.as_ref()?.text.as_ref()?;
    let quoted = finding.message.split('`').nth(1).unwrap_or_default();
    let candidates = [quoted, quoted.split(" = ").next().unwrap_or_default(), quoted.rsplit(" = ").next().unwrap_or_default()];
    let byte = candidates.iter().filter(|candidate| !candidate.is_empty()).find_map(|candidate| text.find(*candidate));
    let byte = byte.unwrap_or_else(|| text.len() - text.trim_start().len());
    Some(text.get(..byte)?.chars().count() + 1)
}
