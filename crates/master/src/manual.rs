//! The reference page about processes, generated from the tables that the master uses. It has no facts of its own. The tests and
//! the command line run it.

use bolide_supervision::processes::auxiliary;

use crate::children::{child, single_signals};
use crate::control::commands::{COMMANDS, UNSUPPORTED_LETTERS};
use crate::control::signals::documented;
use crate::generations::reload;
use std::fmt::Write;

/// Returns the text of `docs/reference/processes.md`.
pub fn page() -> String {
    let signals = signals_as_markdown();
    let single = single_signals::as_markdown();
    let children = child::as_markdown();
    let reload = reload::as_markdown();
    let auxiliaries = auxiliary::as_markdown();
    let letters = letters_as_markdown();
    let statuses = bolide_configuration::instance_commands::statuses_as_markdown();
    format!(
        "# Signals and processes\n\nA test keeps this page equal to the tables in `crates/master/src/control/commands.rs`, \
         `control/signals.rs`, `children/single_signals.rs`, `children/child.rs` and `generations/reload.rs`, \
         and in `crates/supervision/src/processes/auxiliary.rs`.\n\n\
         ## Signals to the master\n\n{signals}\n## Signals to one process\n\n\
         They have this effect if the master did not get the same signal. A signal to the whole group acts once, as in \
         the table above. The log contains a line for each one.\n\n{single}\n\
         ## Letters of `master-fifo`\n\nThese are uWSGI's letters. Write one or several to the pipe, for \
         example with `echo r > FILE`.\n\n\
         {letters}\n\
         ## Exit statuses of the commands for a running instance\n\n{statuses}\n\
         ## The life of a prototype or worker\n\n\
         A row is a state, and a column is an event. An empty cell does not change the state.\n\n{children}\n\
         ## The stages of a reload\n\n\
         The first generation goes through them too. Any other event does not change the stage.\n\n{reload}\n\
         ## The life of an auxiliary process\n\n\
         The attendant, the exporter of spans, daemons, commands of `cron`, actions of alarms, hooks of touched files and log \
         programs.\n\n{auxiliaries}"
    )
}

/// Returns the signals for the man page.
pub fn signals_as_roff() -> String {
    let plain = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    documented().fold(String::new(), |page, (name, help)| page + &format!(".TP\n.B {}\n{}\n", plain(&name), plain(help)))
}

fn signals_as_markdown() -> String {
    let page = "| signal | effect on the master |\n|---|---|\n".to_owned();
    documented().fold(page, |page, (name, help)| page + &format!("| {name} | {help} |\n"))
}

fn letters_as_markdown() -> String {
    let mut page = "| letter | effect |\n|---|---|\n".to_owned();
    let letters = COMMANDS.iter().flat_map(|command| command.row().letters);
    let unsupported = UNSUPPORTED_LETTERS.iter().map(|(letter, _, help)| (letter, help));
    for (letter, help) in letters.map(|(letter, help)| (letter, help)).chain(unsupported) {
        // Writing to a String can't fail.
        let _ = writeln!(page, "| `{letter}` | {help} |");
    }
    page + "| `0` to `9` | From now on, commands are read from the FIFO of this number. |\n"
}

#[cfg(test)]
mod tests {
    use super::page;

    /// If set to 1, the test writes the page instead of comparing it.
    const WRITE: &str = "BOLIDE_WRITE_REFERENCE";

    #[test]
    fn the_reference_page_is_that_of_the_tables() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/processes.md");
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, page()).expect("docs/reference/processes.md is written");
        }
        let stored = std::fs::read_to_string(&path).expect("docs/reference/processes.md is there");
        assert!(stored == page(), "docs/reference/processes.md differs from the tables: run this test with {WRITE}=1");
    }
}
