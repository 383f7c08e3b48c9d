//! Helpers for tests of this crate and of those that use it: a temporary directory, and the settings of a small instance.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bolide_contract::settings::{
    Address, ApplicationSettings, Asynchronous, Identity, Language, Lifecycle, Limits, Listener, Naming, Protocol, Settings,
    Threads, Workers,
};
use bolide_contract::tls::Http2;

/// A directory of the test's own, with a unique name. Dropping it removes it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory.
    pub fn new(name: &str) -> Directory {
        let path =
            nix::unistd::mkdtemp(&std::env::temp_dir().join(format!("bolide-{name}-XXXXXX"))).expect("a temporary directory");
        // Some tests have another user work in it.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        Directory(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// One worker, and any free port of 127.0.0.1.
pub fn settings() -> Settings {
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let origin = "test".to_owned();
    Settings {
        listeners: vec![Listener {
            address,
            protocol: Protocol::Http,
            backlog: 0,
            mode: None,
            owner: None,
            timeout_ms: 4000,
            tls: None,
            http2: Http2::Off,
            redirects_to_https: None,
            has_proxy_header: false,
            may_lack_proxy_header: false,
            tuning: Default::default(),
            origin,
        }],
        applications: Vec::new(),
        tracing: Default::default(),
        application: ApplicationSettings::default(),
        language: Language::default(),
        workers: Workers {
            processes: 1,
            processes_chosen: true,
            processes_auto: false,
            threads: Threads::Fixed(1),
            cpus: 2,
            cpus_of_each: 0,
        },
        helpers: Vec::new(),
        mules: Default::default(),
        lifecycle: Lifecycle {
            harakiri_ms: None,
            shortest_route_harakiri_ms: None,
            harakiri_policy: Default::default(),
            process: Default::default(),
            reload_mercy_ms: 60_000,
            drain_delay_ms: None,
            drain_quiet_ms: None,
            drain_spread_ms: None,
            load_timeout_ms: None,
            pidfile: None,
            crash_reports: None,
            reload_order: Default::default(),
            vacuum: false,
        },
        control: bolide_contract::control::Control::default(),
        recycling: Default::default(),
        reloading: bolide_contract::reloading::Reloading::default(),
        scaling: Default::default(),
        limits: Limits {
            request_line_bytes: 4096,
            head_bytes: 4096,
            header_count: 100,
            body_bytes: None,
            body_memory_bytes: 4096,
            keepalive_ms: 1000,
            ..Limits::default()
        },
        statistics: Default::default(),
        logging: Default::default(),
        hooks: Vec::new(),
        attendant: bolide_contract::attendant::Attendant::default(),
        confinement: bolide_contract::confinement::Confinement::default(),
        identity: Identity::default(),
        naming: Naming::default(),
        clients: bolide_contract::clients::Clients::default(),
        asynchronous: Asynchronous::default(),
        routes: Vec::new(),
        answering: bolide_contract::answering::Answering::default(),
        files: None,
        watching: Default::default(),
        services: Default::default(),
        spooling: Default::default(),
        alarms: Default::default(),
        signals: Default::default(),
        development: None,
        emperor: None,
    }
}
