//! How a command exits: what it has found is written immediately, and a reason to end early has an exit status. The command-line
//! process runs it.

use std::io::Write;

use crate::instances::Refusal;

/// Why a command has exited early.
pub enum Ending {
    /// With an exit status and the reason.
    Refused(Refusal),
    /// Its output can't be written.
    Output(std::io::Error),
}

impl From<Refusal> for Ending {
    fn from(refusal: Refusal) -> Ending {
        Ending::Refused(refusal)
    }
}

impl From<std::io::Error> for Ending {
    fn from(error: std::io::Error) -> Ending {
        Ending::Output(error)
    }
}

/// Writes a text immediately, so that a reader sees it while the command goes on.
pub fn say(output: &mut impl Write, text: &str) -> Result<(), Ending> {
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}
