//! The choice of the prototype's program by the language of the settings: an arm for each language. It starts nothing. The master
//! runs it at startup, so that a missing program is an error of startup instead of each fork.

use std::ffi::OsString;

use bolide_contract::settings::{Language, Settings};
use bolide_supervision::error::StartError;

use crate::provision::own_program::OwnPrototype;
use crate::provision::program::{Installed, Program};
use crate::provision::{plugin, python};

/// Chooses the program of the settings' language. `search` is the value of PATH.
///
/// # Errors
/// The program does not exist. The message says what to install.
pub fn program_of(settings: &Settings, installed: &Installed, search: Option<OsString>) -> Result<Program, StartError> {
    let (root, directory) = (settings.confinement.root.as_deref(), settings.application.chdir.as_deref());
    match &settings.language {
        Language::Python(settings) => python::program(settings, root, directory, installed, search),
        Language::Cgi(_) => OwnPrototype::Cgi.program(root, directory, installed),
        Language::Plugin(plugin) => OwnPrototype::Plugin(plugin::library(plugin, installed)?).program(root, directory, installed),
    }
}
