//! The program of a prototype, and the directory in which it starts. It does not know about languages, and starts nothing. The
//! master runs it.

use std::ffi::OsString;
use std::path::PathBuf;

use bolide_contract::settings::Settings;
use bolide_supervision::error::StartError;
use bolide_supervision::files::guarded_files::{self, Rights};
use bolide_supervision::privileges;

/// The program of a prototype. The number of the boot descriptor follows its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub executable: PathBuf,
    pub arguments: Vec<OsString>,
    /// The directory that contains the Python package `bolide`, if known.
    pub package_directory: Option<PathBuf>,
}

/// What is installed with the server.
#[derive(Debug, Clone, Default)]
pub struct Installed {
    /// The program `bolide`, which may be this process or in the package. `None`: only Python runs the master here.
    pub program: Option<PathBuf>,
    /// The Python that runs the console script, or that belongs to the package of the plain program.
    pub interpreter: Option<PathBuf>,
    /// The directory that contains the Python package `bolide`.
    pub package_directory: Option<PathBuf>,
}

/// Enters the directory of `chdir`, or that of startup, by its path. This is repeated for each generation, because a path may
/// lead elsewhere by then (`current -> releases/2`). A link of the application's user leads into no directory that this user
/// could not enter itself.
///
/// # Errors
/// The directory can't be entered.
pub fn enter_directory(settings: &Settings) -> Result<(), StartError> {
    // Only the prototype enters the directory of a jail.
    let Some(directory) = settings.application.chdir.as_ref().filter(|_| settings.confinement.root.is_none()) else {
        return Ok(());
    };
    // If the user does not exist, startup reports that where it needs the user.
    let user = privileges::resolve(&settings.identity).unwrap_or_default();
    guarded_files::enter(directory, Rights::user_first(user.as_ref())).map_err(|error| {
        StartError::new(format!("chdir = {}: {error}; make that directory, or correct the option", directory.display()))
    })
}

/// Returns the error for a prototype's program that could not be executed, with a hint at the cause.
pub fn not_executed(program: &Program, error: &std::io::Error) -> StartError {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => "its user or group can't be changed; start Bolide as root, or omit uid and gid",
        Some(libc::ENOENT) => {
            "the program, the interpreter of its first line, or its loader does not exist; with chroot its libraries must be \
                inside"
        }
        Some(libc::EACCES) => "the user of uid may not use it, or a directory above it",
        _ => "try it by hand",
    };
    StartError::new(format!("{} can't be executed: {error} ({hint})", program.executable.display()))
}
