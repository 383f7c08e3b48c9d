//! Looks at the places where vassals are, and says which files there are configurations, whose they are, and in which state. It
//! does not open files: nothing of a user's is read here. The emperor runs it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use bolide_configuration::trust;
use bolide_contract::emperor::{Emperor, Place, Tyrant};
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

use crate::names;

/// Entries of a directory, or matches of a pattern, that a look visits, at most.
const MAX_ENTRIES: usize = 100_000;
/// Vassals in a place, at most, and those of one user under a tyrant: no user can use up the place of the others.
const MAX_VASSALS: usize = 10_000;
const MAX_VASSALS_OF_USER: usize = 1000;
/// The write permissions of a file's group and of others (inode(7)).
const OTHERS_WRITE: u32 = 0o022;

/// A user and a group, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// What a file was at a look. A vassal reloads when it is another: the file was written, was replaced, or is another that a link
/// leads to now.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
    /// When the file, or the link to it, has changed last in any way, in seconds since 1970.
    changed_s: i64,
}

impl Stamp {
    /// The stamp of nothing: that of each file differs.
    pub const NONE: Stamp = Stamp { device: 0, inode: 0, modified_s: 0, modified_ns: 0, changed_s: 0 };

    /// Returns whether the file is as it was at this time, in seconds since 1970.
    pub fn is_older_than(self, seconds: u64) -> bool {
        u64::try_from(self.changed_s).is_ok_and(|changed| changed < seconds)
    }

    /// Returns the time of modification, in seconds since 1970.
    pub fn modified_s(self) -> i64 {
        self.modified_s
    }
}

/// With another mode or owner it is the same file.
impl PartialEq for Stamp {
    fn eq(&self, other: &Stamp) -> bool {
        let one = |stamp: &Stamp| (stamp.device, stamp.inode, stamp.modified_s, stamp.modified_ns);
        one(self) == one(other)
    }
}

/// A configuration that is there.
#[derive(Debug, Clone)]
pub struct Found {
    /// The name of the vassal: that of the file in its directory, or its path.
    pub name: String,
    /// The number of its place.
    pub place: usize,
    pub stamp: Stamp,
    /// The user that the vassal runs as, with `emperor-tyrant`.
    pub owner: Option<Owner>,
}

/// What a look has found.
#[derive(Debug, Default)]
pub struct Look {
    pub found: Vec<Found>,
    /// Files that may not become vassals: the name, and the reason.
    pub refused: Vec<(String, String)>,
    /// Of these, the names and places of those that go on if they run: their directory is to blame, and not their file.
    pub kept: HashSet<(String, usize)>,
    /// Places that could not be looked at: their vassals stay as they are.
    pub failed: Vec<(usize, String)>,
    /// Directories to watch for changes.
    pub directories: Vec<PathBuf>,
    /// How many vassals a place has, of each owner.
    counts: HashMap<(usize, Option<u32>), usize>,
    /// Where a user other than root and this one may change what is in a directory.
    ways: HashMap<(PathBuf, u32), Option<PathBuf>>,
}

/// Looks at all places. `directory` is the one that the emperor was started in, where patterns begin.
pub fn look(emperor: &Emperor, directory: &Path) -> Look {
    let mut look = Look::default();
    for (number, place) in emperor.places.iter().enumerate() {
        let done = match place {
            Place::Directory(path) => look_at_directory(emperor, number, path, &mut look),
            Place::Glob(pattern) => look_at_pattern(emperor, number, pattern, directory, &mut look),
        };
        if let Err(error) = done {
            look.failed.push((number, error.to_string()));
        }
    }
    look.directories.sort();
    look.directories.dedup();
    look
}

impl Look {
    /// Returns where a user other than root and this one may change what is in a directory. It is found once a look.
    fn foreign_place(&mut self, directory: &Path, user: u32) -> Option<PathBuf> {
        let key = (directory.to_owned(), user);
        self.ways.entry(key).or_insert_with(|| trust::foreign_directory_of(directory, user)).clone()
    }
}

fn look_at_directory(emperor: &Emperor, number: usize, path: &Path, look: &mut Look) -> io::Result<()> {
    // All lookups use the opened directory, so replacing it in the meantime has no effect.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let opened = open(path, flags, Mode::empty())?;
    look.directories.push(path.to_owned());
    let mut listing = nix::dir::Dir::from_fd(opened.try_clone()?)?;
    for (count, entry) in listing.iter().enumerate() {
        if count >= MAX_ENTRIES {
            look.failed.push((number, format!("there are more than {MAX_ENTRIES} entries: the rest is not looked at")));
            break;
        }
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if names::option_of(name, &emperor.extensions).is_some() {
            let at = Entry { directory: opened.as_fd(), path, file: Path::new(name) };
            note(emperor, number, name.to_owned(), &at, look);
        }
    }
    Ok(())
}

