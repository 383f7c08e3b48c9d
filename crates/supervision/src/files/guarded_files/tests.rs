//! Operations of root in directories of another user. Only root can create these, and for other users there is nothing to
//! protect.

use std::os::unix::fs::{chown, symlink};

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};

use super::*;
use crate::testing::Directory;

const NOBODY: u32 = 65534;
const WRITE: How = How::Write { mode: 0o644 };

/// A directory of the user `nobody`, and a file of root's beside it.
struct Fixture {
    directory: Directory,
    user: Privileges,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        if !geteuid().is_root() {
            return None;
        }
        let directory = Directory::new("guarded");
        std::fs::create_dir(directory.path().join("theirs")).expect("made");
        chown(directory.path().join("theirs"), Some(NOBODY), Some(NOBODY)).expect("given away");
        std::fs::write(directory.path().join("secret"), "secret").expect("written");
        std::fs::set_permissions(directory.path().join("secret"), Permissions::from_mode(0o660)).expect("set");
        let gid = Gid::from_raw(NOBODY);
        Some(Fixture { directory, user: Privileges { uid: Uid::from_raw(NOBODY), gid, groups: vec![gid] } })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn rights(&self) -> [Rights<'_>; 3] {
        [Rights::RootFirst(&self.user), Rights::UserFirst(&self.user), Rights::User(&self.user)]
    }

    fn secret(&self) -> String {
        std::fs::read_to_string(self.at("secret")).expect("read")
    }
}

#[test]
fn a_link_of_the_user_leads_nowhere_the_user_could_not_go() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("theirs/file");
    symlink(fixture.at("secret"), &path).expect("linked");
    symlink(fixture.directory.path(), fixture.at("theirs/directory")).expect("linked");
    for rights in fixture.rights() {
        for path in [&path, &fixture.at("theirs/directory/secret"), &fixture.at("theirs/directory/new")] {
            assert!(open(path, WRITE, rights).is_err(), "{path:?} {rights:?}");
            assert!(open(path, How::Append { mode: 0o644 }, rights).is_err(), "{path:?} {rights:?}");
            assert!(open(path, How::Read, rights).is_err(), "{path:?} {rights:?}");
        }
        assert!(make_fifo(&fixture.at("theirs/directory/fifo"), 0o600, rights).is_err());
        assert!(rename(&fixture.at("theirs/directory/secret"), &fixture.at("theirs/old"), rights).is_err());
    }
    assert_eq!(fixture.secret(), "secret");
    assert_eq!(std::fs::read_dir(fixture.directory.path()).expect("listed").count(), 2);
    // A link within the user's own directories is followed, such as one to a release.
    std::fs::create_dir(fixture.at("theirs/release")).expect("made");
    chown(fixture.at("theirs/release"), Some(NOBODY), Some(NOBODY)).expect("given away");
    symlink("release", fixture.at("theirs/current")).expect("linked");
    assert!(open(&fixture.at("theirs/current/new"), WRITE, Rights::RootFirst(&fixture.user)).is_ok());
    assert!(fixture.at("theirs/release/new").exists());
}

#[test]
fn a_link_of_roots_is_followed_and_devices_are_opened() {
    let Some(fixture) = Fixture::new() else { return };
    for device in ["/dev/null", "/dev/../dev/null"] {
        assert!(open(Path::new(device), WRITE, Rights::RootFirst(&fixture.user)).is_ok(), "{device}");
    }
    symlink("/dev/null", fixture.at("theirs/null")).expect("linked");
    let opened = open(&fixture.at("theirs/null"), How::Append { mode: 0o640 }, Rights::RootFirst(&fixture.user)).expect("opened");
    assert!(!opened.may_change && !opened.may_be_cut);
    let found = walk(Path::new("/proc/self/fd/0"), Last::Followed).expect("found");
    assert_eq!((found.trust, found.link_flag()), (Trust::Root, OFlag::empty()));
    assert_eq!(walk(Path::new("/var/run/utmp"), Last::Followed).expect("found").trust, Trust::Root);
}

