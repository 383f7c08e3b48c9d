//! Resolves the options of the privileges that an instance gives up permanently. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_configuration::suggest;
use bolide_contract::confinement::{CAPABILITIES, Confinement, Namespace};
use bolide_contract::settings::{Identity, Naming};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, protective, rows, set, supported};
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Run the application as this user, a name or a number, with the user's own group unless `gid` sets another one.
    /// uWSGI: If `gid` is not set, uWSGI keeps the group of the process that started it, which is root's group 0. Here the
    /// application gets the user's own and supplementary groups, so its files belong to that group, unless `gid = 0` keeps
    /// root's. uWSGI's master becomes the user too. Here it stays root, so that a reload can switch to the user again.
    /// Example: uid = www-data
    supported("uid", Setting::Text(field!(Identity.user))).reach(Reach::Master),
    /// Run the application as this group, a name or a number.
    /// Example: gid = www-data
    supported("gid", Setting::Text(field!(Identity.group))).reach(Reach::Master),
    /// Give the application only the group of `gid`, not the supplementary groups of its user.
    /// Example: no-initgroups = true
    on("no-initgroups", Setting::Switch(field!(Identity.no_further_groups))).reach(Reach::Master),
    /// Also give the application this group, a name or a number.
    /// Example: add-gid = media
    list("add-gid", Setting::Texts(field!(Identity.added_groups))).reach(Reach::Master),
    /// The permission bits that are removed from new files, in three or four octal digits. It applies to sockets, logs, the
    /// pidfile, and files of the application.
    /// uWSGI: An invalid value is an error here. uWSGI's `daemonize` clears the umask. Bolide's keeps it, and gives UNIX sockets
    /// mode 666 if neither this option nor `chmod-socket` is set.
    /// Example: umask = 027
    supported("umask", set!(|draft, _, pair| draft.of::<Identity>().umask = Some(values::umask(draft, pair)?)))
        .takes(Value::Text, "that of the process that starts Bolide").reach(Reach::Master),
    /// Show all processes by their roles in `ps`, such as `bolide master`, `bolide prototype` and `bolide worker 1`. Without it,
    /// the master keeps its command line, and the others are shown as `bolide: worker 1 [shop.wsgi]` or similar.
    /// uWSGI: uWSGI shows `uWSGI master` and `uWSGI worker 1`, and does not have a prototype.
    /// Example: auto-procname = true
    on("auto-procname", Setting::Switch(field!(Naming.auto))).reach(Reach::Application),
    /// Put this before the names of the processes. This implies `auto-procname`.
    /// Example: procname-prefix = shop-
    supported("procname-prefix", set!(|draft, _, pair| set_name_prefix(draft, pair, ""))).reach(Reach::Application),
    /// Like `procname-prefix`, with a space after it.
    /// Example: procname-prefix-spaced = shop
    supported("procname-prefix-spaced", set!(|draft, _, pair| set_name_prefix(draft, pair, " "))).reach(Reach::Application),
    /// Put this after the names of the processes. This implies `auto-procname`.
    /// Example: procname-append = -shop
    supported("procname-append", set!(|draft, _, pair| draft.of::<Naming>().suffix = process_name(draft, pair)?))
        .reach(Reach::Application),
    /// Name all processes. This implies `auto-procname`.
    /// Example: procname = shop
    supported("procname", set!(|draft, _, pair| draft.of::<Naming>().name = Some(process_name(draft, pair)?)))
        .reach(Reach::Application),
    /// Name the master. This implies `auto-procname`.
    /// Example: procname-master = shop-master
    supported("procname-master", set!(|draft, _, pair| draft.of::<Naming>().master = Some(process_name(draft, pair)?)))
        .reach(Reach::Application),
];

