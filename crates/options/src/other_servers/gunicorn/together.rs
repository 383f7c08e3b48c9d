//! Settings of gunicorn's that decide something together: the application and its addresses, the kind of worker and its time limit, what is
//! logged of requests, and who is trusted. gunicorn's defaults count here where ours differ in what they do.

use super::{AskedSetting, Carried, SettingKind, access_log, addresses};

/// Fields of a trusted front server that gunicorn and uvicorn's workers look at.
const TRUSTED_HEADERS: &str = "x-forwarded-for, x-forwarded-proto";

pub fn decide(asked: &[AskedSetting], variable: impl Fn(&str) -> Option<String>, carried: &mut Carried) {
    let find = |name: &str| asked.iter().rev().find(|one| one.name == name && one.kind != SettingKind::Other);
    if let Some((one, application)) = find("wsgi_app").and_then(|one| Some((one, one.word()?))) {
        carried.option(one, "module", application);
    }
    let umask = umask_of(find("umask"), carried);
    let speaks_uwsgi = find("protocol").and_then(AskedSetting::word).as_deref() == Some("uwsgi");
    addresses::bound(find("bind"), speaks_uwsgi, umask, variable("PORT").as_deref(), carried);
    if find("workers").and_then(AskedSetting::word).is_none()
        && let Some(count) = variable("WEB_CONCURRENCY")
    {
        carried.option(&AskedSetting::text("workers", ""), "processes", count);
    }
    worker_class(find("worker_class"), find("threads"), find("timeout"), carried);
    match find("preload_app") {
        Some(one) if one.is_on() => carried.option(one, "master", "true"),
        found => carried.option(found.unwrap_or(&AskedSetting::text("preload_app", "")), "lazy-apps", "true"),
    }
    request_lines(find("accesslog"), find("access_log_format"), carried);
    trusted(find("forwarded_allow_ips"), find("proxy_allow_ips"), variable("FORWARDED_ALLOW_IPS"), carried);
    statsd(find("statsd_host"), find("statsd_prefix"), carried);
}

/// gunicorn's is a number, or a text with the prefix of its base.
fn umask_of(asked: Option<&AskedSetting>, carried: &mut Carried) -> u32 {
    let Some(asked) = asked else { return 0 };
    let bits = match &asked.value {
        serde_json::Value::String(text) => u32::from_str_radix(text.trim_start_matches("0o"), 8).ok(),
        _ => asked.number().and_then(|number| u32::try_from(number).ok()),
    };
    match bits.filter(|bits| *bits <= 0o777) {
        // In gunicorn it is for these and for the files by which workers tell that they live; the application keeps its own.
        Some(bits) => bits,
        None => {
            carried.warn(asked, "not carried over: this is no mask of permissions");
            0
        }
    }
}

/// WSGI and ASGI are told apart by the application, and slow clients hold up no worker. What counts is whether requests of a worker are
/// served side by side, and what gunicorn's `timeout` is about then.
fn worker_class(
    class: Option<&AskedSetting>,
    threads: Option<&AskedSetting>,
    timeout: Option<&AskedSetting>,
    carried: &mut Carried,
) {
    let name = class.and_then(AskedSetting::word).unwrap_or_else(|| "sync".to_owned());
    let name = name.rsplit(['.', '#']).next().unwrap_or_default().trim_end_matches("Worker").to_ascii_lowercase();
    let count = threads.and_then(AskedSetting::number).unwrap_or(1);
    let is_sync = name == "sync" && count <= 1;
    if let Some(threads) = threads.filter(|_| matches!(name.as_str(), "sync" | "gthread" | "thread")) {
        carried.option(threads, "threads", threads.word().unwrap_or_else(|| "1".to_owned()));
    }
    if let Some(class) = class {
        match name.as_str() {
            "sync" | "gthread" | "thread" | "uvicorn" | "uvicornh11" | "asgi" => {}
            "gevent" | "geventpywsgi" | "geventwsgi" | "eventlet" => carried.warn(
                class,
                "not carried over: there are no greenlets here. A worker serves one request at a time, or as many as `threads` says; an application that calls `monkey.patch_all()` stays with one",
            ),
            _ => carried.warn(class, "not carried over: workers are Bolide's own; WSGI and ASGI are told apart by the application"),
        }
    }
    let Some(timeout) = timeout else { return };
    match timeout.word() {
        Some(seconds) if is_sync && timeout.number() != Some(0) => carried.option(timeout, "harakiri", seconds),
        Some(seconds) if !is_sync => carried.note(
            timeout,
            format!("with these workers gunicorn's timeout is the silence of a worker, not the time of a request; `harakiri = {seconds}` bounds requests, and `loop-stall` shows an event loop that is held up"),
        ),
        _ => {}
    }
}

/// gunicorn logs requests only where it is asked to, in the form of web servers.
fn request_lines(log: Option<&AskedSetting>, format: Option<&AskedSetting>, carried: &mut Carried) {
    let Some((log, place)) = log.and_then(|log| Some((log, log.word()?))) else {
        return carried.option(log.unwrap_or(&AskedSetting::text("accesslog", "")), "disable-logging", "true");
    };
    if place != "-" {
        carried.option(log, "req-logger", format!("file:{place}"));
    }
    let text = format.and_then(AskedSetting::word);
    let (translated, missing) = access_log::translated(text.as_deref().unwrap_or(access_log::DEFAULT));
    let asked = format.unwrap_or(log);
    if !missing.is_empty() {
        carried.warn(asked, format!("`log-format` has nothing for {}: a `-` stands there", missing.join(", ")));
    }
    carried.option(asked, "log-format", translated);
}

/// Peers at UNIX sockets are always trusted by gunicorn.
fn trusted(forwarded: Option<&AskedSetting>, proxies: Option<&AskedSetting>, default: Option<String>, carried: &mut Carried) {
    let of_environment = default.map(|list| AskedSetting::text("forwarded_allow_ips", &list));
    let Some(asked) = forwarded.or(of_environment.as_ref()).or(proxies) else { return };
    let words = asked.words();
    if words.is_empty() {
        return carried.option(asked, "trusted-proxies", "none");
    }
    let all = words.iter().any(|word| word == "*");
    let list = if all { "*".to_owned() } else { format!("{}, unix", words.join(", ")) };
    carried.option(asked, "trusted-proxies", list);
    carried.option(asked, "trusted-headers", TRUSTED_HEADERS);
}

fn statsd(host: Option<&AskedSetting>, prefix: Option<&AskedSetting>, carried: &mut Carried) {
    let Some((asked, host)) = host.and_then(|asked| Some((asked, asked.word()?))) else { return };
    let prefix =
        prefix.and_then(AskedSetting::word).map(|prefix| format!(",{}", prefix.trim_end_matches('.'))).unwrap_or_default();
    carried.option(asked, "stats-push", format!("statsd:{host}{prefix}"));
}
