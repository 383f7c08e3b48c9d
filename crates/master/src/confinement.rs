//! What the master itself gives up at its start, for good. The master runs it.

use bolide_contract::confinement::Confinement;

use crate::between::RawIdentity;
use crate::error::StartError;
use crate::privileges;

/// `immediate-uid`, `immediate-gid`: becomes that user. False where nobody else is asked for, or it is us already.
///
/// # Errors
/// An unknown name, root, or a change that only root may make.
pub fn take_immediate_identity(confinement: &Confinement) -> Result<bool, StartError> {
    let Some(privileges) = privileges::resolve_immediate(confinement)? else { return Ok(false) };
    let taken = RawIdentity::of(&privileges).take();
    taken.map_err(|error| StartError::new(format!("the user of immediate-uid and immediate-gid can't be had: {error}")))?;
    Ok(true)
}
