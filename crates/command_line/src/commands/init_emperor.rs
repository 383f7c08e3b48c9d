//! `bolide init --emperor`: the configuration of an emperor in the current directory, the directory of its vassals, and a unit of
//! systemd. It does not overwrite or install anything. The process of the command runs it.

use std::path::Path;

use bolide_configuration::diagnostic::plain_error;
use bolide_configuration::host_info::HostInfo;

use super::init::{failed, user_of};
use super::init_unit::{program, word};
use crate::reading::Reading;
use crate::subcommand::Subcommand;

/// The flag that asks for it.
const EMPEROR: &str = "--emperor";
const CONFIGURATION: &str = "emperor.ini";
const VASSALS: &str = "vassals";
const UNIT: &str = "bolide-emperor.service";

/// Whether these words of `bolide init` are for this file.
pub fn is_asked(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == EMPEROR)
}

/// Writes the files.
pub fn run(arguments: &[String], host: &HostInfo) -> Reading {
    let words: Vec<String> = arguments.iter().filter(|word| *word != EMPEROR).cloned().collect();
    let (user, rest) = match user_of(&words) {
        Ok(found) => found,
        Err(why) => return Reading::usage_error(Subcommand::Init, &why),
    };
    if let Some(word) = rest.first() {
        let why = format!("`{word}` is not expected with `{EMPEROR}`: each file in its directory names an application");
        return Reading::usage_error(Subcommand::Init, &why);
    }
    let directory = &host.directory;
    if let Some(name) = [CONFIGURATION, UNIT].into_iter().find(|name| directory.join(name).exists()) {
        return failed(format!("{name} already exists"), "remove it first, or move it aside");
    }
    let configuration = configuration(user.as_deref());
    let unit = unit(directory, &program(host));
    let written = std::fs::create_dir_all(directory.join(VASSALS))
        .and_then(|()| std::fs::write(directory.join(CONFIGURATION), &configuration))
        .and_then(|()| std::fs::write(directory.join(UNIT), &unit));
    if let Err(error) = written {
        let message = format!("can't write in {}: {}", directory.display(), plain_error(&error));
        return failed(message, "is the directory writable?");
    }
    let name = UNIT.trim_end_matches(".service");
    Reading::Print {
        text: format!(
            "{CONFIGURATION}, {VASSALS}/ and {UNIT}, a unit of systemd, are written.\n\
            Add a site: write its configuration to {VASSALS}/NAME.ini, and check all with: bolide check {CONFIGURATION}\n\
            Install it: sudo cp {UNIT} /etc/systemd/system/ && sudo systemctl enable --now {name}\n\n\
            {configuration}\n{unit}"
        ),
        status: 0,
    }
}

fn configuration(user: Option<&str>) -> String {
    let whose = match user {
        Some(user) => format!("# All sites run as this user.\nuid = {user}\ngid = {user}\n"),
        None => "# Each site runs as the owner of its file, which can't be root: chown it to the site's user.\n\
            emperor-tyrant = true\n"
            .to_owned(),
    };
    format!(
        "[uwsgi]\n\
        # Each configuration in this directory is a site. A file that appears, changes or goes acts immediately.\n\
        emperor = %d{VASSALS}\n\
        {whose}\
        # Options of all sites, such as: vassal-set = processes=2\n"
    )
}

fn unit(directory: &Path, program: &Path) -> String {
    let program = word(program);
    let configuration = word(&directory.join(CONFIGURATION));
    format!(
        "# Written by `bolide init --emperor`. The sites are in {directory}.\n\
        [Unit]\n\
        Description=Bolide, the emperor of {directory}\n\
        Wants=network-online.target\n\
        After=network-online.target\n\
        \n\
        [Service]\n\
        Type=notify\n\
        NotifyAccess=main\n\
        ExecStart={program} --ini {configuration}\n\
        ExecReload={program} reload $MAINPID\n\
        # The emperor stops its sites itself, within 30 s. If it is killed, they serve on, and the next one takes them over.\n\
        KillMode=process\n\
        TimeoutStopSec=45\n\
        Restart=always\n\
        RestartSec=1\n\
        OOMPolicy=continue\n\
        # For `vassal-limits`. systemd knows the second line since version 254.\n\
        #Delegate=yes\n\
        #DelegateSubgroup=emperor\n\
        LimitNOFILE=65536\n\
        \n\
        [Install]\n\
        WantedBy=multi-user.target\n",
        directory = directory.join(VASSALS).display().to_string().replace('%', "%%"),
    )
}
