//! User and groups of prototypes and workers: it resolves the names of the configuration to numbers before any fork, because
//! names can't be looked up between fork and exec. `child_setup` changes identities in the child, and `confinement` that of the
//! master. Only the emperor acts as another user for a moment. The master runs it, at startup, and the emperor.

use std::ffi::CString;
use std::io;

use bolide_contract::confinement::Confinement;
use bolide_contract::settings::Identity;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist, getgroups, setegid, seteuid, setgroups};

use crate::error::StartError;

/// The identity that a prototype assumes, in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    /// The user.
    pub uid: Uid,
    /// The group.
    pub gid: Gid,
    /// The supplementary groups, as `initgroups` would set them.
    pub groups: Vec<Gid>,
}

/// Resolves `uid` and `gid`. `None` if the prototype keeps the master's identity.
///
/// # Errors
/// An unknown name, or a change that only root may make.
pub fn resolve(identity: &Identity) -> Result<Option<Privileges>, StartError> {
    resolve_named(identity, OF_APPLICATION)
}

/// Resolves `immediate-uid` and `immediate-gid`. `None` if no other identity is asked for, or it is ours already.
///
/// # Errors
/// An unknown name, root, or a change that only root may make.
pub fn resolve_immediate(confinement: &Confinement) -> Result<Option<Privileges>, StartError> {
    let Confinement { user, group, .. } = confinement;
    // `immediate-gid` is the only group, as in uWSGI.
    let identity =
        Identity { user: user.clone(), group: group.clone(), no_further_groups: group.is_some(), ..Identity::default() };
    let Some(privileges) = resolve_named(&identity, OF_MASTER)? else { return Ok(None) };
    for (option, is_root) in [
        (OF_MASTER.user, user.is_some() && privileges.uid.is_root()),
        (OF_MASTER.group, group.is_some() && privileges.gid.as_raw() == 0),
    ] {
        if is_root {
            return Err(StartError::new(format!("{option} = root does not drop privileges: set an ordinary user, or omit it")));
        }
    }
    Ok(Some(privileges))
}

/// The options that name an identity, for error messages.
#[derive(Debug, Clone, Copy)]
struct Options {
    user: &'static str,
    group: &'static str,
}

const OF_APPLICATION: Options = Options { user: "uid", group: "gid" };
const OF_MASTER: Options = Options { user: "immediate-uid", group: "immediate-gid" };

fn resolve_named(identity: &Identity, options: Options) -> Result<Option<Privileges>, StartError> {
    let user = identity.user.as_deref().map(|name| find_user(name, options)).transpose()?;
    let group = identity.group.as_deref().map(|name| find_group(name, options)).transpose()?;
    let added: Vec<Gid> = identity.added_groups.iter().map(|name| find_group(name, options)).collect::<Result<_, _>>()?;
    if !geteuid().is_root() {
        added.into_iter().try_for_each(|group| unprivileged(None, Some(group), options))?;
        return unprivileged(user, group, options).map(|()| None);
    }
    let Some(Found { uid, record }) = user else {
        let gid = group.or_else(|| added.first().map(|_| getegid()));
        let only_group = |gid| Privileges { uid: geteuid(), gid, groups: [vec![gid], added].concat() };
        return Ok(gid.map(only_group));
    };
    let gid = match (group, &record) {
        (Some(gid), _) => gid,
        (None, Some(record)) => record.gid,
        (None, None) => {
            let Options { user, group } = options;
            let message =
                format!("{user} = {uid}: there is no such user on this system, so its group is unknown; set {group} too");
            return Err(StartError::new(message));
        }
    };
    let mut groups = match &record {
        Some(record) if !identity.no_further_groups => groups_of(&record.name, gid)?,
        _ => vec![gid],
    };
    groups.extend(added);
    Ok(Some(Privileges { uid, gid, groups }))
}

