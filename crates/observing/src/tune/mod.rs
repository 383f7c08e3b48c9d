//! `bolide tune`: records what a running instance does, proposes settings (`bolide_services::tuning`), shows them as a change of
//! the configuration, and with `--write` or `--try` makes it. It changes the instance only by writing the file and by a reload.

mod file;
mod recording;
mod report;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bolide_command_line::ObservingRequest;
use bolide_configuration::instance_commands::{EXIT_MISUSED, EXIT_NO_ANSWER, EXIT_REFUSED};
use bolide_services::tuning::changes;
use bolide_services::tuning::proposal::{Proposal, judge, propose};
use serde_json::json;

use crate::instances::{Located, converse, find, no_answer};
use crate::output::{Ending, say};
use file::Configuration;
use recording::Record;

/// The longest time for which `--seconds` records.
const MAX_SECONDS: u32 = 24 * 3600;
/// For how long `--try` records, unless `--seconds` is given: each time before and after the change.
const TRIAL_SECONDS: u32 = 60;

/// Runs the command.
pub fn run(request: &ObservingRequest, output: &mut impl Write) -> Result<(), Ending> {
    let refuse = |why: String| Ending::Refused((EXIT_REFUSED, why));
    let instance = request.arguments.first().map(String::as_str);
    let is_trial = request.has("--try");
    let misused = |why: String| Ending::Refused((EXIT_MISUSED, why));
    let seconds = request.number("--seconds", MAX_SECONDS).map_err(misused)?.or(is_trial.then_some(TRIAL_SECONDS));
    let is_json = request.has("--json");
    // JSON is for programs, which write what they choose.
    if let Some(flag) = ["--try", "--write"].into_iter().find(|flag| is_json && request.has(flag)) {
        return Err(misused(format!("`--json` and `{flag}` can't be combined")));
    }
    if let Some(seconds) = seconds.filter(|_| !is_json) {
        say(output, &format!("recording for {seconds} s\n"))?;
    }
    let record = Record::make(instance, seconds)?;
    let present = record.present(request.has("--threads"));
    let proposal = propose(&record.recorded, record.machine, &present).map_err(refuse)?;
    if is_json {
        return say(output, &format!("{}\n", report::as_json(&record, &proposal)));
    }
    let configuration = Configuration::of(&record.configurations);
    let changed = configuration.as_ref().ok().and_then(|configuration| changes::apply(&configuration.text, &proposal.lines));
    let path = configuration.as_ref().map(|configuration| configuration.path.as_path()).unwrap_or(Path::new(""));
    say(output, &report::whole(&record, &proposal, path, changed.as_ref()))?;
    if !request.has("--write") && !is_trial || proposal.lines.is_empty() {
        return Ok(());
    }
    let configuration = configuration.map_err(refuse)?;
    let changed = changed.ok_or_else(|| refuse(format!("{}: it has no section [uwsgi]", configuration.path.display())))?;
    let kept = configuration.replace(&changed.text).map_err(refuse)?;
    say(output, &format!("\nwritten; the original file is {}\n", kept.display()))?;
    if !is_trial {
        return say(output, "a reload applies it: bolide reload --wait\n");
    }
    try_out(instance, seconds.unwrap_or(TRIAL_SECONDS), &record, &configuration, &proposal, output)
}

/// Reloads, records again, and goes back if it is not better.
fn try_out(
    instance: Option<&str>,
    seconds: u32,
    before: &Record,
    configuration: &Configuration,
    proposal: &Proposal,
    output: &mut impl Write,
) -> Result<(), Ending> {
    if let Err(ending) = reload(instance) {
        configuration.restore().map_err(|why| Ending::Refused((EXIT_REFUSED, why)))?;
        say(output, "the original file is restored, because the instance could not be reloaded with the proposal\n")?;
        return Err(ending);
    }
    say(output, &format!("reloaded; recording for {seconds} s\n"))?;
    let judged = match Record::make(instance, Some(seconds)) {
        Ok(after) => {
            say(output, &report::trial(before, &after))?;
            judge(&before.recorded, before.errors, &after.recorded, after.errors)
        }
        // What was not measured is not better.
        Err((_, why)) => Err(why),
    };
    match judged {
        Ok(why) => say(output, &format!("kept: {why}\n")),
        Err(why) => {
            configuration.restore().map_err(|why| Ending::Refused((EXIT_REFUSED, why)))?;
            reload(instance)?;
            say(output, &format!("not kept: {why}; the file and the instance are as they were before\n"))?;
            let lines = proposal.lines.len();
            Err(Ending::Refused((EXIT_REFUSED, format!("the trial of {lines} changes was not better"))))
        }
    }
}

fn reload(instance: Option<&str>) -> Result<(), Ending> {
    let Located::Channel(stream, pid) = find(instance)? else {
        return Err(Ending::Refused((
            EXIT_NO_ANSWER,
            "the instance has no control socket by which it can be reloaded".to_owned(),
        )));
    };
    // A reload has the time limits of the configuration.
    let question = json!({"ask": "reload", "wait": true, "now": false, "chain": false, "change": 0});
    let answer = converse(stream, &question, None::<u64>).map_err(|error| no_answer(pid, &error))?;
    if answer["ok"] == true {
        // The first requests of new workers pay for their imports, and are not representative.
        std::thread::sleep(Duration::from_secs(1));
        return Ok(());
    }
    let why = answer["message"].as_str().unwrap_or("the reload has failed");
    Err(Ending::Refused((EXIT_REFUSED, format!("master {pid}: {why}"))))
}
