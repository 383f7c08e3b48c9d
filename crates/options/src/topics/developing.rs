//! Resolves `develop` and related options to settings. It watches nothing and serves nothing. Runs in the process that reads the
//! configuration.

use std::net::IpAddr;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::RouteRule;
use bolide_contract::developing::{BROWSER_PATH, Development, MERCY_MS};
use bolide_contract::logging::LogStyle;
use bolide_contract::settings::{Address, ApplicationSettings, Listener, Protocol};
use bolide_contract::watching::{WatchedImports, WatchedSources, Watching};

use crate::context::{Context, normalized};
use crate::draft::Draft;
use crate::topics::answering::AnsweringDraft;
use crate::topics::logging::LoggingDraft;
use crate::topics::processes::{LifecycleDraft, ProcessesDraft};

/// Interval between two checks of imported files if there are no notifications (inotify), in milliseconds.
const CHECK_INTERVAL_MS: u64 = 1_000;

/// The pattern that `reload-dir` watches by default.
const PYTHON_FILES: &str = "*.py";

/// Sets the values that `develop` implies, before the other parts are completed.
pub fn prepare(draft: &mut Draft, context: &mut Context) {
    check(draft, context);
    if !draft.of::<DevelopingDraft>().is_on {
        return;
    }
    if let Some(count) = draft.of::<ProcessesDraft>().count.filter(|count| *count > 1) {
        let chosen = context.read.effects.iter().rev().find(|pair| matches!(pair.key.as_str(), "processes" | "workers"));
        let message = format!("one worker runs, not {count}, because `develop` is on");
        context.diagnostics.push(Diagnostic::note(chosen.map(|pair| &pair.location), message));
    }
    let processes = draft.of::<ProcessesDraft>();
    (processes.count, processes.is_auto) = (Some(1), false);
    // The worker loads the application itself, so that threads that it starts run where it serves.
    draft.of::<ApplicationSettings>().lazy = true;
    // A debugger may stop for any time.
    let lifecycle = draft.of::<LifecycleDraft>();
    (lifecycle.settings.harakiri_ms, lifecycle.settings.load_timeout_ms) = (None, None);
    let has_mercy = |pair: &Pair| matches!(pair.key.as_str(), "reload-mercy" | "worker-reload-mercy");
    if !context.read.effects.iter().any(has_mercy) {
        draft.of::<LifecycleDraft>().settings.reload_mercy_ms = MERCY_MS;
    }
    let imports = draft.of::<Watching>().imports.get_or_insert_with(WatchedImports::default);
    if imports.every_ms == 0 {
        imports.every_ms = CHECK_INTERVAL_MS;
    }
    draft.of::<LoggingDraft>().style.get_or_insert(Some(LogStyle::ShortAtTerminal));
    if let Some(location) = draft.of::<DevelopingDraft>().browser.clone() {
        // Pages poll it, and these requests would flood the log.
        let text = format!("^{}$ donotlog:", BROWSER_PATH.replace('.', "\\."));
        let rule = RouteRule { option: "route".to_owned(), text, origin: location.to_string() };
        draft.of::<AnsweringDraft>().routes.push((rule, location));
    }
}

/// Reports options without an effect.
fn check(draft: &mut Draft, context: &mut Context) {
    let are_watched = draft.of::<Watching>().imports.as_ref().is_some_and(|imports| imports.every_ms > 0);
    let developing = draft.of::<DevelopingDraft>();
    let is_watched = developing.is_on || are_watched;
    let warning = match (&developing.detail, &developing.browser) {
        (Some((key, location)), _) if !is_watched => {
            Diagnostic::warning(Some(location), format!("`{key}` has no effect without `develop` or `py-autoreload`"))
                .advise("write `develop = true`, or `--reload` on the command line")
        }
        (_, Some(location)) if !developing.is_on => without_develop("reload-browser", location),
        _ => return check_page(developing, context),
    };
    context.diagnostics.push(warning);
}