/// The identity of a daemon with a user or a group of its own. Missing parts are the application's.
///
/// # Errors
/// As [`resolve`].
pub fn of_daemon(user: Option<&str>, group: Option<&str>, common: Option<&Privileges>) -> Result<Option<Privileges>, StartError> {
    let identity = Identity { user: user.map(str::to_owned), group: group.map(str::to_owned), ..Identity::default() };
    let own = resolve(&identity)?;
    Ok(match (own, common) {
        // A group alone: the user stays that of the application.
        (Some(own), Some(common)) if user.is_none() => Some(Privileges { uid: common.uid, ..own }),
        (own, _) => own,
    })
}

/// The identity of these numbers, with the groups of the user.
///
/// # Errors
/// The user can't be looked up.
pub fn of_numbers(user: u32, group: u32) -> Result<Privileges, StartError> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    let trouble = |error| StartError::new(format!("the user {user} can't be looked up: {error}"));
    // A user that the system does not know is in no other group.
    let groups = match User::from_uid(uid).map_err(trouble)? {
        Some(record) => groups_of(&record.name, gid)?,
        None => vec![gid],
    };
    Ok(Privileges { uid, gid, groups })
}

/// Acts with the user, the group and all groups of another user, and with none of root's rights. The kernel sees that user: what
/// is made belongs to it, and a client finds it at the other end of a socket that listens since then. The process must have one
/// thread.
///
/// # Errors
/// The identity can't be assumed, or that of `act`.
pub fn acting_as<T>(user: &Privileges, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    /// A process that can't become itself again has no rights to go on with.
    struct Restore(Uid, Gid, Vec<Gid>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let Restore(uid, gid, groups) = self;
            let restored = seteuid(*uid).and_then(|()| setegid(*gid)).and_then(|()| setgroups(groups));
            if let Err(error) = restored {
                crate::log_sink::line(&format!("the rights of the emperor can't be taken back: {error}"));
                std::process::abort();
            }
        }
    }
    let _restore = Restore(geteuid(), getegid(), getgroups()?);
    setgroups(&user.groups)?;
    setegid(user.gid)?;
    seteuid(user.uid)?;
    act()
}

/// The warning if the application is about to run as root; `None` if it is not.
pub fn warning(privileges: Option<&Privileges>) -> Option<&'static str> {
    let runs_as = privileges.map_or_else(geteuid, |privileges| privileges.uid);
    runs_as.is_root().then_some("WARNING: the application runs as root: set uid (and gid) to an ordinary user")
}

/// Resolves the owner of a socket file, `user`, `user:group` or `:group`.
///
/// # Errors
/// An unknown name.
pub fn owner(text: &str) -> Result<(Option<Uid>, Option<Gid>), StartError> {
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let uid = if user.is_empty() { None } else { Some(find_user(user, OF_APPLICATION)?.uid) };
    let gid = if group.is_empty() { None } else { Some(find_group(group, OF_APPLICATION)?) };
    Ok((uid, gid))
}

/// A user with its record, if the system has one: a numeric uid need not have any.
struct Found {
    uid: Uid,
    record: Option<User>,
}

fn find_user(text: &str, options: Options) -> Result<Found, StartError> {
    let trouble = |error| StartError::new(format!("the user `{text}` can't be looked up: {error}"));
    if let Some(record) = User::from_name(text).map_err(trouble)? {
        return Ok(Found { uid: record.uid, record: Some(record) });
    }
    let number: u32 = text.parse().map_err(|_| {
        StartError::new(format!("no user is called `{text}` ({}): write a user of this system, or its number", options.user))
    })?;
    let uid = Uid::from_raw(number);
    Ok(Found { uid, record: User::from_uid(uid).map_err(trouble)? })
}

fn find_group(text: &str, options: Options) -> Result<Gid, StartError> {
    let trouble = |error| StartError::new(format!("the group `{text}` can't be looked up: {error}"));
    if let Some(record) = Group::from_name(text).map_err(trouble)? {
        return Ok(record.gid);
    }
    let number = text.parse().map(Gid::from_raw);
    number.map_err(|_| {
        StartError::new(format!("no group is called `{text}` ({}): write a group of this system, or its number", options.group))
    })
}

