//! The reference page about processes, generated from the tables that the master runs by.

use crate::child;
use crate::deeds;
use crate::signals;

/// `docs/reference/processes.md`.
pub fn page() -> String {
    let signals = signals::as_markdown();
    let children = child::as_markdown();
    let letters = deeds::letters_as_markdown();
    let statuses = bolide_options::statuses_as_markdown();
    format!(
        "# Signals and processes\n\nGenerated from the tables in `crates/master/src/signals.rs` and `child.rs`; a test compares.\n\n\
         ## Signals to the master\n\n{signals}\n## Letters of `master-fifo`\n\nuWSGI's, each written to the pipe by itself or with others: `echo r > FILE`.\n\n{letters}\n\
         ## Exit statuses of the commands for a running instance\n\n{statuses}\n\
         ## The life of a prototype or worker\n\n\
         A row is a state, a column an event; an empty cell leaves the state as it is.\n\n{children}"
    )
}

#[cfg(test)]
mod tests {
    use super::page;

    /// Set to 1, it writes the page instead of comparing it.
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