/// Options that confine an instance. An option that is not implemented yet is an error: without it the instance would have less
/// protection than its configuration requests.
/// Completes the user and groups. A vassal that its emperor has started as a user stays that user, as in uWSGI.
pub fn complete(identity: Identity, context: &mut Context) -> Identity {
    let names = [("uid", &identity.user), ("gid", &identity.group)];
    let is_given = context.host.has_emperor() && context.host.user.0 != 0;
    let Some((option, Some(name))) = names.into_iter().find(|(_, name)| is_given && name.is_some()) else { return identity };
    let (_, own) = &context.host.user;
    if name != own {
        let message = format!("`{option} = {name}` has no effect: the emperor has started this vassal as {own}");
        context.diagnostics.push(Diagnostic::warning(None, message));
    }
    Identity { umask: identity.umask, ..Identity::default() }
}

pub const CONFINEMENT: &[OptionEntry] = rows![
    /// Start without the effect of these options, which protect and are not supported yet. Separate their names by commas.
    /// Without `allow-missing` each of them is an error.
    /// Example: pivot-root = /srv/jail /old
    ///          allow-missing = pivot-root
    list("allow-missing", Setting::AllowMissing).reach(Reach::Application),
    /// Limit the application, its daemons and its hooks from `hook-as-root` on to this directory. The Python that runs Bolide,
    /// the package and the application must be in it, at the same paths, or at their paths without the directory's own. `chdir`,
    /// `virtualenv`, `pythonpath`, static files and `tmp` are paths inside it, and without `chdir` they begin at its root. The
    /// master stays outside, so sockets, logs, pidfiles, certificates, the configuration and watched files are paths of the host,
    /// and a reload reads them as before. Start Bolide as root, and set `uid`, because root can leave the jail.
    /// uWSGI: uWSGI's master is inside too, and looks up users there. Its working directory stays outside unless
    /// `chdir` leads into the jail, which allows an escape from it.
    /// Example: chroot = /srv/jail
    ///          chdir = /app
    ///          uid = www-data
    supported(
        "chroot",
        set!(|draft, _, pair| draft.of::<Confinement>().root = Some(normalized(&draft.host.directory.join(values::text(pair)?)))),
    )
    .takes(Value::Path, "")
    .reach(Reach::Master),
    /// Lock the processes into another root.
    /// Instead: use a container
    protective("pivot-root", Value::Text),
    /// Make the master itself this user, a name or a number, as soon as the configuration is read. It gets the user's own groups
    /// unless `immediate-gid` sets another one. From then on no part of the instance runs as root. Sockets below port 1024, logs,
    /// pidfiles and hooks have the rights of that user, so such a port needs a socket from systemd (`LISTEN_FDS`). Each reload
    /// reads the configuration and certificates as that user, and startup warns about files that it could not read.
    /// uWSGI: uWSGI's master keeps root's groups if only `immediate-uid` is set, and certificates are read as the user at startup
    /// too.
    /// Example: immediate-uid = www-data
    supported("immediate-uid", Setting::Text(field!(Confinement.user))).reach(Reach::Master),
    /// Make this the only group of the master itself, a name or a number, as soon as the configuration is read.
    /// Example: immediate-gid = www-data
    supported("immediate-gid", Setting::Text(field!(Confinement.group))).reach(Reach::Master),
    /// Keep these capabilities of root when the application becomes another user. It can't gain others, not even through setuid
    /// programs. Write names from capabilities(7), separated by commas. Programs that the application starts do not inherit them,
    /// unless it is root. Start Bolide as root for this option.
    /// uWSGI: In uWSGI the master does not have other capabilities either, and setuid programs are not affected. Unknown names
    /// are ignored.
    /// Example: uid = www-data
    ///          cap = net_bind_service,sys_nice
    list("cap", Setting::By(keep_capabilities)).reach(Reach::Master),
    /// Move the instance to separate namespaces when its sockets are bound. The value is a list, separated by commas, of `fs`
    /// (mounts), `ipc`, `uts` (the host name) and `net`. Hooks from `hook-post-jail` on run in them. Sockets that a reload adds
    /// are in `net`. It requires a startup as root.
    /// uWSGI: In uWSGI, mounts inside also affect a host that shares them, as systemd configures it. `pid`, `user` and unknown
    /// names are errors here.
    /// Example: unshare = fs,ipc,uts
    list("unshare", Setting::By(unshare)).reach(Reach::Master),
    /// Like `unshare`, later.
    /// Instead: use systemd or a container, as for `unshare`
    protective("unshare2", Value::List),
    /// Run the processes in a namespace with its own root.
    /// Instead: use a container
    protective("ns", Value::Text),
    /// Run the processes in a network namespace.
    /// Instead: use `NetworkNamespacePath=` of systemd, or a container
    protective("ns-net", Value::Text),
    /// Join namespaces.
    /// Instead: use `nsenter`, or a container
    protective("setns", Value::Text),
    /// Lock the processes into a FreeBSD jail.
    /// Instead: use a container, because Bolide runs on Linux only
    protective("jail", Value::Path),
    /// Lock the processes into a FreeBSD jail.
    /// Instead: use a container, because Bolide runs on Linux only
    protective("jail2", Value::List),
    /// Enter a FreeBSD jail.
    /// Instead: use a container, because Bolide runs on Linux only
    protective("jail-attach", Value::Text),
];