fn look_at_pattern(emperor: &Emperor, number: usize, pattern: &str, directory: &Path, look: &mut Look) -> io::Result<()> {
    let wrong = |error: glob::PatternError| io::Error::new(io::ErrorKind::InvalidInput, error.to_string());
    let is_relative = !Path::new(pattern).is_absolute();
    let absolute = match is_relative {
        true => format!("{}/{pattern}", glob::Pattern::escape(&directory.to_string_lossy())),
        false => pattern.to_owned(),
    };
    look.directories.extend(directories_of(&absolute).map_err(wrong)?);
    for (count, path) in glob::glob(&absolute).map_err(wrong)?.enumerate() {
        if count >= MAX_ENTRIES {
            look.failed.push((number, format!("the pattern has more than {MAX_ENTRIES} matches: the rest is not looked at")));
            break;
        }
        // A directory on the way that can't be read hides what is in it, as for a shell.
        let Ok(path) = path else { continue };
        let shown = if is_relative { path.strip_prefix(directory).unwrap_or(&path) } else { &path };
        let Some(name) = shown.to_str().filter(|name| names::option_of(name, &emperor.extensions).is_some()) else { continue };
        let (Some(parent), Some(file)) = (path.parent(), path.file_name()) else { continue };
        let Ok(opened) = open(parent, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) else { continue };
        let at = Entry { directory: opened.as_fd(), path: parent, file: Path::new(file) };
        note(emperor, number, name.to_owned(), &at, look);
    }
    Ok(())
}

/// Returns the directories in which an entry may appear that the pattern matches.
fn directories_of(pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let is_plain = |part: &&str| !part.contains(['*', '?', '[']);
    let mut found = Vec::new();
    for count in 1..parts.len() {
        if parts[count..].first().is_some_and(is_plain) && count + 1 < parts.len() {
            continue;
        }
        let parent = parts[..count].join("/");
        let parent = if parent.is_empty() { "/" } else { &parent };
        found.extend(glob::glob(parent)?.flatten().filter(|path| path.is_dir()).take(MAX_ENTRIES));
    }
    Ok(found)
}

/// A file in a directory that is open.
struct Entry<'a> {
    directory: BorrowedFd<'a>,
    path: &'a Path,
    file: &'a Path,
}

/// Notes a file, or why it may not become a vassal. One that is gone by now, or that is not a file, is passed over.
fn note(emperor: &Emperor, place: usize, name: String, at: &Entry<'_>, look: &mut Look) {
    let Entry { directory, path, file } = *at;
    let Ok(link) = fstatat(directory, file, AtFlags::AT_SYMLINK_NOFOLLOW) else { return };
    let is_link = kind(&link) == SFlag::S_IFLNK;
    let target = if is_link { fstatat(directory, file, AtFlags::empty()) } else { Ok(link) };
    let counts = match target {
        // Only the link counts, whatever it leads to.
        _ if is_link && emperor.looks_at_links => link,
        Ok(target) if kind(&target) == SFlag::S_IFREG => target,
        _ => return,
    };
    let owner = match emperor.tyrant.map(|tyrant| owner_of(tyrant, &link)) {
        None => None,
        Some(Ok(owner)) => Some(owner),
        Some(Err(why)) => return look.refused.push((name, why)),
    };
    if name.starts_with('-') || name.contains(char::is_control) {
        // A hook would take it for an option, and the log for a line.
        return look.refused.push((name, "its name begins with `-`, or has control characters: rename it".to_owned()));
    }
    if let Some(owner) = owner
        && let Some(open) = look.foreign_place(path, owner.user)
    {
        let why = format!(
            "a user other than its owner may change {}: `chmod go-w` it, or `chmod +t` a directory that users share",
            open.display()
        );
        look.kept.insert((name.clone(), place));
        return look.refused.push((name, why));
    }
    let count = look.counts.entry((place, owner.map(|owner| owner.user))).or_default();
    *count += 1;
    let most = if owner.is_some() { MAX_VASSALS_OF_USER } else { MAX_VASSALS };
    if *count > most {
        if *count == most + 1 {
            let whose = owner.map(|owner| format!(" of the user {}", owner.user)).unwrap_or_default();
            look.refused.push((name, format!("there are more than {most} vassals{whose}")));
        }
        return;
    }
    look.found.push(Found { name, place, stamp: stamp_of(&counts, &link), owner });
}

/// Returns the user that a vassal runs as under a tyrant.
fn owner_of(tyrant: Tyrant, link: &FileStat) -> Result<Owner, String> {
    let owner = Owner { user: link.st_uid, group: link.st_gid };
    if link.st_nlink != 1 {
        return Err("it has several names (hard links), so its owner may not have put it there".to_owned());
    } else if kind(link) == SFlag::S_IFLNK {
        if !tyrant.owns_by_link {
            return Err(
                "it is a link: write a file, or set `emperor-tyrant-nofollow` for vassals that run as the owners of links"
                    .to_owned(),
            );
        }
    } else if link.st_mode & OTHERS_WRITE != 0 {
        return Err("its group or others may write it: `chmod go-w` it".to_owned());
    }
    if owner.user == 0 || owner.group == 0 {
        return Err("it belongs to root's user or group: `chown` it to the user that the vassal is to run as".to_owned());
    }
    Ok(owner)
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// The stamp of a file, and of the link to it, or of the file again.
fn stamp_of(stat: &FileStat, link: &FileStat) -> Stamp {
    let changed_s = stat.st_ctime.max(link.st_ctime);
    Stamp { device: stat.st_dev, inode: stat.st_ino, modified_s: stat.st_mtime, modified_ns: stat.st_mtime_nsec, changed_s }
}
