//! Finds the places where another user may change files that root reads or programs that it runs: the user of `uid`, who serves
//! the application, would gain root's rights at the next startup. It inspects owners, modes and links, and changes nothing. It
//! must not know options. Runs in the process that reads the configuration.

mod access_list;
pub mod code_variables;

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use bolide_contract::settings::Identity;
use nix::unistd::{Group, User, geteuid, getgrouplist};

use self::access_list::AccessList;
use crate::diagnostic::{Diagnostic, Location};

/// Most links that are followed in one path: the kernel's own limit (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// Most files of one directory that are inspected.
const MAX_FILES: usize = 1024;
/// The write permissions of others and of the group (inode(7)).
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
/// The permissions of others to read a file, and to search a directory.
const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;
/// In such a directory only the owner of the directory or of a file may replace the file.
const STICKY: u32 = 0o1000;

/// A user of this machine with all of its groups, other than root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// As written in the configuration.
    pub name: String,
    user: u32,
    groups: Vec<u32>,
}

type WeakPointSearch = fn(&Writer, &Path) -> Option<WeakPoint>;

/// The files that were opened while reading, and, at a reload, the user that must not be able to change them.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Files that this user may change are not read with root's rights.
    pub distrusted: Option<Writer>,
    /// Files that any user other than root may change are not read: this is a vassal of root's emperor, and its file may be any
    /// user's.
    reads_as_root: bool,
    /// A file that is not read if another user may change it, and whose it is: this is a tyrant's vassal, and no other user
    /// may choose what it does.
    own: Option<(PathBuf, u32)>,
    used: RefCell<Vec<PathBuf>>,
    refused: RefCell<Option<WeakPoint>>,
    served: OnceCell<Option<Writer>>,
}

impl Trust {
    /// The trust of a vassal of root's emperor, which reads with root's rights.
    pub fn of_roots_vassal() -> Trust {
        Trust { reads_as_root: true, ..Trust::default() }
    }

    /// The trust of a tyrant's vassal, with its file and its user.
    pub fn of_tyrants_vassal(file: PathBuf, user: u32) -> Trust {
        Trust { own: Some((file, user)), ..Trust::default() }
    }

    /// Returns whether others than root and the user of a tyrant's vassal may make files in a directory, of which it imports
    /// nothing then.
    pub fn is_shared(&self, directory: &Path) -> bool {
        let Some((_, user)) = &self.own else { return false };
        let may_fill = |found: &Metadata| may_others_write(directory, found, *user);
        foreign_directory_of(directory, *user).is_some() || directory.metadata().is_ok_and(|found| may_fill(&found))
    }

    /// Notes a file to be read, or a program to be run, for the configuration.
    ///
    /// # Errors
    /// The distrusted user may change it.
    pub fn note(&self, path: &Path, location: &Location) -> Result<(), Diagnostic> {
        self.judge(path, location, Writer::weak_point)
    }

    /// The same for a Python.
    ///
    /// # Errors
    /// Those of [`Trust::note`].
    pub fn note_python(&self, python: &Path, location: &Location) -> Result<(), Diagnostic> {
        self.judge(python, location, Writer::weak_point_of_python)
    }

    /// The same for a directory from which a Python imports, or for a file that it executes. With `is_reported`, another message
    /// reports it, so that it is not recorded.  # Errors Those of [`Trust::note`].
    pub fn note_import(&self, path: &Path, is_reported: bool, location: &Location) -> Result<(), Diagnostic> {
        let search: WeakPointSearch = |writer, path| writer.weak_point_of_imports(&[path.to_owned()]);
        if is_reported { self.refuse(path, location, search) } else { self.judge(path, location, search) }
    }

    fn judge(&self, path: &Path, location: &Location, search: WeakPointSearch) -> Result<(), Diagnostic> {
        self.used.borrow_mut().push(path.to_owned());
        self.refuse(path, location, search)
    }

