//! `bolide init --systemd`: a unit of systemd for the configuration in the current folder. It writes a file beside the
//! configuration and installs nothing. The process of the command runs it.

use std::path::{Path, PathBuf};

use crate::host_info::HostInfo;
use crate::project;

/// The name of a unit whose folder has no name that a unit can have.
const UNNAMED: &str = "bolide";

/// A unit of systemd that is to be written.
pub struct Unit {
    /// The name of the service.
    pub name: String,
    pub path: PathBuf,
    pub text: String,
}

impl Unit {
    /// The unit of the configuration `file` in the current folder.
    pub fn of(file: &str, host: &HostInfo) -> Unit {
        let folder = &host.folder;
        let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let name = folder.file_name().and_then(|name| name.to_str()).filter(is_plain).unwrap_or(UNNAMED).to_owned();
        let (program, configuration) = (word(&program(host)), word(&folder.join(file)));
        // As root, the configuration's `uid` says who the application is.
        let user = match host.user {
            (0, _) => "# The user of the application. Without it, write `uid` and `gid` into the configuration.\n# User=shop\n"
                .to_owned(),
            (_, ref user) => format!("User={user}\n"),
        };
        let text = format!(
            "# Written by `bolide init --systemd`.\n[Unit]\nDescription={name}, served by Bolide\nAfter=network-online.target\n\
                Wants=network-online.target\n\n[Service]\n# It has started when its workers serve.\nType=notify\nNotifyAccess=main\n{user}\
                ExecStart={program} {configuration}\nExecReload={program} reload --wait $MAINPID\n\
                # A stop completes requests for up to a minute (`reload-mercy`).\nKillMode=mixed\nTimeoutStopSec=90\n\
                Restart=on-failure\nWatchdogSec=30\n\n[Install]\nWantedBy=multi-user.target\n"
        );
        Unit { path: folder.join(format!("{name}.service")), name, text }
    }

    /// The commands that install it.
    pub fn steps(&self) -> String {
        let name = &self.name;
        format!("Install it: sudo cp {name}.service /etc/systemd/system/ && sudo systemctl enable --now {name}")
    }
}

/// The program of the project's virtualenv, the one beside the Python that runs this command, or this program.
fn program(host: &HostInfo) -> PathBuf {
    let own = project::virtualenv(&host.folder).map(|name| host.folder.join(name).join("bin"));
    let beside = host.python.as_deref().and_then(Path::parent).map(Path::to_owned);
    let found = own.into_iter().chain(beside).map(|folder| folder.join("bolide")).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(&host.program))
}

/// A path as a word of a command line in a unit (systemd.service(5)).
fn word(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if text.contains([' ', '\t', '\'', '"', ';']) { format!("\"{text}\"") } else { text }
}
