//! `bolide init --systemd`: a unit of systemd for the configuration in the current directory. Its text is that of the package's
//! unit, with this application's user, program and directories. It writes a file beside the configuration and installs nothing.
//! The process of the command runs it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bolide_configuration::host_info::HostInfo;
use bolide_contract::settings::{Address, Settings};
use bolide_options::project;
use bolide_other_servers::reading::KnownServers;

use super::written_directories;
use crate::collect::collect;

/// The package's unit, which says how a service of Bolide is started, stopped and protected.
const PACKAGED: &str = include_str!("../../../../packaging/systemd/bolide.service");
/// The name of a unit whose directory has no name that a unit can have.
const UNNAMED: &str = "bolide";
/// The lowest port that every user may listen on.
const LOWEST_PORT: u16 = 1024;
/// Directories that systemd makes for a service and gives to its user, by the line that lists those in them.
const MADE_BY_SYSTEMD: [(&str, &str); 4] = [
    ("/run", "RuntimeDirectory"),
    ("/var/lib", "StateDirectory"),
    ("/var/log", "LogsDirectory"),
    ("/var/cache", "CacheDirectory"),
];

/// A unit of systemd that is to be written.
pub struct Unit {
    /// The name of the service.
    pub name: String,
    pub text: String,
    user: Account,
    /// Directories that the configuration writes to, and that are not there.
    missing: Vec<PathBuf>,
}

/// Who the application is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Account {
    Named(String),
    /// The only user that is known is root, which no application needs to be: systemd makes a user while the service runs.
    Dynamic,
}

/// Returns the name of the service for a project's directory.
pub fn name_of(host: &HostInfo) -> String {
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    host.directory.file_name().and_then(|name| name.to_str()).filter(is_plain).unwrap_or(UNNAMED).to_owned()
}

impl Unit {
    /// The unit of the configuration `file` in the current directory, for a user of this name.
    pub fn of(file: &str, user: Option<&str>, host: &HostInfo) -> Unit {
        let name = name_of(host);
        let settings = settings_of(file, host);
        let user = account(user, settings.as_ref(), host);
        let directories =
            settings.as_ref().map(|settings| written_directories::of(settings, &host.directory)).unwrap_or_default();
        let program = program(host);
        let lines = Lines {
            name: &name,
            user: &user,
            settings: settings.as_ref(),
            directories: &directories,
            program: &program,
            file,
            host,
        };
        let missing =
            directories.iter().filter(|directory| made_by_systemd(directory).is_none() && !directory.exists()).cloned().collect();
        Unit { text: lines.text(), name, user, missing }
    }

    /// The commands that install it.
    pub fn steps(&self) -> String {
        let Unit { name, user, missing, .. } = self;
        let directories: String = missing.iter().map(|directory| format!(" {}", word(directory))).collect();
        let first = match user {
            Account::Named(user) if !missing.is_empty() => {
                format!("First create what the configuration writes to: sudo install -d -o {user}{directories}\n")
            }
            Account::Dynamic => {
                "It runs as a user that systemd makes (DynamicUser=), because this directory belongs to root; `bolide init \
                --systemd --user NAME` writes it for another one.\n"
                    .to_owned()
            }
            Account::Named(_) => String::new(),
        };
        format!("{first}Install it: sudo cp {name}.service /etc/systemd/system/ && sudo systemctl enable --now {name}")
    }
}

/// What the lines of the unit depend on.
struct Lines<'a> {
    name: &'a str,
    user: &'a Account,
    settings: Option<&'a Settings>,
    directories: &'a BTreeSet<PathBuf>,
    program: &'a Path,
    file: &'a str,
    host: &'a HostInfo,
}