    fn refuse(&self, path: &Path, location: &Location, search: WeakPointSearch) -> Result<(), Diagnostic> {
        if let Some(open) = foreign_place(path).filter(|_| self.reads_as_root) {
            let what = if open == path { "it".to_owned() } else { open.display().to_string() };
            let message = format!("{} is not read with root's rights: another user may change {what}", path.display());
            let advice = "give it and the directories above it to root alone (`chown root`, `chmod go-w`), or set \
                `emperor-tyrant` or `uid` for the emperor";
            return Err(Diagnostic::error(Some(location), message).advise(advice));
        }
        if let Some((_, user)) = self.own.as_ref().filter(|(own, _)| own == path)
            && let Some(open) = foreign_place_of(path, *user)
        {
            let what = if open == path { "it".to_owned() } else { open.display().to_string() };
            let message = format!("{} is not read: a user other than its owner may change {what}", path.display());
            let advice = "`chmod go-w` it and the directories above it, or `chmod +t` a directory that users share";
            return Err(Diagnostic::error(Some(location), message).advise(advice));
        }
        let Some(found) = self.distrusted.as_ref().and_then(|writer| search(writer, path)) else { return Ok(()) };
        let message = format!("the user of uid may {}", found.words());
        *self.refused.borrow_mut() = Some(found);
        Err(Diagnostic::error(Some(location), message))
    }

    /// The user that needs the keys which root reads, if this process is root: its workers get them.
    pub fn served(&self, identity: &Identity) -> Option<&Writer> {
        self.served.get_or_init(|| Writer::of(identity).filter(|_| geteuid().is_root())).as_ref()
    }

    /// Returns the files that were noted so far, and clears the list for the next reading.
    pub fn take_used(&self) -> Vec<PathBuf> {
        let mut used = std::mem::take(&mut *self.used.borrow_mut());
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Why reading has ended.
    pub fn refused(&self) -> Option<WeakPoint> {
        self.refused.borrow().clone()
    }
}

/// A file that root reads or runs, and the place where that user may change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeakPoint {
    pub used: PathBuf,
    /// The file itself, or a directory in its path.
    pub open: PathBuf,
}

impl WeakPoint {
    /// Describes what the user may do.
    pub fn words(&self) -> String {
        match self.open == self.used {
            true => format!("change {}", self.used.display()),
            false => format!("write to {}, on the way to {}", self.open.display(), self.used.display()),
        }
    }
}

impl Writer {
    /// Returns the user that root's instance becomes; `None` if that is root, or a user that this machine does not know.
    pub fn of(identity: &Identity) -> Option<Writer> {
        let name = identity.user.as_deref()?;
        let record = User::from_name(name).ok().flatten();
        let user = record.as_ref().map(|record| record.uid.as_raw()).or_else(|| name.parse().ok())?;
        let record = record.or_else(|| User::from_uid(user.into()).ok().flatten());
        let group = match &identity.group {
            Some(group) => Some(group_of(group)?),
            None => record.as_ref().map(|record| record.gid.as_raw()),
        };
        let mut groups: Vec<u32> = group.into_iter().collect();
        if let Some((record, group)) = record.as_ref().zip(group).filter(|_| !identity.no_further_groups) {
            let name = std::ffi::CString::new(record.name.as_str()).ok()?;
            groups.extend(getgrouplist(&name, group.into()).ok()?.iter().map(|group| group.as_raw()));
        }
        groups.extend(identity.added_groups.iter().filter_map(|name| group_of(name)));
        (user != 0).then(|| Writer { name: name.to_owned(), user, groups })
    }

