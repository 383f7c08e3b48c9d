//! Resolves the options of routes, header fields, error pages and compression to settings. Runs in the process that reads the
//! configuration.

pub mod named_files;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::{Answering, Coding, Collected, RouteRule};
use bolide_routes::Routes;

use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::services::named_in_rules::CompiledRules;
use crate::row::OptionRow;
use crate::values;

/// Adds a routing rule: the option's name is its kind.
pub fn add_route(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let rule = RouteRule { option: row.name().to_owned(), text: values::text(pair)?, origin: pair.location.to_string() };
    draft.of::<AnsweringDraft>().routes.push((rule, pair.location.clone()));
    Ok(())
}

pub fn add_header(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (name, value) = field(pair)?;
    // Configurations in use set `Connection: keep-alive`, which uWSGI sends and does not honour.
    match name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive") {
        true => draft.diagnostics.push(
            Diagnostic::warning(
                Some(&pair.location),
                format!("`add-header = {name}: …` has no effect: the server manages connections"),
            )
            .advise("remove the line, and see `http-keepalive`"),
        ),
        false => draft.of::<AnsweringDraft>().answering.added.push((name, value)),
    }
    Ok(())
}

pub fn remove_header(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let name = name(&values::text(pair)?, pair)?;
    if name.eq_ignore_ascii_case("content-length") {
        let message = format!("`{} = {name}` has no effect: the server sets lengths", pair.key);
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("remove the line"));
    } else {
        draft.of::<AnsweringDraft>().answering.removed.push(name);
    }
    Ok(())
}

/// The first `compress-types` replaces the default types.
pub fn add_compressed_types(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    if !std::mem::replace(&mut draft.of::<AnsweringDraft>().has_types, true) {
        draft.of::<AnsweringDraft>().answering.compression.types.clear();
    }
    draft.of::<AnsweringDraft>().answering.compression.types.extend(types(pair)?);
    Ok(())
}

impl AnsweringDraft {
    /// Compiles the routes, so that errors in them are reported before anything starts.
    pub fn complete(self, checked_cache: Option<String>, context: &mut Context) -> (Vec<RouteRule>, Answering, CompiledRules) {
        let (rules, locations): (Vec<RouteRule>, Vec<Location>) = self.routes.into_iter().unzip();
        let (routes, mistakes) = Routes::compile(&rules, &context.folder);
        for mistake in mistakes {
            let location = locations.get(mistake.rule);
            let diagnostic = match mistake.is_fatal {
                true => Diagnostic::error(location, mistake.message),
                false => Diagnostic::warning(location, mistake.message),
            };
            context.diagnostics.push(if mistake.advice.is_empty() { diagnostic } else { diagnostic.advise(mistake.advice) });
        }
        let routes = routes.unwrap_or_default();
        let mut answering = Answering { checked_cache, ..self.answering };
        for (_, page) in &mut answering.error_pages {
            *page = context.absolute(&page);
        }
        (rules, answering, CompiledRules { routes, locations })
    }
}

/// `Name: value`.
fn field(pair: &Pair) -> Result<(String, String), Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |message: String| Diagnostic::error(Some(&pair.location), message);
    let Some((name_text, value)) = text.split_once(':') else {
        return Err(wrong(format!("`{} = {text}` has no colon", pair.key)).advise("write `Name: value`"));
    };
    let name = name(name_text, pair)?;
    let value = value.trim().to_owned();
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(wrong(format!("the value of `{name}` has a control character")));
    }
    // RFC 9110 section 7.6.1, RFC 9112 section 6: these fields describe the connection and the framing of each single response.
    const OWN: &[&str] = &["content-length", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"];
    if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(wrong(format!("the server sets `{name}` itself: it differs between responses")).advise("remove the line"));
    }
    Ok((name, value))
}

fn name(text: &str, pair: &Pair) -> Result<String, Diagnostic> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_token) {
        true => Ok(text.to_owned()),
        false => Err(Diagnostic::error(Some(&pair.location), format!("`{text}` is not a name of a header field"))
            .advise("names have letters, digits and dashes")),
    }
}

/// `NAME VARIABLE`.
pub fn collected(pair: &Pair, pulled: bool) -> Result<Collected, Diagnostic> {
    let text = values::text(pair)?;
    match text.split_once(' ').map(|(field, variable)| (field, variable.trim())) {
        Some((field, variable)) if !variable.is_empty() && !variable.contains(' ') => {
            Ok(Collected { field: name(field, pair)?, variable: variable.to_owned(), pulled })
        }
        _ => Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no variable", pair.key))
            .advise("write the field's name, a space, and the variable's name, such as `Content-Type TYPE`")),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|word| !word.is_empty())
}

pub fn codings(pair: &Pair) -> Result<Vec<Coding>, Diagnostic> {
    let text = values::text(pair)?;
    if matches!(text.as_str(), "false" | "off" | "no" | "0") {
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for word in words(&text) {
        let coding = match word {
            "gzip" => Coding::Gzip,
            "br" | "brotli" => Coding::Brotli,
            "zstd" => Coding::Zstd,
            _ => {
                return Err(Diagnostic::error(Some(&pair.location), format!("`{word}` is not a way to compress"))
                    .advise("write one or more of gzip, br and zstd, the preferred one first"));
            }
        };
        if !made.contains(&coding) {
            made.push(coding);
        }
    }
    Ok(made)
}

fn types(pair: &Pair) -> Result<Vec<String>, Diagnostic> {
    let text = values::text(pair)?.to_ascii_lowercase();
    match words(&text).find(|word| !(word.contains('/') || word.starts_with("*+"))) {
        Some(word) => Err(Diagnostic::error(Some(&pair.location), format!("`{word}` is not a media type"))
            .advise("write types such as `text/html`, `text/*` and `*+json`")),
        None => Ok(words(&text).map(str::to_owned).collect()),
    }
}

/// Settings of routes, header fields and compression.
#[derive(Default)]
pub struct AnsweringDraft {
    pub routes: Vec<(RouteRule, Location)>,
    pub answering: Answering,
    /// `compress-types` has replaced the default types.
    pub has_types: bool,
}
