//! Formats the report of `bolide check` in each of its forms, and computes its exit status. It must not find anything itself.

use std::fmt::Write;
use std::ops::Range;

use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use serde_json::{Value as Json, json};

use crate::manual::paint::Paint;
use crate::subcommand::{FAILED, FORMATS, WARNED};

/// Width of the column of names of facts.
const FACT: usize = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people: the line and a caret below each diagnostic.
    Text,
    /// For editors and CI: `file:line:column: severity: message`.
    Lines,
    /// For programs: one list in JSON.
    Json,
    /// For code scanning: SARIF 2.1.0.
    Sarif,
    /// For GitHub workflows: a workflow command for each diagnostic, which annotates the line.
    Github,
}

impl Form {
    /// Returns the form for a word of [`FORMATS`].
    pub fn named(word: &str) -> Option<Form> {
        let forms = [Form::Text, Form::Lines, Form::Json, Form::Sarif, Form::Github];
        FORMATS.iter().zip(forms).find(|(name, _)| **name == word).map(|(_, form)| form)
    }
}

/// The findings so far, and the form of the report.
#[derive(Debug, Clone)]
pub struct CheckReport {
    pub(crate) form: Form,
    /// Warnings count as failures.
    pub(crate) strict: bool,
    /// Applications are loaded.
    pub(crate) loads: bool,
    /// Diagnostics about paths and users of this machine count.
    pub(crate) paths: bool,
    pub(crate) paint: Paint,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Facts about the machine, as a name and a value each. Only `bolide doctor` asks for them.
    pub(crate) facts: Option<Vec<(&'static str, String)>>,
    /// The configuration of the directory, if none was named.
    pub(crate) subject: Option<&'static str>,
}

impl CheckReport {
    /// Returns whether the machine is to be examined, too.
    pub fn examines_machine(&self) -> bool {
        self.facts.is_some()
    }

    /// Returns whether applications are loaded.
    pub fn loads(&self) -> bool {
        self.loads
    }

    /// Adds a fact about the machine.
    pub fn add_fact(&mut self, what: &'static str, value: String) {
        self.facts.get_or_insert_default().push((what, value));
    }

    /// Adds a finding of the caller. One that was found at the same place already counts once, with the higher severity.
    pub fn add(&mut self, diagnostic: Diagnostic) {
        let place = |diagnostic: &Diagnostic| diagnostic.location.as_ref().map(|location| (location.file.clone(), location.line));
        let is_same = |other: &&mut Diagnostic| other.message == diagnostic.message && place(other) == place(&diagnostic);
        match self.diagnostics.iter_mut().find(is_same) {
            Some(known) => known.severity = known.severity.max(diagnostic.severity),
            None => self.diagnostics.push(diagnostic),
        }
    }