/// Reports options of the traceback page that have no effect.
fn check_page(developing: &DevelopingDraft, context: &mut Context) {
    let editor = developing.editor.as_ref().map(|(_, location)| ("develop-editor", location));
    let values = developing.shows_values.as_ref().map(|location| ("develop-values", location));
    let opens = developing.opens.as_ref().map(|location| ("open-browser", location));
    let unused = [editor, values, opens].into_iter().flatten().filter(|_| !developing.is_on);
    context.diagnostics.extend(unused.map(|(key, location)| without_develop(key, location)));
}

fn without_develop(key: &str, location: &Location) -> Diagnostic {
    Diagnostic::warning(Some(location), format!("`{key}` has no effect without `develop`"))
        .advise("write `develop = true`, or `--reload` on the command line")
}

impl DevelopingDraft {
    pub fn tells_browsers(&self) -> bool {
        self.is_on && self.browser.is_some()
    }

    pub fn complete(&self, listeners: &[Listener], context: &mut Context) -> Option<Development> {
        let elsewhere = listeners.iter().find(|listener| !is_of_this_machine(&listener.address));
        let shows_tracebacks = elsewhere.is_none();
        if let (Some(location), Some(elsewhere)) = (self.browser.as_ref().filter(|_| self.is_on), elsewhere) {
            let message =
                format!("`reload-browser` has no effect: clients that connect to {} may be untrusted", elsewhere.origin);
            let advice = "it works only at addresses of this machine, such as 127.0.0.1:8000";
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise(advice));
        }
        // Clients that must not see a traceback must not see the developer's changes either.
        let tells_browsers = self.tells_browsers() && shows_tracebacks;
        let editor = self.editor.as_ref().map(|(editor, _)| editor.clone());
        let opens = self.opens.as_ref().and_then(|_| listeners.iter().find_map(page_of));
        let shows_values = self.shows_values.is_some();
        self.is_on.then_some(Development { shows_tracebacks, tells_browsers, shows_values, editor, opens })
    }

    pub fn watched_sources(&self, context: &Context) -> WatchedSources {
        let mut patterns = self.patterns.clone();
        if !self.directories.is_empty() {
            patterns.push(PYTHON_FILES.to_owned());
        }
        let mut directories: Vec<_> = self.directories.iter().map(|path| context.absolute(path)).collect();
        if directories.is_empty() {
            directories.push(normalized(&context.directory));
        }
        WatchedSources { directories, patterns, excluded: self.excluded.clone() }
    }
}

/// The address of a browser's page at a listener. A port that the kernel chooses is not known yet.
fn page_of(listener: &Listener) -> Option<String> {
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    match &listener.address {
        Address::Tcp { host, port } if listener.protocol == Protocol::Http && *port != 0 => {
            let is_any = ["", "0.0.0.0", "[::]", "::"].contains(&host.as_str());
            Some(format!("{scheme}://{}:{port}/", if is_any { "127.0.0.1" } else { host }))
        }
        _ => None,
    }
}

/// Whether only this machine can connect to the address.
fn is_of_this_machine(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } => {
            host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        // A public web server may be behind it.
        Address::Unix(_) | Address::Abstract(_) | Address::Descriptor(_) | Address::Passed(_) => false,
    }
}

/// Settings of the options for development. Paths are as written.
#[derive(Default)]
pub struct DevelopingDraft {
    pub is_on: bool,
    pub directories: Vec<String>,
    pub patterns: Vec<String>,
    pub excluded: Vec<String>,
    /// `reload-browser` is on.
    pub browser: Option<Location>,
    pub shows_values: Option<Location>,
    pub editor: Option<(String, Location)>,
    /// `open-browser` is on.
    pub opens: Option<Location>,
    /// The last option that has no effect unless files are watched.
    pub detail: Option<(String, Location)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_distinguished_from_public_ones() {
        let tcp = |host: &str| Address::Tcp { host: host.to_owned(), port: 8000 };
        for host in ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"] {
            assert!(is_of_this_machine(&tcp(host)), "{host}");
        }
        for host in ["", "0.0.0.0", "::", "192.168.1.5", "localhost.example.org"] {
            assert!(!is_of_this_machine(&tcp(host)), "{host}");
        }
        assert!(!is_of_this_machine(&Address::Unix("/run/shop.sock".into())));
    }
}
