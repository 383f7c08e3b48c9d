//! Resolves the options of the spooler to settings and helpers. It starts nothing and opens no file, but examines the folders. Runs in the process that reads
//! the configuration.

use std::os::unix::fs::MetadataExt;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::trust::Writer;
use bolide_contract::children::{Helper, Task};
use bolide_contract::settings::Identity;
use bolide_contract::spooling::{SpoolFolder, Spooling};
use bolide_distributed::{Address, Purpose};
use nix::unistd::User;

use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::services::distributed;
use crate::row::OptionRow;
use crate::values;

/// The permission bits of a mode (inode(7)).
const MODE_BITS: u32 = 0o777;
/// The highest number of spoolers of one folder, and of folders.
pub const MAX_SPOOLERS: i64 = 64;

/// The folder that keeps jobs while their engine is away, if its address has no `folder`.
const KEEPING_FOLDER: &str = "kept-jobs";

/// `spooler`
pub fn add_spooler(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    add(draft, pair, false)
}

/// `spooler-external`
pub fn add_external(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    add(draft, pair, true)
}

fn add(draft: &mut Draft, pair: &Pair, is_external: bool) -> Result<(), Diagnostic> {
    let path = values::text(pair)?;
    let (mut path, mut engine) = (path, None);
    if Address::is_meant(&path) {
        let (number, address) = distributed::add_engine(draft, pair, &path, Purpose::Jobs)?;
        (path, engine) = (address.folder.unwrap_or_else(|| KEEPING_FOLDER.to_owned()), Some(number));
    }
    if draft.of::<SpoolerDraft>().folders.len() as i64 >= MAX_SPOOLERS {
        let message = format!("there can't be more than {MAX_SPOOLERS} folders of spoolers");
        return Err(Diagnostic::error(Some(&pair.location), message));
    }
    draft.of::<SpoolerDraft>().folders.push((path, engine, is_external, pair.location.clone()));
    Ok(())
}

impl SpoolerDraft {
    /// Completes the settings. Relative paths start at the folder in which the server was started, as in uWSGI, which resolves
    /// them before it enters `chdir`.
    pub fn complete(self, context: &mut Context) -> Spooling {
        let mut folders: Vec<SpoolFolder> = Vec::new();
        for (path, engine, is_external, location) in self.folders {
            let path = context.absolute_at_start(path);
            if folders.iter().any(|folder| folder.path == path) {
                let message = format!("the folder `{}` has a spooler already", path.display());
                context.diagnostics.push(
                    Diagnostic::warning(Some(&location), message)
                        .advise("write `spooler-processes` for more spoolers of a folder"),
                );
                continue;
            }
            folders.push(SpoolFolder { path, engine, is_external, origin: location.to_string() });
        }
        if folders.is_empty() {
            return Spooling::default();
        }
        let job_folder = self.job_folder.map(|(path, location)| existing(context, &path, &location));
        Spooling { folders, job_folder, ..self.settings }
    }
}

/// Adds the spoolers of the settings to the helpers: those of a folder one after the other.
pub fn helpers(spooling: &Spooling, harakiri_ms: Option<u64>) -> impl Iterator<Item = Helper> {
    let folders = spooling.folders.iter().filter(|folder| !folder.is_external);
    let paths = folders.flat_map(|folder| std::iter::repeat_n(&folder.path, spooling.processes as usize));
    (1u32..)
        .zip(paths)
        .map(move |(number, folder)| Helper { harakiri_ms, ..Helper::new(Task::Spooler { number, folder: folder.clone() }) })
}

fn existing(context: &mut Context, path: &str, location: &Location) -> std::path::PathBuf {
    let path = context.absolute(path);
    if !path.is_dir() {
        let message = format!("can't change to `{}`: there is no such folder", path.display());
        context.diagnostics.push(Diagnostic::error(Some(location), message).local());
    }
    path
}

/// Reports folders that the user of `uid` can't use: every job would fail.
pub fn check_folders(spooling: &Spooling, identity: &Identity, context: &mut Context) {
    let (Some(writer), Some(name)) = (Writer::of(identity), &identity.user) else { return };
    for folder in &spooling.folders {
        let Some(found) = folder.path.metadata().ok().filter(|_| !writer.may_fill(&folder.path)) else { continue };
        let owner = User::from_uid(found.uid().into()).ok().flatten().map_or_else(|| found.uid().to_string(), |user| user.name);
        let (path, mode) = (folder.path.display(), found.mode() & MODE_BITS);
        let message = format!("the spool folder {path} belongs to {owner} (mode {mode:o}), and `uid` is {name}");
        let place = context.read.effects.iter().map(|pair| &pair.location).find(|place| place.to_string() == folder.origin);
        context.diagnostics.push(Diagnostic::warning(place, message).advise(format!("chown {name} {path}")).local());
    }
}

/// The spooler so far. Paths are as written.
#[derive(Default)]
pub struct SpoolerDraft {
    /// The folders, the engines that have their jobs, whether another instance works on them, and where they were configured.
    pub folders: Vec<(String, Option<usize>, bool, Location)>,
    pub job_folder: Option<(String, Location)>,
    pub harakiri_ms: Option<u64>,
    /// The values that need no completion.
    pub settings: Spooling,
}