impl Lines<'_> {
    fn text(&self) -> String {
        let mut text = format!("# Written by `bolide init --systemd`. The application is {}.\n", self.host.directory.display());
        let packaged = PACKAGED.lines().skip_while(|line| line.starts_with('#'));
        for line in packaged {
            match line.split_once('=') {
                Some((key, value)) if !line.starts_with('#') => self.setting(&mut text, key, value),
                // These two speak of the package.
                _ if line.starts_with("# An application under /home") => {
                    text += "# The application writes nowhere else: name more directories in ReadWritePaths=, such as that of \
                        a SQLite file.\n";
                }
                _ if line.starts_with("# For a port below 1024") => {
                    text += "# A port below 1024 needs CAP_NET_BIND_SERVICE here.\n";
                }
                _ => text = text + line + "\n",
            }
        }
        text
    }

    /// Writes a line of the package's unit as this application needs it.
    fn setting(&self, text: &mut String, key: &str, value: &str) {
        let program = word(self.program);
        let value = match key {
            "Description" => format!("{}, served by Bolide", self.name.replace('%', "%%")),
            "Documentation" | "Group" => return,
            "ExecStart" => format!("{program} {}", word(&self.host.directory.join(self.file))),
            "ExecReload" => format!("{program} reload --wait $MAINPID"),
            "User" => match self.user {
                Account::Named(user) => {
                    *text += &format!("User={user}\n");
                    if let Some(group) = self.settings.and_then(|settings| settings.identity.group.as_deref()) {
                        *text += &format!("Group={group}\n");
                    }
                    return;
                }
                Account::Dynamic => {
                    *text += "DynamicUser=yes\n";
                    return;
                }
            },
            "RuntimeDirectory" | "StateDirectory" | "LogsDirectory" => self.directories(key),
            "CapabilityBoundingSet" | "AmbientCapabilities" if self.has_low_port() => "CAP_NET_BIND_SERVICE".to_owned(),
            "ProtectSystem" => {
                *text += &format!("{key}={value}\n");
                for directory in self.directories.iter().filter(|directory| made_by_systemd(directory).is_none()) {
                    // A service does not start without a directory that has no `-` before it.
                    *text += &format!("ReadWritePaths={}\n", quoted(&format!("-{}", directory.display())));
                }
                if let (cache, true) = (self.directories("CacheDirectory"), self.has("CacheDirectory")) {
                    *text += &format!("CacheDirectory={cache}\n");
                }
                return;
            }
            "ProtectHome" if self.is_below(&["/home", "/root", "/run/user"]) => "read-only".to_owned(),
            // Others can't reach a socket in a private /tmp, and the service no application in the real one.
            "PrivateTmp" if self.is_below(&["/tmp", "/var/tmp"]) => "no".to_owned(),
            _ => value.to_owned(),
        };
        *text += &format!("{key}={value}\n");
    }

    /// The directories that a line such as `RuntimeDirectory=` names: the service's own, and those of the configuration.
    fn directories(&self, key: &str) -> String {
        let of_key = self.directories.iter().filter_map(|directory| made_by_systemd(directory).filter(|(line, _)| *line == key));
        let mut names: BTreeSet<String> = of_key.map(|(_, name)| name).collect();
        if key != "CacheDirectory" {
            names.insert(self.name.to_owned());
        }
        names.into_iter().map(|name| quoted(&name)).collect::<Vec<String>>().join(" ")
    }

    fn has(&self, key: &str) -> bool {
        self.directories.iter().any(|directory| made_by_systemd(directory).is_some_and(|(line, _)| line == key))
    }

    fn has_low_port(&self) -> bool {
        let listeners = self.settings.map(|settings| settings.listeners.as_slice()).unwrap_or_default();
        listeners.iter().any(|listener| matches!(listener.address, Address::Tcp { port, .. } if port != 0 && port < LOWEST_PORT))
    }

    fn is_below(&self, directories: &[&str]) -> bool {
        let mut used = self.directories.iter().map(PathBuf::as_path).chain([self.host.directory.as_path(), self.program]);
        used.any(|path| directories.iter().any(|directory| path.starts_with(directory)))
    }
}

/// Returns the line that has systemd make a directory, and its name there: `/run/shop/sockets` is `shop/sockets` of
/// `RuntimeDirectory=`.
fn made_by_systemd(directory: &Path) -> Option<(&'static str, String)> {
    MADE_BY_SYSTEMD.iter().find_map(|(base, line)| {
        let name = directory.strip_prefix(base).ok()?.to_str()?;
        (!name.is_empty() && !name.starts_with("user/")).then(|| (*line, name.to_owned()))
    })
}

/// The settings of the configuration; `None` if startup would refuse it.
fn settings_of(file: &str, host: &HostInfo) -> Option<Settings> {
    let (configuration, application) = collect(&[file.to_owned()], host).ok()?;
    bolide_options::resolve::resolve(&configuration, application.as_ref(), host, &KnownServers).0
}

/// The user that was named, that of the configuration, or the owner of the project's directory.
fn account(named: Option<&str>, settings: Option<&Settings>, host: &HostInfo) -> Account {
    let is_root = |user: &str| user == "root" || user.parse() == Ok(0_u32);
    let configured = settings.and_then(|settings| settings.identity.user.clone());
    let owner = || {
        let uid = std::fs::metadata(&host.directory).ok()?.uid();
        let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
        Some(known.map_or_else(|| uid.to_string(), |user| user.name))
    };
    let user = named.map(str::to_owned).or(configured).filter(|user| !is_root(user)).or_else(owner);
    user.filter(|user| !is_root(user)).map_or(Account::Dynamic, Account::Named)
}

/// The program of the project's virtualenv, the one beside the Python that runs this command, or this program.
pub fn program(host: &HostInfo) -> PathBuf {
    let own = project::virtualenv(&host.directory).map(|name| host.directory.join(name).join("bin"));
    let beside = host.python.as_deref().and_then(Path::parent).map(Path::to_owned);
    let found = own.into_iter().chain(beside).map(|directory| directory.join("bolide")).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(&host.program))
}

/// A path as a word of a command line in a unit (systemd.service(5)).
pub fn word(path: &Path) -> String {
    quoted(&path.to_string_lossy().replace('$', "$$"))
}

/// A text as a word of a setting (systemd.syntax(7)).
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    if text.contains([' ', '\t', '\'', '"', ';']) { format!("\"{text}\"") } else { text }
}
