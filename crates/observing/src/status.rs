//! `bolide status`: asks the instance, measures its processes, and prints the result once or at intervals. It changes nothing. The
//! process of the command line runs it.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use bolide_configuration::instance_commands::InstanceRequest;
use bolide_services::route_names::masked;
use serde_json::{Value, json};

use crate::instances::ask_about;
use crate::output::{Ending, say};
use crate::status_words;
use crate::usage::Usages;

/// Moves to the first place of a terminal and clears what is behind it (ECMA-48, CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Prints the status; with `--watch` again and again, until the reader of the output or the instance is gone.
///
/// # Errors
/// There is no such instance, it does not answer, or the output can't be written.
pub fn run(request: &InstanceRequest, output: &mut impl Write) -> Result<(), Ending> {
    let mut usages = Usages::default();
    let clears = !request.json && std::io::stdout().is_terminal();
    loop {
        let (_, mut answer) = ask_about(request.instance.as_deref(), &json!({"ask": "status"}))?;
        usages.add_to(&mut answer);
        if !request.unmasked {
            mask(&mut answer);
        }
        let text = if request.json { format!("{answer}\n") } else { status_words::of(&answer) };
        match request.watch_s {
            None => return say(output, &text),
            Some(_) if clears => say(output, &format!("{CLEAR}{text}"))?,
            Some(_) if request.json => say(output, &text)?,
            Some(_) => say(output, &format!("{text}\n"))?,
        }
        std::thread::sleep(Duration::from_secs(request.watch_s.unwrap_or(1).into()));
    }
}

/// Masks the values of query strings: a status is pasted into messages to others, and such values may be passwords.
fn mask(answer: &mut Value) {
    for worker in answer["workers"].as_array_mut().into_iter().flatten() {
        for busy in worker["in_flight"].as_array_mut().into_iter().flatten() {
            busy["request"] = masked(busy["request"].as_str().unwrap_or_default()).into();
        }
    }
}