    /// Returns the text and the exit status.
    pub fn finish(mut self) -> (String, i32) {
        if !self.paths {
            for diagnostic in self.diagnostics.iter_mut().filter(|diagnostic| diagnostic.is_local) {
                diagnostic.severity = diagnostic.severity.min(Severity::Warning);
            }
        }
        let counted = self.diagnostics.iter().filter(|diagnostic| self.paths || !diagnostic.is_local);
        let status = match counted.map(|diagnostic| diagnostic.severity).max() {
            Some(Severity::Error) => FAILED,
            Some(Severity::Warning) if self.strict => WARNED,
            _ => 0,
        };
        let text = match self.form {
            Form::Text => format!(
                "{}{}{}",
                self.subject.map(subject).unwrap_or_default(),
                facts(self.facts.as_deref()),
                text(&self.diagnostics, self.paint)
            ),
            Form::Lines => self.diagnostics.iter().map(line).collect(),
            Form::Json => format!("{:#}\n", json(&self.diagnostics, self.facts.as_deref())),
            Form::Sarif => format!("{:#}\n", sarif(&self.diagnostics)),
            Form::Github => self.diagnostics.iter().map(workflow_command).collect(),
        };
        (text, status)
    }
}

/// A list of the diagnostics; with facts an object of both.
fn json(diagnostics: &[Diagnostic], facts: Option<&[(&str, String)]>) -> Json {
    let diagnostics = Json::Array(diagnostics.iter().map(object).collect());
    let Some(facts) = facts else { return diagnostics };
    let facts: serde_json::Map<String, Json> =
        facts.iter().map(|(what, value)| ((*what).to_owned(), Json::String(value.clone()))).collect();
    json!({ "machine": facts, "diagnostics": diagnostics })
}

/// The line about a file that was not named.
fn subject(file: &str) -> String {
    format!("{file} of this directory:\n\n")
}

/// One line for each fact, and an empty one.
fn facts(facts: Option<&[(&str, String)]>) -> String {
    let lines = facts.unwrap_or_default().iter().map(|(what, value)| format!("{what:FACT$} {value}\n"));
    let text: String = lines.collect();
    if text.is_empty() { text } else { format!("{text}\n") }
}

fn text(diagnostics: &[Diagnostic], paint: Paint) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics {
        let place = diagnostic.location.as_ref().map(|location| format!("{}: ", paint.title(&location.to_string())));
        let word = paint.severity(diagnostic.severity, &format!("{}:", diagnostic.severity.word()));
        // Writing to a String can't fail.
        let _ = writeln!(text, "{}{word} {}", place.unwrap_or_default(), diagnostic.message);
        let source = diagnostic.location.as_ref().and_then(|location| location.text.as_ref());
        if let (Some(source), Some(span)) = (source, span(diagnostic)) {
            let before: String =
                source.chars().take(span.start).map(|character| if character == '\t' { '\t' } else { ' ' }).collect();
            let shown = without_login(source);
            // The marks end with the line, which is shorter without a login.
            let marks = "^".repeat(span.len().min(shown.chars().count().saturating_sub(span.start)).max(1));
            let _ = writeln!(text, "    {shown}\n    {before}{}", paint.severity(diagnostic.severity, &marks));
        }
        if let Some(advice) = &diagnostic.advice {
            let _ = writeln!(text, "    {advice}");
        }
        text.push('\n');
    }
    text.push_str(&summary(diagnostics));
    text
}

/// A line of a configuration without the user and the password of its addresses: reports end up in the logs of builds.
fn without_login(source: &str) -> String {
    let mut words = Vec::new();
    for word in source.split(' ') {
        let login = word.find("://").map(|start| start + 3).zip(word.rfind('@')).filter(|(start, end)| start < end);
        let shown = login.map_or(word.to_owned(), |(start, end)| format!("{}…{}", &word[..start], &word[end..]));
        words.push(match shown.split_once("pass=") {
            Some((before, after)) if word.contains("://") => {
                format!("{before}pass=…{}", after.find(['&', ',']).map_or("", |end| &after[end..]))
            }
            _ => shown,
        });
    }
    words.join(" ")
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

fn line(diagnostic: &Diagnostic) -> String {
    let (file, line) = diagnostic.location.as_ref().map_or(("-", 0), |location| (&*location.file, location.line));
    let column = column(diagnostic).unwrap_or(1);
    format!("{file}:{}:{column}: {}: {}\n", line.max(1), diagnostic.severity.word(), with_advice(diagnostic))
}

/// A diagnostic as a JSON object.
pub fn object(diagnostic: &Diagnostic) -> Json {
    let location = diagnostic.location.as_ref();
    json!({
        "file": location.map(|location| &*location.file),
        "line": location.map(|location| location.line).filter(|&line| line > 0),
        "column": column(diagnostic),
        "severity": diagnostic.severity.word(),
        "message": diagnostic.message,
        "advice": diagnostic.advice,
        "local": diagnostic.is_local,
    })
}

/// One log with one run. Its rules are the severities: diagnostics have no finer classes.
fn sarif(diagnostics: &[Diagnostic]) -> Json {
    let severities = [Severity::Error, Severity::Warning, Severity::Note];
    let about = |severity: Severity| match severity {
        Severity::Error => "Bolide can't start with this.",
        Severity::Warning => "It works, but probably not as intended.",
        Severity::Note => "Nothing is wrong; this is for information.",
    };
    let rules: Vec<Json> = severities
        .iter()
        .map(|&severity| {
            json!({
                "id": rule(severity),
                "shortDescription": { "text": about(severity) },
                "defaultConfiguration": { "level": severity.word() },
            })
        })
        .collect();
    let results: Vec<Json> = diagnostics
        .iter()
        .map(|diagnostic| {
            let mut result = json!({
                "ruleId": rule(diagnostic.severity),
                "ruleIndex": severities.iter().position(|&severity| severity == diagnostic.severity),
                "level": diagnostic.severity.word(),
                "message": { "text": with_advice(diagnostic) },
            });
            if let Some(location) = &diagnostic.location {
                result["locations"] = json!([sarif_location(location, column(diagnostic))]);
            }
            result
        })
        .collect();
    let driver = json!({ "name": "bolide check", "semanticVersion": env!("CARGO_PKG_VERSION"), "rules": rules });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{ "tool": { "driver": driver }, "columnKind": "unicodeCodePoints", "results": results }],
    })
}