#[test]
fn a_file_with_two_names_or_of_another_kind_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let (linked, pipe) = (fixture.at("theirs/linked"), fixture.at("theirs/pipe"));
    std::fs::hard_link(fixture.at("secret"), &linked).expect("linked");
    mkfifo(&pipe, Mode::S_IRWXU).expect("made");
    chown(&pipe, Some(NOBODY), Some(NOBODY)).expect("given away");
    for rights in fixture.rights() {
        for path in [&linked, &pipe] {
            assert!(open(path, WRITE, rights).is_err(), "{path:?} {rights:?}");
            assert!(read_text(path, 9, rights).is_err(), "{path:?} {rights:?}");
        }
    }
    assert_eq!(fixture.secret(), "secret");
    assert!(read_text(&pipe, 9, Rights::Own).is_err());
}

#[test]
fn what_root_finds_in_a_directory_of_the_user_is_not_given_away() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("theirs/file");
    let made = open(&path, WRITE, Rights::RootFirst(&fixture.user)).expect("made");
    assert!(made.is_new && made.may_change);
    let found = open(&path, WRITE, Rights::RootFirst(&fixture.user)).expect("opened");
    assert!(!found.is_new && !found.give_to(&fixture.user).expect("looked"));
    assert!(made.give_to(&fixture.user).expect("given"));
    let found = open(&path, WRITE, Rights::RootFirst(&fixture.user)).expect("opened");
    assert!(found.may_change);
}

#[test]
fn the_rights_of_the_user_are_without_the_groups_of_root() {
    let Some(fixture) = Fixture::new() else { return };
    let before = getgroups().expect("asked");
    let seen = as_user(&fixture.user, || Ok(getgroups()?)).expect("asked");
    assert_eq!((seen, getgroups().expect("asked")), (fixture.user.groups.clone(), before));
    assert!(open(&fixture.at("secret"), WRITE, Rights::User(&fixture.user)).is_err());
}

#[test]
fn only_the_known_file_is_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.at("theirs/file");
    let made = open(&path, WRITE, Rights::RootFirst(&fixture.user)).expect("made");
    let known = made.known(&path, Rights::RootFirst(&fixture.user)).expect("known");
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "another").expect("written");
    known.remove().expect("left alone");
    assert!(path.exists());
    std::fs::remove_file(&path).expect("removed");
    known.remove().expect("nothing is there");
}

#[test]
fn a_directory_is_created_for_the_user_wherever_no_third_one_can_replace_it() {
    let Some(fixture) = Fixture::new() else { return };
    let owner = |path: &Path| std::fs::symlink_metadata(path).expect("there").uid();
    for rights in [Rights::RootFirst(&fixture.user), Rights::User(&fixture.user)] {
        let theirs = fixture.at("theirs/jobs");
        assert!(create_directory(&theirs, 0o750, rights).expect("created"), "{rights:?}");
        assert_eq!(owner(&theirs), NOBODY);
        assert!(!create_directory(&theirs, 0o750, rights).expect("there already"));
        std::fs::remove_dir(theirs).expect("removed");
    }
    let roots = fixture.at("jobs");
    assert!(create_directory(&roots, 0o750, Rights::User(&fixture.user)).is_err());
    assert!(create_directory(&roots, 0o750, Rights::RootFirst(&fixture.user)).expect("created"));
    assert_eq!((owner(&roots), std::fs::metadata(&roots).expect("there").permissions().mode() & 0o777), (NOBODY, 0o750));
    // A link is not followed, and what it leads to stays as it is.
    symlink(fixture.at("elsewhere"), fixture.at("theirs/link")).expect("linked");
    for rights in fixture.rights() {
        assert!(!create_directory(&fixture.at("theirs/link"), 0o750, rights).expect("there already"));
    }
    assert!(!fixture.at("elsewhere").exists());
    // In the directory of a third user, neither root's rights count nor do those of the user suffice.
    std::fs::create_dir(fixture.at("others")).expect("made");
    chown(fixture.at("others"), Some(1), Some(1)).expect("given away");
    let refused = create_directory(&fixture.at("others/jobs"), 0o750, Rights::RootFirst(&fixture.user));
    assert!(refused.expect_err("refused").to_string().contains("others"));
}