    /// The user's number (uid).
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Returns the place where this user may change the file at this path, following links as the kernel does. `None` also if
    /// there is no file, or one that is not read like a file: a pipe or a device.
    pub fn weak_point(&self, path: &Path) -> Option<WeakPoint> {
        let open = |directory: PathBuf| Some(WeakPoint { used: path.to_owned(), open: directory });
        let mut left = parts(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let (directory, entry) = (at.metadata().ok()?, at.join(&part));
            let found = entry.symlink_metadata();
            if self.may_write(&at, &directory) && !found.as_ref().is_ok_and(|found| self.is_kept_from(found, &directory)) {
                return open(at);
            }
            if !found.ok()?.is_symlink() {
                at = entry;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = entry.read_link().ok()?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            let mut further = parts(&target);
            further.append(&mut left);
            left = further;
        }
        let found = at.metadata().ok()?;
        if (found.is_file() || found.is_dir()) && self.may_write(&at, &found) { open(at) } else { None }
    }

    /// Returns whether root may pass a file that it has opened at a path on to this user: the user could not have placed it
    /// there, or it is not a link and has a single name, or the user may read it as well.
    pub fn may_receive(&self, path: &Path, file: &File) -> bool {
        let Ok(found) = file.metadata() else { return false };
        // This path has no links, even if one was replaced in the meantime.
        let Ok(real) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else { return false };
        let is_there = std::path::absolute(path).is_ok_and(|path| path == real) && found.nlink() == 1;
        is_there || self.weak_point(path).is_none() || self.may_read(&found, &real)
    }

    /// Returns whether this user may make files in a directory.
    pub fn may_fill(&self, directory: &Path) -> bool {
        let has = |found: &Metadata, right: u32| self.has_right(directory, found, right);
        directory.metadata().is_ok_and(|found| has(&found, OTHERS_WRITE) && has(&found, OTHERS_ENTER))
    }

    fn may_read(&self, found: &Metadata, path: &Path) -> bool {
        let enters = |directory: &Path| directory.metadata().is_ok_and(|found| self.has_right(directory, &found, OTHERS_ENTER));
        self.has_right(path, found, OTHERS_READ) && path.ancestors().skip(1).all(enters)
    }

    /// The first class that contains the user decides (inode(7)). `right` is the bit of others.
    fn has_right(&self, path: &Path, found: &Metadata, right: u32) -> bool {
        if found.uid() == self.user {
            return found.mode() & right << 6 != 0;
        }
        match self.listed(path, found) {
            Some(rights) => rights & right != 0,
            None if self.groups.contains(&found.gid()) => found.mode() & right << 3 != 0,
            None => found.mode() & right != 0,
        }
    }

    /// Returns the first place where this user may change the program of a Python: its file, its virtual environment, and the
    /// packages that are imported before the application, Bolide among them.
    pub fn weak_point_of_python(&self, python: &Path) -> Option<WeakPoint> {
        let found = self.weak_point(python);
        let Some(home) = python.parent().and_then(Path::parent).filter(|_| found.is_none()) else { return found };
        let home_text = glob::Pattern::escape(&home.to_string_lossy());
        // Debian's system Python uses the second and the third.
        let names = ["lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages"];
        let directories = names.iter().filter_map(|name| glob::glob(&format!("{home_text}/{name}")).ok()).flatten().flatten();
        let used: Vec<PathBuf> = directories.flat_map(|directory| entries_of_package(&directory)).collect();
        std::iter::once(home.join("pyvenv.cfg")).chain(used).find_map(|path| self.weak_point(&path))
    }

    /// Returns the warnings for an instance that root starts: the first file that root reads and the first one that it runs which
    /// this user may change, each with advice. Among those that it runs, `imports` are those of
    /// [`Launcher`](crate::launcher::Launcher), and `program` is that of an upgrade.
    pub fn warnings(
        &self,
        read: &[PathBuf],
        python: Option<&Path>,
        imports: &[PathBuf],
        program: Option<&Path>,
    ) -> Vec<(String, &'static str)> {
        let name = &self.name;
        let mut weak = read.iter().filter_map(|path| self.weak_point(path));
        let words = |found: WeakPoint, used: &str, further: &str| {
            let words = found.words();
            format!(
                "the user `{name}` (uid) may {words}{further}, which root {used} at startup: that user can gain root's rights"
            )
        };
        let first = weak.next().map(|found| {
            let more = weak.count();
            let further = if more > 0 { format!(" and {more} more") } else { String::new() };
            (
                words(found, "reads", &further),
                "make root the owner of it and of the directories above it (`chown root`), or use \
                immediate-uid",
            )
        });
        let run = python.and_then(|python| self.weak_point_of_python(python));
        let run = run.or_else(|| self.weak_point_of_imports(imports)).or_else(|| self.weak_point(program?)).map(|found| {
            let advice =
                "install Bolide where only root may write, such as a virtual environment of root's, start it from there, or use \
                immediate-uid";
            (words(found, "runs", ""), advice)
        });
        first.into_iter().chain(run).collect()
    }

    fn may_write(&self, path: &Path, found: &Metadata) -> bool {
        let mode = found.mode();
        // With an access control list, the bits of the group are its mask.
        let is_granted =
            || self.groups.contains(&found.gid()) || self.listed(path, found).is_some_and(|rights| rights & OTHERS_WRITE != 0);
        // An owner may grant itself the permission.
        found.uid() == self.user || mode & OTHERS_WRITE != 0 || mode & GROUP_WRITES != 0 && is_granted()
    }

    /// The permissions in an access control list.
    fn listed(&self, path: &Path, found: &Metadata) -> Option<u32> {
        AccessList::of(path).map(|list| list.rights_of(self.user, &self.groups, found.gid()))
    }

    fn is_kept_from(&self, entry: &Metadata, directory: &Metadata) -> bool {
        directory.mode() & STICKY != 0 && directory.uid() != self.user && entry.uid() != self.user
    }
}

/// Returns the first place on the way to a file where a user other than root may change it: a directory, a link, or the file.
pub fn foreign_place(path: &Path) -> Option<PathBuf> {
    foreign_place_of(path, 0)
}

/// Returns the first place on the way to a file where a user other than root and this one may change it.
pub fn foreign_place_of(path: &Path, user: u32) -> Option<PathBuf> {
    first_foreign_place(path, Some(path), user)
}

/// Returns the first place on the way to the files of a directory where a user other than root and this one may replace those of
/// that user.
pub fn foreign_directory_of(directory: &Path, user: u32) -> Option<PathBuf> {
    first_foreign_place(directory, None, user)
}

/// `file` is what must not be written to itself.
fn first_foreign_place(path: &Path, file: Option<&Path>, user: u32) -> Option<PathBuf> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file = file.map(|_| real.as_path());
    let places = path.ancestors().chain(real.ancestors()).filter(|place| !place.as_os_str().is_empty());
    places.into_iter().find(|place| is_foreign_place(place, file, user)).map(Path::to_owned)
}

