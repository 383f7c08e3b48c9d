//! The parts of the page beside the overview: the site's name, its totals since startup, and its routes. No request counts
//! anything for the page: groups of routes have counters (`route-group`), and without groups the flight recorder has the last
//! requests. The master runs it, at most once a second, while a client watches the page.

use bolide_contract::settings::{Application, ApplicationSource};
use bolide_scoreboard::Remembered;
use bolide_scoreboard::coarse_histogram::spread;
use bolide_scoreboard::meters::class_of;
use bolide_services::recent_routes::{RecentRoute, recent_routes};
use bolide_supervision::text::printable;
use serde_json::{Value, json};

use crate::children::child::Child;
use crate::statistics::view::View;

/// Applications and addresses that the page lists.
const MAX_LISTED: usize = 8;
/// The routes that no group takes.
const OTHER: &str = "other";
const SERVER_ERROR: u16 = 500;

/// Adds it to the overview that an event of the page is made from.
pub fn add_to(shown: &mut Value, view: View<'_>, now_ms: u64) {
    let addresses = shown["addresses"].take();
    let work = view.total_work();
    shown["site"] = site(&view.provision.settings().applications, addresses);
    shown["totals"] = json!({"requests": work.requests, "errors": work.errors});
    shown["routes"] = routes(view, now_ms);
}

/// The application, the host and the addresses, which tell one site from another.
fn site(applications: &[Application], mut addresses: Value) -> Value {
    let listed = addresses.as_array().map_or(0, Vec::len);
    if let Some(addresses) = addresses.as_array_mut() {
        addresses.truncate(MAX_LISTED);
    }
    let applications: Vec<String> = applications.iter().take(MAX_LISTED).filter_map(name_of).collect();
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    json!({
        "applications": applications,
        "host": printable(&host),
        "addresses": addresses,
        "more_addresses": listed.saturating_sub(MAX_LISTED),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
    })
}

/// The module, or the name of the file without its directories: these may tell more than a site should.
fn name_of(application: &Application) -> Option<String> {
    let name = match &application.source {
        ApplicationSource::Module(module) => module.clone(),
        ApplicationSource::File(path) | ApplicationSource::Pecan(path) => path.file_name()?.to_string_lossy().into_owned(),
        ApplicationSource::Paste(_) | ApplicationSource::Text(_) => return None,
    };
    let callable = application.callable.as_ref().map(|callable| format!(":{callable}")).unwrap_or_default();
    let mount = if application.mount.is_empty() { String::new() } else { format!(" at {}", application.mount) };
    Some(printable(&format!("{name}{callable}{mount}")))
}

fn routes(view: View<'_>, now_ms: u64) -> Value {
    if !view.provision.settings().statistics.groups.is_empty() {
        return groups(view);
    }
    let workers = view.children.iter().filter(|child| child.is_request_worker()).filter_map(Child::row);
    let remembered = workers.flat_map(|row| view.children.scoreboard().remembered(row));
    recent(remembered, now_ms)
}

/// The counters of each `route-group` since startup. The page makes rates and quantiles of two events.
fn groups(view: View<'_>) -> Value {
    let (names, measured) = (&view.provision.settings().statistics.groups, view.measured());
    let names = names.iter().map(|group| group.name.as_str());
    // The last one has all other requests.
    let last = (measured.groups.len() - 1, OTHER);
    let row = |(place, name): (usize, &str)| {
        let work = measured.groups.get(place)?;
        let durations =
            measured.group_durations.get(place).map(|counts| spread(counts, work.busy_us).filled().collect::<Vec<_>>());
        let requests: u64 = work.classes.iter().sum();
        let errors = work.classes[class_of(SERVER_ERROR)];
        Some(json!({"name": name, "requests": requests, "errors": errors, "latency_us": durations.unwrap_or_default()}))
    };
    let rows: Vec<Value> = names.enumerate().chain([last]).filter_map(row).collect();
    json!({"source": "route-group", "rows": rows})
}

/// Estimates from the last requests of each worker.
fn recent(remembered: impl Iterator<Item = (u32, Remembered)>, now_ms: u64) -> Value {
    let found = recent_routes(remembered, now_ms);
    let row = |route: &RecentRoute| {
        json!({
            "name": printable(&route.name),
            "requests": route.requests,
            "errors": route.errors,
            "rate": route.per_second,
            "p50_us": route.p50_us,
            "p99_us": route.p99_us,
        })
    };
    let rows: Vec<Value> = found.rows.iter().map(row).collect();
    json!({"source": "recorder", "rows": rows, "more": found.more, "requests": found.requests})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_a_few_of_its_addresses_and_its_host() {
        let addresses: Vec<String> = (0..20).map(|port| format!("http://127.0.0.1:80{port:02}/")).collect();
        let site = site(&[], json!(addresses));
        assert_eq!((site["addresses"].as_array().map(Vec::len), &site["more_addresses"]), (Some(MAX_LISTED), &json!(12)));
        assert_eq!(site["applications"], json!([]));
        assert!(site["cpus"].as_u64() > Some(0));
    }
}
