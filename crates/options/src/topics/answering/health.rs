//! `health-path`: the form of its value, and the rules and files that it hides. It does not answer anything. Runs in the process
//! that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::RouteRule;

use crate::context::Context;
use crate::topics::files::FilesDraft;
use crate::values;

/// Maximum length of the path, in bytes. A health check with a longer one is a mistake.
const MAX_PATH_BYTES: usize = 255;

/// The options of rules that see a request's path. A health check never reaches them.
const RULES_OF_PATHS: &[&str] = &["route", "route-uri"];

/// Parses the path.
pub fn health_path(pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |message: String, advice: &str| Err(Diagnostic::error(Some(&pair.location), message).advise(advice));
    if !text.starts_with('/') {
        return wrong(format!("`{} = {text}` does not begin with a slash", pair.key), "write a path such as /healthz");
    }
    if text.len() > MAX_PATH_BYTES {
        let message = format!("the path of `{}` is {} bytes long, and {MAX_PATH_BYTES} are possible", pair.key, text.len());
        return wrong(message, "write a short path such as /healthz");
    }
    // RFC 3986 section 3.3: a target contains other characters only in percent-encoding, and paths are compared as they arrive.
    if text.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#' | b'%')) {
        let message = format!("`{} = {text}` contains a character that a path can't have", pair.key);
        return wrong(message, "write a path without a query, such as /healthz, in letters, digits, dashes and slashes");
    }
    Ok(text)
}

/// Warns of rules and files for exactly this path, which health checks do not reach.
pub fn warn_of_hidden(path: &str, routes: &[(RouteRule, Location)], files: &FilesDraft, context: &mut Context) {
    let rules = routes.iter().filter(|(rule, _)| RULES_OF_PATHS.contains(&&*rule.option) && literal(&rule.text) == path);
    let rules = rules.map(|(rule, location)| (format!("{} = {}", rule.option, rule.text), location));
    let is_same = |prefix: &str| prefix == path || prefix.trim_end_matches('/') == path;
    let maps = files.maps.iter().filter(|(_, prefix, ..)| is_same(prefix));
    let maps = maps.map(|(_, prefix, target, location)| (format!("{prefix}={target}"), location));
    for (line, location) in rules.chain(maps) {
        let message = format!("`{line}` does not apply to GET and HEAD: `health-path = {path}` answers them first");
        context.diagnostics.push(Diagnostic::warning(Some(location), message).advise("remove it, or choose another health-path"));
    }
}

/// The only path that a rule's expression matches, if it is written as `^/path$`; otherwise the expression as it is.
fn literal(text: &str) -> String {
    let expression = text.split_ascii_whitespace().next().unwrap_or_default();
    expression.trim_start_matches('^').trim_end_matches('$').replace('\\', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_for_one_path_is_found_by_that_path() {
        for (text, path) in [
            ("^/healthz$ donotlog:", "/healthz"),
            ("/healthz return:200", "/healthz"),
            (r"^/health\.txt$ last:", "/health.txt"),
            ("^/health addheader:A: b", "/health"),
            (".* last:", ".*"),
            ("", ""),
        ] {
            assert_eq!(literal(text), path, "{text}");
        }
    }
}
