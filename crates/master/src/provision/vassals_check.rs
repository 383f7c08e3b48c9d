//! `bolide check` of an emperor's configuration: the diagnostics of its vassals' configurations, which processes of their users
//! have read. The process of the command runs it.

use std::path::Path;

use bolide_command_line::CheckReport;
use bolide_configuration::diagnostic::{Diagnostic, Location, Severity};
use bolide_contract::emperor::Emperor;
use bolide_contract::settings::Settings;
use bolide_emperor::{Checked, Origin};
use bolide_supervision::privileges;
use bolide_supervision::text::counted;
use nix::unistd::geteuid;
use serde_json::Value;

use crate::provision::configuration::Configuration;

/// What a process reports about a vassal, for [`diagnostics_of`].
const COMMAND: [&str; 3] = ["check", "--format", "json"];

/// Checks the configurations of all vassals, and adds what is wrong with them to the report.
pub fn check_vassals(settings: &Settings, emperor: &Emperor, configuration: &Configuration, report: &mut CheckReport) {
    if let Some(program) = &emperor.programs.usual {
        let message = format!("the vassals are not checked, because emperor-wrapper executes {} for them", program.display());
        return report.add(Diagnostic::note(None, message));
    }
    let identity = match geteuid().is_root().then(|| privileges::resolve(&settings.identity)).transpose() {
        Ok(identity) => identity.flatten(),
        Err(error) => return report.add(Diagnostic::error(None, format!("the vassals are not checked: {error}"))),
    };
    let origin = Origin {
        command: configuration.command_alone(),
        directory: configuration.directory().to_owned(),
        court: String::new(),
        application: settings.application.clone(),
    };
    let load: &[&str] = if report.loads() { &["--load"] } else { &[] };
    let (problems, checked) = bolide_emperor::check(emperor, &origin, identity.as_ref(), &[&COMMAND, load].concat());
    problems.into_iter().for_each(|problem| report.add(Diagnostic::error(None, problem).local()));
    let message = format!("{} checked", counted(checked.len() as u64, "vassal"));
    checked.into_iter().flat_map(|checked| diagnostics_of(&checked)).for_each(|diagnostic| report.add(diagnostic));
    report.add(Diagnostic::note(None, message));
}

/// The diagnostics that a process has reported.
fn diagnostics_of(checked: &Checked) -> Vec<Diagnostic> {
    let Checked { name, directory, report } = checked;
    let failed = |why: &str| vec![Diagnostic::error(None, format!("vassal {name} can't be checked: {why}"))];
    match report.as_ref().map(|text| serde_json::from_str::<Vec<Value>>(text)) {
        Ok(Ok(list)) => list.iter().filter_map(|one| diagnostic_of(name, directory, one)).collect(),
        Ok(Err(_)) => failed("its process has exited without a report"),
        Err(error) => failed(error),
    }
}

/// One diagnostic. Without a line it is about the vassal.
fn diagnostic_of(name: &str, directory: &Path, one: &Value) -> Option<Diagnostic> {
    let severity = Severity::ALL.into_iter().find(|severity| one["severity"] == severity.word())?;
    let message = one["message"].as_str()?;
    let line = one["line"].as_u64().and_then(|line| u32::try_from(line).ok());
    let location =
        one["file"].as_str().zip(line).map(|(file, line)| Location::file(&directory.join(file).to_string_lossy(), line));
    let message = match &location {
        Some(_) => message.to_owned(),
        None => format!("vassal {name}: {message}"),
    };
    let advice = one["advice"].as_str().map(str::to_owned);
    Some(Diagnostic { severity, location, message, advice, is_local: one["local"].as_bool()? })
}