fn rule(severity: Severity) -> String {
    format!("configuration-{}", severity.word())
}

/// A file, or else the name of a source that is not a file: the command line, a variable.
fn sarif_location(location: &Location, column: Option<usize>) -> Json {
    if location.line == 0 && !std::path::Path::new(&*location.file).is_file() {
        return json!({ "logicalLocations": [{ "name": &*location.file }] });
    }
    let mut physical = json!({ "artifactLocation": { "uri": uri(&location.file) } });
    if location.line > 0 {
        physical["region"] = json!({ "startLine": location.line });
        if let Some(column) = column {
            physical["region"]["startColumn"] = json!(column);
        }
    }
    json!({ "physicalLocation": physical })
}

/// A path as a URI reference (RFC 3986): relative paths stay relative.
fn uri(path: &str) -> String {
    let mut text = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            // Writing to a String can't fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

fn workflow_command(diagnostic: &Diagnostic) -> String {
    let word = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut properties = Vec::new();
    if let Some(location) = &diagnostic.location {
        properties.push(format!("file={}", property(&location.file)));
        if location.line > 0 {
            properties.push(format!("line={}", location.line));
            properties.extend(column(diagnostic).map(|column| format!("col={column}")));
        }
    }
    let properties = if properties.is_empty() { String::new() } else { format!(" {}", properties.join(",")) };
    format!("::{word}{properties}::{}\n", data(&with_advice(diagnostic)))
}

fn with_advice(diagnostic: &Diagnostic) -> String {
    let advice = diagnostic.advice.as_ref().map(|advice| format!(" ({advice})")).unwrap_or_default();
    format!("{}{advice}", diagnostic.message)
}

/// The column of a diagnostic, counted in characters from one.
fn column(diagnostic: &Diagnostic) -> Option<usize> {
    Some(span(diagnostic)?.start + 1)
}

/// What is at fault in the line of a diagnostic, counted in characters from zero: the value, if the first quotation of the
/// message is `OPTION = VALUE`; else the quotation; else the first character of the line.
fn span(diagnostic: &Diagnostic) -> Option<Range<usize>> {
    let text = diagnostic.location.as_ref()?.text.as_ref()?;
    let quoted = diagnostic.message.split('`').nth(1).unwrap_or_default();
    let found = |part: &str, from: usize| {
        let start = text.get(from..).filter(|_| !part.is_empty())?.find(part)? + from;
        Some(start..start + part.len())
    };
    let (key, value) = quoted.split_once(" = ").unwrap_or((quoted, ""));
    let key = found(key, 0);
    let after_key = key.as_ref().map_or(0, |key| key.end);
    let start = text.len() - text.trim_start().len();
    let bytes = found(value, after_key).or_else(|| found(quoted, 0)).or(key).unwrap_or(start..(start + 1).min(text.len()));
    let characters = |range: Range<usize>| text.get(range).map(|part| part.chars().count());
    let first = characters(0..bytes.start)?;
    Some(first..first + characters(bytes).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_without_the_login_of_an_address() {
        for (line, shown) in [
            ("cache2 = name=x,engine=redis://me:word@h:1/0", "cache2 = name=x,engine=redis://…@h:1/0"),
            ("a = redis+unix:///s?pass=word&db=1", "a = redis+unix:///s?pass=…&db=1"),
            ("a = redis://h?pass=word", "a = redis://h?pass=…"),
            ("mail = me@example.org", "mail = me@example.org"),
            ("http = @name", "http = @name"),
        ] {
            assert_eq!(without_login(line), shown);
        }
    }
}
