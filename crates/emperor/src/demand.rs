//! The socket of a vassal that starts at its first connection: its address, and the socket itself, which the emperor keeps open
//! while vassals come and go. It does not read connections. The emperor runs it.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bolide_configuration::trust::foreign_place;
use bolide_contract::emperor::OnDemand;
use bolide_contract::settings::{Address, Listener, Protocol};
use bolide_supervision::log_sink;
use bolide_supervision::privileges::{self, Privileges};
use bolide_supervision::sockets::endpoint::Endpoint;
use bolide_supervision::sockets::listeners::{AddressWait, bind_when_free};
use bolide_supervision::text::printable;
use nix::unistd::geteuid;

use crate::places::{Found, Owner};

/// Bytes of a file with an address.
const MAX_ADDRESS_BYTES: u64 = 4096;
/// Length of the kernel's queue of connections, which wait there while the vassal starts.
const BACKLOG: u32 = 1024;
/// Mode of a socket's file, as in uWSGI: the reverse proxy must be able to connect.
const FILE_MODE: u32 = 0o666;

/// A socket, and whether a connection has come that no vassal serves yet.
#[derive(Debug)]
pub struct Demand {
    pub address: String,
    pub socket: OwnedFd,
    pub is_called: bool,
    endpoint: Endpoint,
    /// Whose address it is: root's rights make and remove nothing there.
    user: Option<Privileges>,
}

/// The file of the socket ends with it.
impl Drop for Demand {
    fn drop(&mut self) {
        let removed = as_user(self.user.as_ref(), || {
            self.endpoint.remove_file();
            Ok(())
        });
        if let Err(error) = removed {
            log_sink::line(&format!("the socket {} can't be removed: {error}", self.address));
        }
    }
}

fn as_user<T>(user: Option<&Privileges>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match user {
        Some(user) => privileges::acting_as(user, act),
        None => act(),
    }
}

/// Whose socket it is.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// The emperor's own.
    Ours,
    /// The emperor has chosen the address, and gives the file to this user.
    GivenTo(&'a Privileges),
    /// This user has chosen the address, whose rights alone count.
    Theirs(&'a Privileges),
}

impl<'a> Whose<'a> {
    /// Returns whose the socket of a vassal is that runs as this user.
    pub fn of(on_demand: &OnDemand, user: Option<&'a Privileges>) -> Whose<'a> {
        match (on_demand, user) {
            (_, None) => Whose::Ours,
            (OnDemand::Directory(_), Some(user)) => Whose::GivenTo(user),
            (OnDemand::Extension(_), Some(user)) => Whose::Theirs(user),
        }
    }
}

/// Returns the address at which a vassal waits for its first connection, or `None` if it does not wait for one. `directory` is
/// that of its name.
///
/// # Errors
/// The file with the address can't be read, or is not the vassal's owner's alone.
pub fn address_of(on_demand: &OnDemand, found: &Found, directory: &Path) -> io::Result<Option<String>> {
    match on_demand {
        OnDemand::Directory(sockets) => {
            let stem = Path::new(&found.name).file_stem().unwrap_or_default().to_string_lossy();
            Ok(Some(sockets.join(format!("{stem}.socket")).to_string_lossy().into_owned()))
        }
        OnDemand::Extension(extension) => {
            let path = directory.join(format!("{}{extension}", found.name));
            match read_address(&path, found.owner) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                read => read.map(Some),
            }
        }
    }
}

/// Reads the first line of a file. Root may read what the user could not, so under a tyrant the file must be the user's.
/// Otherwise only root may be able to change a file that root reads.
fn read_address(path: &Path, owner: Option<Owner>) -> io::Result<String> {
    let links = if owner.is_some() { libc::O_NOFOLLOW } else { 0 };
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | links).open(path)?;
    let metadata = file.metadata()?;
    let refused = |what: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {what}", path.display())));
    if !metadata.is_file() {
        return refused("it is not a file");
    }
    if owner.is_some_and(|owner| metadata.uid() != owner.user || metadata.nlink() != 1) {
        return refused("it is not a file of the vassal's owner alone");
    }
    if owner.is_none() && geteuid().is_root() && foreign_place(path).is_some() {
        return refused("another user may change it");
    }
    let mut text = String::new();
    file.take(MAX_ADDRESS_BYTES).read_to_string(&mut text)?;
    // As in uWSGI, the first control character ends the address.
    Ok(text.split(|letter: char| letter.is_control()).next().unwrap_or_default().trim().to_owned())
}

/// Listens at an address.
///
/// # Errors
/// It can't be bound, as text.
pub fn listen(address: &str, whose: Whose<'_>) -> Result<Demand, String> {
    let origin = "emperor-on-demand".to_owned();
    let listener = Listener::unread(parse(address)?, Protocol::Uwsgi, BACKLOG, Some(FILE_MODE), origin);
    let (owner, user) = match whose {
        Whose::Ours => (None, None),
        Whose::GivenTo(owner) => (Some(owner), None),
        Whose::Theirs(user) => (None, Some(user)),
    };
    let bound = as_user(user, || Ok(bind_when_free(&listener, &[], owner, &mut AddressWait::over())));
    let (socket, endpoint) = bound.map_err(|error| error.to_string())??;
    Ok(Demand { address: address.to_owned(), socket, is_called: false, endpoint, user: user.cloned() })
}

fn parse(text: &str) -> Result<Address, String> {
    if let Some(name) = text.strip_prefix('@').filter(|name| !name.is_empty()) {
        return Ok(Address::Abstract(name.to_owned()));
    }
    if text.starts_with('/') {
        return Ok(Address::Unix(PathBuf::from(text)));
    }
    let port = text.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let (host, port) =
        port.ok_or_else(|| format!("`{}` is not an address: write an absolute path, or IP:PORT", printable(text)))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if !host.is_empty() && bare.parse::<IpAddr>().is_err() {
        // A name server that does not answer would hold up all vassals.
        return Err(format!("`{}` has a host name: write its IP address", printable(text)));
    }
    Ok(Address::Tcp { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_a_name_or_a_port() {
        assert_eq!(parse("/run/one.sock"), Ok(Address::Unix("/run/one.sock".into())));
        assert_eq!(parse("@one"), Ok(Address::Abstract("one".to_owned())));
        assert_eq!(parse("127.0.0.1:80"), Ok(Address::Tcp { host: "127.0.0.1".to_owned(), port: 80 }));
        assert_eq!(parse(":80"), Ok(Address::Tcp { host: String::new(), port: 80 }));
        for text in ["", "@", "one.sock", "127.0.0.1", ":", ":x", ":70000", "localhost:80"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