fn groups_of(user: &str, gid: Gid) -> Result<Vec<Gid>, StartError> {
    let trouble = |error: String| StartError::new(format!("the groups of user `{user}` can't be looked up: {error}"));
    let name = CString::new(user).map_err(|error| trouble(error.to_string()))?;
    getgrouplist(&name, gid).map_err(|error| trouble(error.to_string()))
}

/// Only root may change its identity; naming the present one is not a change.
fn unprivileged(user: Option<Found>, group: Option<Gid>, options: Options) -> Result<(), StartError> {
    if let Some(Found { uid, record }) = user
        && uid != geteuid()
    {
        let name = record.map_or_else(|| uid.to_string(), |record| record.name);
        let option = options.user;
        return Err(StartError::new(format!(
            "{option} = {name} needs root, and Bolide was started as {}: start it as root, or as {name}, or leave {option} out",
            own_name()
        )));
    }
    let Some(gid) = group else { return Ok(()) };
    let option = options.group;
    let own = gid == getegid() || getgroups().is_ok_and(|groups| groups.contains(&gid));
    if own {
        return Ok(());
    }
    Err(StartError::new(format!(
        "{option} = {gid} needs root, and Bolide was started as {}: start it as root, or leave {option} out",
        own_name()
    )))
}

fn own_name() -> String {
    match User::from_uid(geteuid()) {
        Ok(Some(record)) => record.name,
        _ => geteuid().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(user: Option<&str>, group: Option<&str>) -> Identity {
        Identity { user: user.map(str::to_owned), group: group.map(str::to_owned), ..Identity::default() }
    }

    #[test]
    fn unknown_names_are_errors_that_name_the_option() {
        let error = resolve(&identity(Some("no-such-user-here"), None)).expect_err("refused").to_string();
        assert!(error.contains("no-such-user-here") && error.contains("uid"), "{error}");
        let error = resolve(&identity(None, Some("no-such-group-here"))).expect_err("refused").to_string();
        assert!(error.contains("no-such-group-here") && error.contains("gid"), "{error}");
    }

    #[test]
    fn no_identity_is_no_change() {
        assert_eq!(resolve(&identity(None, None)), Ok(None));
    }

    #[test]
    fn the_identity_is_resolved_for_root_and_refused_to_others() {
        let nobody = User::from_name("nobody").expect("looked up").expect("every Linux has the user nobody");
        if geteuid().is_root() {
            let privileges = resolve(&identity(Some("nobody"), None)).expect("resolved").expect("a change");
            assert_eq!((privileges.uid, privileges.gid), (nobody.uid, nobody.gid));
            assert!(privileges.groups.contains(&nobody.gid));
            assert_eq!(warning(Some(&privileges)), None);
            assert!(warning(None).is_some());
            let added = Identity { added_groups: vec!["54323".to_owned(), "0".to_owned()], ..identity(Some("nobody"), None) };
            let privileges = resolve(&added).expect("resolved").expect("a change");
            assert!([54323, 0, nobody.gid.as_raw()].iter().all(|group| privileges.groups.contains(&Gid::from_raw(*group))));
            let unknown = resolve(&identity(Some("54321"), None)).expect_err("refused").to_string();
            assert!(unknown.contains("set gid too"), "{unknown}");
            let both = resolve(&identity(Some("54321"), Some("54322"))).expect("resolved").expect("a change");
            assert_eq!(both.groups, [Gid::from_raw(54322)]);
        } else {
            let root = resolve(&identity(Some("root"), None)).expect_err("refused").to_string();
            assert!(root.contains("needs root"), "{root}");
            let own = geteuid().to_string();
            assert_eq!(resolve(&identity(Some(&own), None)), Ok(None));
        }
    }

    #[test]
    fn an_owner_is_a_user_or_a_group_or_both() {
        assert_eq!(owner("0:0"), Ok((Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))));
        assert_eq!(owner("root"), Ok((Some(Uid::from_raw(0)), None)));
        assert_eq!(owner(":0"), Ok((None, Some(Gid::from_raw(0)))));
        assert!(owner("root:no-such-group-here").is_err());
    }
}
