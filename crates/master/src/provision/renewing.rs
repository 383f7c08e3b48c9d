//! Reads the configuration again at a reload and makes the plan of the next generation. It does not know what happens to the plan
//! when the generation has taken over or failed; the supervisor does. The master runs it.

use bolide_supervision::log_sink;
use bolide_supervision::sockets::socket_activation;

use crate::provision::configuration::Configuration;
use crate::provision::{Plan, Provision, changes, spool_directories};

/// Reads the configuration again, for the next generation. `warnings` gets what the client that asked for the reload has to know:
/// warnings, such as a certificate that could not be taken, and options that keep their values.
///
/// # Errors
/// The configuration can't be used: log lines. Nothing has changed then.
pub fn read_plan(
    configuration: &mut Configuration,
    provision: &Provision,
    warnings: &mut Vec<String>,
) -> Result<Plan, Vec<String>> {
    let read = configuration.read_again(provision.settings(), provision.privileges())?;
    for line in &read.lines {
        log_sink::line(&format!("reload: {line}"));
    }
    let one = |error: String| vec![error];
    let mut wanted = read.settings;
    wanted.listeners = socket_activation::merge(wanted.listeners);
    let renewed = changes::renewed(provision.settings(), &wanted, provision.room()).map_err(|error| one(error.to_string()))?;
    let program = configuration.program(&renewed.settings).map_err(|error| one(error.to_string()))?;
    spool_directories::create_missing(&renewed.settings, provision.privileges(), false)
        .map_err(|error| one(error.to_string()))?;
    let listeners = provision.listeners_for(&renewed.settings).map_err(|error| one(error.to_string()))?;
    let mut emptied = Vec::new();
    let memories = provision.memories_for(&renewed.settings, &mut emptied).map_err(|error| one(error.to_string()))?;
    warnings.extend(read.lines.into_iter().filter(|line| is_warning(line)));
    if !renewed.changed.is_empty() {
        log_sink::line(&format!("reload: the configuration has changed: {}", renewed.changed.join(", ")));
    }
    let kept = renewed.kept.iter().map(|option| format!("{option}: keeps its value until a restart"));
    for line in kept.chain(emptied) {
        log_sink::line(&format!("reload: {line}"));
        warnings.push(line);
    }
    Ok(Plan { settings: renewed.settings, listeners, memories, program })
}

/// Whether a line about a configuration is a warning: `WARNING: …`, or `uwsgi.ini:3: warning: …`.
fn is_warning(line: &str) -> bool {
    line.starts_with("WARNING: ") || line.contains(": warning: ")
}
