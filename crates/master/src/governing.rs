//! Starts an emperor. Everything that can fail does so before it governs, in the order of an instance's start. It does not know
//! vassals. The emperor runs it.

use bolide_contract::control::PidFile;
use bolide_contract::emperor::Emperor;
use bolide_contract::hooks::HookPhase;
use bolide_contract::settings::Settings;
use bolide_contract::statistics::StatisticsServer;
use bolide_emperor::{Governor, Limits, Means, Origin, Scraping};
use bolide_supervision::daemonize::ParentPipe;
use bolide_supervision::error::StartError;
use bolide_supervision::files::pidfile;
use bolide_supervision::log_sink;
use bolide_supervision::logs::log_files::{self, Logs};
use bolide_supervision::privileges;
use bolide_supervision::processes::child_setup::RawIdentity;
use bolide_supervision::processes::control_groups::ControlGroups;
use bolide_supervision::processes::{confinement, needs, process_attributes};
use bolide_supervision::sockets::control_socket::ControlSocket;
use bolide_supervision::sockets::stats_server::{self, StatsServer};

use crate::control::signals;
use crate::hooking;
use crate::process_setup::{limit_descriptors, take_logs};
use crate::provision::configuration::Configuration;

/// Runs an emperor to its end, in this process. Returns the exit status.
pub fn govern(
    mut settings: Settings,
    configuration: &Configuration,
    warnings: &[String],
    parent_pipe: Option<ParentPipe>,
) -> i32 {
    let Some(emperor) = settings.emperor.clone() else { return 0 };
    let own = emperor.pidfile.iter().map(|path| PidFile { path: path.clone(), is_users: false, when_ready: false });
    settings.control.pidfiles.extend(own);
    let prepared = prepare(&settings, emperor, configuration, warnings);
    let status = match prepared {
        Ok(governor) => {
            if let Some(parent_pipe) = parent_pipe {
                parent_pipe.ready();
            }
            let status = governor.run();
            pidfile::remove_all(&settings, None);
            status
        }
        Err(error) => {
            let words = format!("not started: {error}");
            log_sink::line(&words);
            if let Some(parent_pipe) = parent_pipe {
                parent_pipe.failed(error.status(), &words);
            }
            error.status()
        }
    };
    bolide_log::finish();
    status
}

fn prepare(
    settings: &Settings,
    emperor: Emperor,
    configuration: &Configuration,
    warnings: &[String],
) -> Result<Governor, StartError> {
    needs::check()?;
    let refused = |why: String| StartError::new(format!("vassal-limits: {why}"));
    let limits = bolide_emperor::of_lines(&emperor.limits);
    confinement::check(&settings.confinement)?;
    hooking::at_start(settings, HookPhase::Asap)?;
    if let Some(mask) = settings.identity.umask {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    }
    if let Some(most) = settings.reloading.descriptors_most {
        limit_descriptors(most);
    }
    let privileges = privileges::resolve(&settings.identity)?;
    // No other process is ours yet, which would be in the same group.
    let groups = match limits.is_empty() {
        true => None,
        false => Some(ControlGroups::open(&limits, privileges.as_ref()).map_err(refused)?),
    };
    let limits = Limits::new(&emperor.limits, groups).map_err(refused)?;
    let logs = log_files::open_all(settings, privileges.as_ref())?;
    for phase in HookPhase::OF_START.into_iter().filter(|phase| *phase != HookPhase::Asap) {
        hooking::at_start(settings, phase)?;
    }
    let listen = |server: Option<&StatisticsServer>| {
        let Some(server) = server else { return Ok(None) };
        let (socket, endpoint) = stats_server::bind(server, privileges.as_ref())?;
        Ok::<_, StartError>(Some(StatsServer::new(server, socket, endpoint)))
    };
    let statistics = listen(emperor.statistics.as_ref())?;
    let metrics = listen(settings.statistics.metrics.as_ref())?;
    let signals = signals::take()?;
    pidfile::write_at_start(settings, privileges.as_ref())?;
    let name = emperor.process_name.clone().or_else(|| process_attributes::name_of_master(&settings.naming));
    if let Some(name) = name {
        process_attributes::set_name(&name);
    }
    let trouble = |error: std::io::Error| StartError::new(format!("the log can't replace standard error: {error}"));
    take_logs(settings, logs).map_err(trouble)?;
    let control = ControlSocket::open(&settings.control.channel, privileges.as_ref())?;
    if let Some(privileges) = &privileges {
        let trouble = |error: std::io::Error| StartError::new(format!("uid: the emperor can't become the user: {error}"));
        RawIdentity::of(privileges).take().map_err(trouble)?;
    }
    log_sink::line(&format!("version {}, emperor pid {}", env!("CARGO_PKG_VERSION"), std::process::id()));
    log_sink::lines(warnings);
    if let Some(server) = &statistics {
        stats_server::announce(server, "statistics of the emperor");
    }
    if let Some(server) = &metrics {
        stats_server::announce(server, "metrics of all vassals");
    }
    pidfile::write_when_ready(settings, privileges.as_ref());
    let court = bolide_emperor::court_of(&emperor);
    let origin = Origin {
        command: configuration.command_alone(),
        directory: configuration.directory().to_owned(),
        court,
        application: settings.application.clone(),
    };
    let scraping = metrics.map(|server| Scraping::new(server, settings.statistics.hosts.clone()));
    let configurations = settings.control.origin.configurations.clone();
    let logs = Logs::new(&settings.logging, privileges.as_ref());
    Ok(Governor::new(Means { emperor, origin, signals, control, statistics, limits, scraping, logs, configurations }))
}
