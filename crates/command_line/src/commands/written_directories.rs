//! The directories that a configuration has the server write to, for a service that may write nowhere else. It inspects no file.
//! The process of a command runs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bolide_contract::settings::control::Channel;
use bolide_contract::settings::hooks::HookAction;
use bolide_contract::settings::logging::LogPlace;
use bolide_contract::settings::sharing::AreaSource;
use bolide_contract::settings::statistics::PusherKind;
use bolide_contract::settings::{Address, Settings};

/// Returns the directories, of files that are made or changed. Relative paths are those of `directory`.
pub fn of(settings: &Settings, directory: &Path) -> BTreeSet<PathBuf> {
    let base = settings.application.chdir.as_deref().map_or(directory.to_owned(), |chdir| directory.join(chdir));
    let files = files(settings).filter_map(|file| Some(base.join(file).parent()?.to_owned()));
    let directories = settings.spooling.directories.iter().map(|spool| spool.path.as_path());
    let directories = directories.chain(settings.lifecycle.crash_reports.as_deref());
    let directories = directories.chain(settings.services.metrics.iter().filter_map(|metrics| metrics.directory.as_deref()));
    files.chain(directories.map(|directory| base.join(directory))).collect()
}

fn files(settings: &Settings) -> impl Iterator<Item = &Path> {
    let addresses = settings.listeners.iter().map(|listener| &listener.address);
    let servers = settings.statistics.server.iter().chain(&settings.statistics.metrics).map(|server| &server.address);
    let sockets = addresses.chain(servers).filter_map(|address| match address {
        Address::Unix(path) => Some(path),
        _ => None,
    });
    let control = &settings.control;
    let channel = match &control.channel {
        Channel::File(path) => Some(path),
        Channel::Named | Channel::Off => None,
    };
    let instance = control.pidfiles.iter().map(|pidfile| &pidfile.path).chain(&settings.lifecycle.pidfile);
    let instance = instance.chain(&control.fifos).chain(channel).chain(control.background.as_ref().map(|it| &it.log));
    let logging = &settings.logging;
    let targets = logging.targets.iter().filter_map(|target| match &target.place {
        LogPlace::File(path) => Some(path),
        _ => None,
    });
    let logs = logging.file.iter().chain(&logging.files.backup).chain(targets);
    let pushers = settings.statistics.pushers.iter().filter_map(|pusher| match &pusher.kind {
        PusherKind::File { path, .. } => Some(path),
        _ => None,
    });
    let services = &settings.services;
    let stores = services.caches.iter().filter_map(|cache| Some(&cache.store.as_ref()?.path));
    let stores = stores.chain(services.queue.iter().filter_map(|queue| Some(&queue.store.as_ref()?.path)));
    let areas = services.areas.iter().filter_map(|area| match &area.source {
        AreaSource::File { path, .. } => Some(path),
        AreaSource::Memory | AreaSource::Descriptor { .. } => None,
    });
    let hooks = settings.hooks.iter().filter_map(|hook| match &hook.action {
        HookAction::Write(path, _) | HookAction::Append(path, _) | HookAction::MakeDirectory(path) => Some(path),
        _ => None,
    });
    let daemons = settings.attendant.daemons.iter().filter_map(|daemon| daemon.pidfile.as_ref());
    let keys = settings.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.key_log.as_ref());
    let all = sockets.chain(instance).chain(logs).chain(pushers).chain(stores).chain(areas).chain(hooks).chain(daemons);
    all.chain(keys).map(PathBuf::as_path)
}
