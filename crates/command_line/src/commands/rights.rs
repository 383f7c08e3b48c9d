//! Lints about the rights of the user who checks: a startup by that user could not listen on a port below 1024, or change to
//! another user. It reads the limits of the kernel, and opens nothing. The process of the command line runs it.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Address, Settings};
use nix::unistd::{Gid, Group, User, getegid, geteuid, getgroups};

/// The lowest port that every user may listen on, unless the kernel says otherwise.
const LOWEST_PORT: u16 = 1024;
/// The number of CAP_NET_BIND_SERVICE in the mask of capabilities (linux/capability.h).
const BIND_SERVICE: u32 = 10;

/// The finding that this user may not listen on a port.
pub fn may_not_listen(place: Option<&Location>, port: u16) -> Diagnostic {
    Diagnostic::warning(place, format!("this user may not listen on port {port}")).advise(
        "start as root with `uid`, or set AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit, or choose a port from \
        1024 on behind a reverse proxy",
    )
}

/// Reports ports that need root or a capability, which this process does not have.
pub fn of_ports(settings: &Settings, located: impl Fn(&str) -> Location) -> Vec<Diagnostic> {
    if geteuid().is_root() || has_bind_service() {
        return Vec::new();
    }
    let lowest = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let lowest = lowest.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(LOWEST_PORT);
    let ports = settings.listeners.iter().filter_map(|listener| match listener.address {
        Address::Tcp { port, .. } if port != 0 && port < lowest => Some((listener, port)),
        _ => None,
    });
    ports.map(|(listener, port)| may_not_listen(Some(&located(&listener.origin)), port).local()).collect()
}

fn has_bind_service() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> BIND_SERVICE & 1 == 1)
}

/// Reports a user that is not the present one, if that one is not root.
pub fn of_user(pair: &Pair) -> Option<Diagnostic> {
    let text = pair.value.as_deref()?;
    let uid = text.parse().ok().or_else(|| Some(User::from_name(text).ok()??.uid.as_raw()))?;
    (!geteuid().is_root() && uid != geteuid().as_raw()).then(|| needs_root(pair, text))
}

/// Reports a group that is none of the present user's, if that one is not root.
pub fn of_group(pair: &Pair) -> Option<Diagnostic> {
    let text = pair.value.as_deref()?;
    let gid = text.parse().ok().map(Gid::from_raw).or_else(|| Some(Group::from_name(text).ok()??.gid))?;
    let is_own = gid == getegid() || getgroups().is_ok_and(|groups| groups.contains(&gid));
    (!geteuid().is_root() && !is_own).then(|| needs_root(pair, text))
}

fn needs_root(pair: &Pair, text: &str) -> Diagnostic {
    let own = User::from_uid(geteuid()).ok().flatten().map_or_else(|| geteuid().to_string(), |user| user.name);
    let message = format!("`{} = {text}` needs root, and this is {own}", pair.key);
    let advice = format!("start as root (in a systemd unit without `User=`), or leave {} out", pair.key);
    Diagnostic::warning(Some(&pair.location), message).advise(advice).local()
}
