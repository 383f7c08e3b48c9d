//! The directories of the spooler: they are created for the application's user if they are missing. It knows nothing of jobs. The
//! master runs it, before prototypes that write there are started.

use bolide_contract::settings::Settings;
use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{Rights, create_directory};
use bolide_supervision::log_sink;
use bolide_supervision::privileges::Privileges;

/// As uWSGI creates them, without the rights of other users.
const MODE: u32 = 0o750;

/// Creates the missing directories. At a reload the configuration may be that of the application's user, so only the rights of
/// this user count then (`has_roots_rights` is false).
///
/// # Errors
/// A directory can't be created: where it was configured, and what to do.
pub fn create_missing(settings: &Settings, user: Option<&Privileges>, has_roots_rights: bool) -> Result<(), StartError> {
    // Processes see another root than the master.
    if settings.confinement.root.is_some() {
        return Ok(());
    }
    let rights = if has_roots_rights { Rights::root_first(user) } else { Rights::user(user) };
    for directory in &settings.spooling.directories {
        let path = directory.path.display();
        match create_directory(&directory.path, MODE, rights) {
            Ok(true) => log_sink::line(&format!("created the directory of the spooler: {path}")),
            Ok(false) => {}
            Err(error) => {
                return Err(StartError::new(format!(
                    "{}: the directory of the spooler, {path}, can't be created: {error}. Create it for the application's user",
                    directory.origin
                )));
            }
        }
    }
    Ok(())
}