/// uWSGI's names of namespaces.
const NAMESPACES: [(&str, Namespace); 7] = [
    ("fs", Namespace::Mounts),
    ("ns", Namespace::Mounts),
    ("mount", Namespace::Mounts),
    ("mnt", Namespace::Mounts),
    ("ipc", Namespace::Ipc),
    ("uts", Namespace::HostName),
    ("net", Namespace::Network),
];

/// Its other names, and why they are not supported.
const MISSING: [(&str, &str); 6] = [
    ("pid", "start Bolide itself in one, with `unshare --pid --fork` or in a container: its first process has to be the master"),
    ("user", "start Bolide itself in one, with `unshare --user --map-root-user` or in a container"),
    ("files", "leave it out: the master shares its descriptor table with no process"),
    ("io", "leave it out: the master shares its I/O context with no process"),
    ("parent", "leave it out: unshare(2) does not know it"),
    ("sysvsem", "write `ipc`"),
];

pub fn keep_capabilities(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        *draft.of::<Confinement>().capabilities.get_or_insert(0) |= 1 << capability(word, pair)?;
    }
    Ok(())
}

pub fn unshare(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        let namespace = namespace(word, pair)?;
        if !draft.of::<Confinement>().namespaces.contains(&namespace) {
            draft.of::<Confinement>().namespaces.push(namespace);
        }
    }
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn capability(word: &str, pair: &Pair) -> Result<usize, Diagnostic> {
    let lower = word.to_ascii_lowercase();
    let name = lower.strip_prefix("cap_").unwrap_or(&lower);
    CAPABILITIES.iter().position(|known| *known == name).ok_or_else(|| {
        let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is not a Linux capability", pair.key));
        match suggest::nearest_of(name, &CAPABILITIES) {
            Some(nearest) => wrong.advise(format!("did you mean `{nearest}`?")),
            None => wrong.advise("write names from capabilities(7), separated by commas, such as `net_bind_service,sys_nice`"),
        }
    })
}

fn namespace(word: &str, pair: &Pair) -> Result<Namespace, Diagnostic> {
    if let Some((_, namespace)) = NAMESPACES.iter().find(|(known, _)| *known == word) {
        return Ok(*namespace);
    }
    let known = MISSING.iter().find(|(known, _)| *known == word).map(|(_, instead)| *instead);
    let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is not available", pair.key));
    Err(wrong.advise(known.unwrap_or("an instance can have separate `fs`, `ipc`, `uts` and `net` namespaces")))
}

/// Sets the prefix of all process names.
fn set_name_prefix(draft: &mut Draft, pair: &Pair, space: &str) {
    draft.of::<Naming>().prefix = pair.value.clone().unwrap_or_default() + space;
    draft.of::<Naming>().auto = true;
}

/// A process name, which turns on individual names.
fn process_name(draft: &mut Draft, pair: &Pair) -> Result<String, Diagnostic> {
    let text = values::text(pair)?;
    draft.of::<Naming>().auto = true;
    Ok(text)
}
