//! The prototypes that are this program itself, executed with a hidden argument: of CGI, and of plugins. It starts nothing. The
//! master makes the arguments, and the program that it executes reads them.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use bolide_supervision::error::StartError;
use bolide_supervision::processes::confinement;

use crate::provision::program::{Installed, Program};

const CGI: &str = "--prototype-of-cgi";
const PLUGIN: &str = "--prototype-of-plugin";
/// Not a prototype: the process only loads a library, for `bolide plugin build`.
const CHECK: &str = "--check-of-plugin";

/// The words by which this program loads a library and prints its language.
pub fn words_of_check(library: &Path) -> [&OsStr; 2] {
    [OsStr::new(CHECK), library.as_os_str()]
}

/// The library that this process only loads. `None`: it has something else to do.
pub fn checked_library() -> Option<PathBuf> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [word, library] if word == CHECK => Some(library.into()),
        _ => None,
    }
}

/// The language of a prototype that is this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnPrototype {
    Cgi,
    /// The library of the adapter.
    Plugin(PathBuf),
}

impl OwnPrototype {
    /// What this process is a prototype of, and the number of its boot descriptor. `None`: it is none.
    pub fn of_process() -> Option<(OwnPrototype, RawFd)> {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        OwnPrototype::of_words(&words)
    }

    fn of_words(words: &[OsString]) -> Option<(OwnPrototype, RawFd)> {
        let number = |boot: &OsStr| boot.to_str()?.parse().ok();
        match words {
            [word, boot] if word == CGI => Some((OwnPrototype::Cgi, number(boot)?)),
            [word, library, boot] if word == PLUGIN => Some((OwnPrototype::Plugin(library.into()), number(boot)?)),
            _ => None,
        }
    }

    fn words(&self) -> Vec<OsString> {
        match self {
            OwnPrototype::Cgi => vec![CGI.into()],
            OwnPrototype::Plugin(library) => vec![PLUGIN.into(), library.into()],
        }
    }

    /// Returns the program of such a prototype. With a `root`, the `directory` of the application is within it.
    ///
    /// # Errors
    /// The package lacks the program, or the jail lacks it. The message says what to do.
    pub fn program(self, root: Option<&Path>, directory: Option<&Path>, installed: &Installed) -> Result<Program, StartError> {
        let Some(executable) = &installed.program else {
            return Err(StartError::new(
                "this installation of Bolide has no program of its own, which CGI and plugins need: install the wheel (pip \
                    install --force-reinstall bolide)"
                    .to_owned(),
            ));
        };
        let (executable, own) = match (root, self) {
            (None, own) => (executable.clone(), own),
            (Some(root), own) => {
                let executable = confinement::program_within(root, directory, executable)?;
                let own = match own {
                    OwnPrototype::Cgi => OwnPrototype::Cgi,
                    OwnPrototype::Plugin(library) => OwnPrototype::Plugin(confinement::program_within(root, None, &library)?),
                };
                (executable, own)
            }
        };
        Ok(Program { executable, arguments: own.words(), package_directory: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prototype_finds_what_the_master_has_written() {
        for own in [OwnPrototype::Cgi, OwnPrototype::Plugin("/usr/lib/bolide/bolide_lua.so".into())] {
            let mut words = own.words();
            words.push("7".into());
            assert_eq!(OwnPrototype::of_words(&words), Some((own, 7)));
            words.push("8".into());
            assert_eq!(OwnPrototype::of_words(&words), None, "a word more");
        }
        for words in [&["--prototype-of-cgi", "seven"][..], &["--prototype-of-plugin", "7"], &["app.ini"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(OwnPrototype::of_words(&words), None, "{words:?}");
        }
    }
}
