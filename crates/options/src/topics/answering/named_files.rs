//! uWSGI's recipe for files that the application names in a field of its response: `collect-header` makes the field a variable,
//! and a response route serves the file of that name. It becomes the settings of `x-sendfile` and `x-accel-redirect`, which do
//! the same. It does not open files. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::answering::{Collected, RouteRule};

use crate::context::Context;
use crate::topics::answering::AnsweringDraft;
use crate::topics::files::FilesDraft;

const ROUTE: &str = "response-route-if-not";
/// The fields that can name a file.
const BY_PATH: &str = "X-Sendfile";
const BY_LOCATION: &str = "X-Accel-Redirect";
/// Every directory.
const ROOT: &str = "/";

/// Replaces `response-route-if-not = empty:${FILE} static:${FILE}`. Other rules stay, and get their own errors.
pub fn take_rules(answering: &mut AnsweringDraft, files: &mut FilesDraft, context: &mut Context) {
    let collected = &answering.answering.collected;
    for (rule, location) in &mut answering.routes {
        let Some((variable, directory)) = recipe(rule) else { continue };
        let Some(field) = collected.iter().find(|one| one.variable == variable).map(|Collected { field, .. }| field) else {
            continue;
        };
        let is_taken = match (field.eq_ignore_ascii_case(BY_PATH), field.eq_ignore_ascii_case(BY_LOCATION), directory) {
            (true, _, "") => add_paths(files, location, context),
            (_, true, "") => add_whole_paths(files, location, context),
            (_, true, directory) => {
                files.sendfile_locations.push((ROOT.to_owned(), directory.to_owned(), location.clone()));
                true
            }
            _ => false,
        };
        if is_taken {
            // The field is taken out of the response before its rules run.
            rule.text = format!("empty:${{{variable}}} last:");
        }
    }
}

/// Returns the variable of such a rule, and the directory that its action puts in front of the name.
fn recipe(rule: &RouteRule) -> Option<(String, &str)> {
    let (condition, action) = rule.text.split_once(' ').filter(|_| rule.option == ROUTE)?;
    let variable = condition.strip_prefix("empty:${")?.strip_suffix('}')?;
    let (directory, named) = action.trim().strip_prefix("static:")?.split_once("${")?;
    let is_same = named.strip_suffix('}') == Some(variable);
    is_same.then(|| (variable.to_owned(), directory))
}

/// The field has the whole path.
fn add_paths(files: &mut FilesDraft, location: &Location, context: &mut Context) -> bool {
    let directories = directories(files, location, context);
    files.sendfile_paths.extend(directories.into_iter().map(|directory| (directory, location.clone())));
    true
}

fn add_whole_paths(files: &mut FilesDraft, location: &Location, context: &mut Context) -> bool {
    let directories = directories(files, location, context);
    let location_of = |directory: String| {
        let path = context.absolute(&directory).to_string_lossy().into_owned();
        (path, directory, location.clone())
    };
    files.sendfile_locations.extend(directories.into_iter().map(location_of));
    true
}

/// The directories of `static-safe`, or every directory: the application may name any file, as in uWSGI.
fn directories(files: &FilesDraft, location: &Location, context: &mut Context) -> Vec<String> {
    if !files.safe.is_empty() {
        return files.safe.clone();
    }
    let message = "the application may name every file that its user can read, as in uWSGI";
    let warning = Diagnostic::warning(Some(location), message);
    context.diagnostics.push(warning.advise("write `static-safe = DIRECTORY` for the directory of the files"));
    vec![ROOT.to_owned()]
}
