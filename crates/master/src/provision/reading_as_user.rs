//! Reads a configuration that the application's user may write, in a child that has permanently become that user, when an
//! instance of root reloads. Files that it names, and programs that it executes (`gunicorn.conf.py`), thus gain no rights of
//! root. It does not decide which settings are applied (`changes` does). The master runs it and waits for it, as when it reads
//! itself.

use std::io;

use bolide_command_line::PrivilegedOption;
use bolide_contract::settings::Settings;
use bolide_supervision::privileges::Privileges;

use crate::provision::child_of_user;

/// Time limit, in milliseconds. The master does nothing else meanwhile, and the user could make it wait.
const READING_MS: u64 = 10_000;

/// The result of the child's reading.
#[derive(Debug)]
pub struct Answer {
    pub settings: Settings,
    /// Log lines about it.
    pub warnings: Vec<String>,
    pub said: Vec<PrivilegedOption>,
}

/// The encoding of [`Answer`] between the child and the master.
type Wire = Result<(Settings, Vec<String>, Vec<PrivilegedOption>), Vec<String>>;

/// Reads the configuration with `read`, in a child that runs as this user.
///
/// # Errors
/// Log lines that describe the errors in it, or why no child can read it.
pub fn run(privileges: &Privileges, read: impl FnOnce() -> Result<Answer, Vec<String>>) -> Result<Answer, Vec<String>> {
    let trouble = |error: io::Error| vec![format!("the configuration can't be read as the user of uid: {error}")];
    let work = || {
        let encoded: Wire = read().map(|answer| (answer.settings, answer.warnings, answer.said));
        // Without an answer, the master reports that the child has ended.
        serde_json::to_vec(&encoded).unwrap_or_default()
    };
    let answer = child_of_user::run(Some(privileges), &[], READING_MS, work).map_err(trouble)?;
    let outcome: Wire =
        serde_json::from_slice(&answer).map_err(|_| trouble(io::Error::other("the child that reads it has ended")))?;
    outcome.map(|(settings, warnings, said)| Answer { settings, warnings, said })
}