fn is_foreign_place(place: &Path, file: Option<&Path>, user: u32) -> bool {
    let Ok(found) = place.symlink_metadata() else { return true };
    let is_ours = found.uid() == 0 || found.uid() == user;
    if found.is_symlink() {
        return !is_ours;
    }
    // In such a directory no other user can replace an entry of theirs.
    let is_kept = Some(place) != file && found.mode() & STICKY != 0;
    !is_ours || may_others_write(place, &found, user) && !is_kept
}

/// Returns whether the mode of a file or a directory lets users other than root and this one write to it.
fn may_others_write(place: &Path, found: &Metadata, user: u32) -> bool {
    // With an access control list, the bits of the group are its mask.
    let is_alone = || found.gid() == 0 || is_private_group(found.gid(), user);
    let group_writes = found.mode() & GROUP_WRITES != 0 && (!is_alone() || AccessList::of(place).is_some());
    found.mode() & OTHERS_WRITE != 0 || group_writes
}

/// Returns whether a group is the user's alone: it has the user's name, and no other members.
fn is_private_group(group: u32, user: u32) -> bool {
    let (Ok(Some(group)), Ok(Some(user))) = (Group::from_gid(group.into()), User::from_uid(user.into())) else { return false };
    user.gid == group.gid && user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

/// A directory of packages, with the files that every startup imports or executes: Bolide, and files that name more directories
/// (site).
pub fn entries_of_package(directory: &Path) -> Vec<PathBuf> {
    let loaded = entries(directory).into_iter().filter(|path| path.extension().is_some_and(|end| end == "pth"));
    let package = directory.join("bolide");
    // The program in `bin` runs the master.
    let executed = entries(&package).into_iter().chain(entries(&package.join("bin")));
    [directory.to_owned(), package].into_iter().chain(executed).chain(loaded).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(listed) = std::fs::read_dir(directory) else { return Vec::new() };
    listed.flatten().take(MAX_FILES).map(|entry| entry.path()).collect()
}

fn group_of(text: &str) -> Option<u32> {
    let known = Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw());
    known.or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// No user or group has these numbers.
    const USER: u32 = 54_321;
    const GROUP: u32 = 54_322;

    fn writer() -> Writer {
        Writer { name: "shop".to_owned(), user: USER, groups: vec![GROUP] }
    }

    /// A directory of root, or of the user that runs the tests, which is removed with its test.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            let path = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-trust-XXXXXX")).expect("a temporary directory");
            create_dir_all(path.join("etc")).expect("made");
            write(path.join("etc/shop.ini"), "[uwsgi]\n").expect("written");
            Place(path.canonicalize().expect("it is there"))
        }

        fn weak(&self, name: &str) -> Option<PathBuf> {
            writer().weak_point(&self.0.join(name)).map(|found| found.open)
        }

        fn mode(&self, name: &str, mode: u32) {
            set_permissions(self.0.join(name), Permissions::from_mode(mode)).expect("set");
        }
    }

    use std::os::unix::fs::PermissionsExt;

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap_or_default();
        }
    }

    #[test]
    fn test_a_file_that_only_its_owner_may_write_has_no_weak_point() {
        let place = Place::new();
        assert_eq!((place.weak("etc/shop.ini"), place.weak("etc"), place.weak("etc/missing.ini")), (None, None, None));
    }

    #[test]
    fn test_a_file_and_each_directory_above_it_that_everybody_may_write_is_one() {
        let place = Place::new();
        place.mode("etc/shop.ini", 0o666);
        assert_eq!(place.weak("etc/shop.ini"), Some(place.0.join("etc/shop.ini")));
        place.mode("etc/shop.ini", 0o644);
        place.mode("etc", 0o777);
        assert_eq!(place.weak("etc/shop.ini"), Some(place.0.join("etc")));
        assert_eq!(place.weak("etc/missing.ini"), Some(place.0.join("etc")));
        // Another user's file can't be replaced in a sticky directory.
        place.mode("etc", 0o1777);
        assert_eq!(place.weak("etc/shop.ini"), None);
        assert_eq!(place.weak("etc/missing.ini"), Some(place.0.join("etc")));
    }

    #[test]
    fn test_the_directory_of_a_link_and_what_it_leads_to_both_count() {
        let place = Place::new();
        create_dir_all(place.0.join("links")).expect("made");
        symlink(place.0.join("etc/shop.ini"), place.0.join("links/shop.ini")).expect("made");
        symlink("../etc", place.0.join("links/etc")).expect("made");
        assert_eq!((place.weak("links/shop.ini"), place.weak("links/etc/shop.ini")), (None, None));
        place.mode("etc/shop.ini", 0o666);
        assert_eq!(place.weak("links/shop.ini"), Some(place.0.join("etc/shop.ini")));
        assert_eq!(place.weak("links/etc/shop.ini"), Some(place.0.join("etc/shop.ini")));
        place.mode("etc/shop.ini", 0o644);
        place.mode("links", 0o777);
        assert_eq!(place.weak("links/shop.ini"), Some(place.0.join("links")));
        symlink("circle", place.0.join("circle")).expect("made");
        assert_eq!(place.weak("circle"), None);
    }

    #[test]
    fn test_owners_and_groups_count() {
        if !nix::unistd::geteuid().is_root() {
            // Only root may change the owner of files; the project's test suite runs as root.
            return;
        }
        let place = Place::new();
        chown(place.0.join("etc/shop.ini"), Some(USER), None).expect("root may");
        assert_eq!(place.weak("etc/shop.ini"), Some(place.0.join("etc/shop.ini")));
        chown(place.0.join("etc/shop.ini"), Some(0), Some(GROUP)).expect("root may");
        place.mode("etc/shop.ini", 0o664);
        assert_eq!(place.weak("etc/shop.ini"), Some(place.0.join("etc/shop.ini")));
        place.mode("etc/shop.ini", 0o644);
        assert_eq!(place.weak("etc/shop.ini"), None);
        place.mode("etc", 0o1777);
        chown(place.0.join("etc/shop.ini"), Some(USER), None).expect("root may");
        assert_eq!(place.weak("etc/shop.ini"), Some(place.0.join("etc")));
    }

    #[test]
    fn test_a_device_is_no_file_of_anybodys() {
        assert_eq!(writer().weak_point(Path::new("/dev/null")), None);
    }

    #[test]
    fn test_root_needs_no_warning_and_a_number_is_a_user() {
        let of = |user: Option<&str>| Writer::of(&Identity { user: user.map(str::to_owned), ..Identity::default() });
        assert_eq!((of(None), of(Some("root")), of(Some("0")), of(Some("no-such-user-here"))), (None, None, None, None));
        assert_eq!(of(Some("54321")), Some(Writer { name: "54321".to_owned(), user: USER, groups: Vec::new() }));
    }

    #[test]
    fn test_the_packages_of_a_python_are_its_program_too() {
        let place = Place::new();
        let packages = place.0.join("venv/lib/python3.11/site-packages");
        create_dir_all(packages.join("bolide")).expect("made");
        create_dir_all(place.0.join("venv/bin")).expect("made");
        for file in ["venv/bin/python", "venv/pyvenv.cfg", "venv/lib/python3.11/site-packages/bolide/cli.py"] {
            write(place.0.join(file), "").expect("written");
        }
        let found = || writer().weak_point_of_python(&place.0.join("venv/bin/python")).map(|found| found.open);
        assert_eq!(found(), None);
        for weak in ["venv/bin/python", "venv/pyvenv.cfg", "venv/lib/python3.11/site-packages/bolide/cli.py"] {
            place.mode(weak, 0o666);
            assert_eq!(found(), Some(place.0.join(weak)));
            place.mode(weak, 0o644);
        }
        set_permissions(&packages, Permissions::from_mode(0o777)).expect("set");
        assert_eq!(found(), Some(packages));
    }
}
