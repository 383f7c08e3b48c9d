//! The request of a client of the statistics: as much of it as chooses the answer. A text that is not HTTP gives a request
//! without a path, since the address of `stats` answers every client. It does not know sockets. The master runs it.

use std::net::IpAddr;

use super::answer::Answer;

/// A request, or what a client has sent instead of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// `GET`; empty if it is not HTTP.
    pub method: String,
    /// Without the query; empty if it is not HTTP.
    pub path: String,
    /// What follows the `?`.
    pub query: String,
    /// The media types that the client prefers, in the order of its header fields.
    pub accept: String,
    /// The host of `Host`, without the port.
    pub host: Option<String>,
    /// A browser has sent it, as far as its header fields say.
    pub is_of_browser: bool,
    /// It says that Prometheus has sent it.
    pub is_of_prometheus: bool,
}

/// Fields that browsers send and scrapers do not. A script can choose the User-Agent of its requests, and can't prevent
/// Accept-Language; the others come with some requests alone.
const BROWSER_FIELDS: [&str; 8] =
    ["accept-language", "cookie", "dnt", "origin", "priority", "referer", "upgrade-insecure-requests", "x-requested-with"];
/// The beginning of others: `Sec-Fetch-Mode`, `Sec-GPC`, `Sec-CH-UA`.
const BROWSER_PREFIX: &str = "sec-";

impl Request {
    /// Reads a request's head.
    pub fn of(bytes: &[u8]) -> Request {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let mut words = lines.next().unwrap_or_default().split(' ');
        let mut request = Request::default();
        let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else { return request };
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return request;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (request.method, request.path, request.query) = (method.to_owned(), path.to_owned(), query.to_owned());
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "accept" if request.accept.is_empty() => request.accept = value.to_ascii_lowercase(),
                "accept" => request.accept += &format!(",{}", value.to_ascii_lowercase()),
                "host" => request.host = Some(host_of(value)),
                "user-agent" => {
                    request.is_of_browser |= value.starts_with("Mozilla/");
                    request.is_of_prometheus = value.starts_with("Prometheus/");
                }
                name => request.is_of_browser |= BROWSER_FIELDS.contains(&name) || name.starts_with(BROWSER_PREFIX),
            }
        }
        request
    }

    /// Whether only the head of the answer is wanted.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns whether a page of another site can't have sent it by a name of its own that it lets point to this address (DNS
    /// rebinding): the host is an IP address, a name of this machine for itself, or one of these names.
    pub fn is_for(&self, names: &[String]) -> bool {
        // A browser always sends a host.
        let Some(host) = &self.host else { return true };
        let is_address = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
        is_address()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.iter().any(|name| name.eq_ignore_ascii_case(host))
            || own_name().is_some_and(|name| name.eq_ignore_ascii_case(host))
    }

    /// Returns whether no script of another site can read the answer: the host is one of [`Request::is_for`], or it is Prometheus
    /// that asks under a name that is not configured.
    pub fn may_read(&self, names: &[String]) -> bool {
        self.is_for(names) || self.is_of_prometheus && !self.is_of_browser
    }

    /// The answer to a request that is for another host.
    pub fn refused_host(&self) -> Answer {
        let host: String = self.host.iter().flat_map(|host| host.chars()).filter(|letter| !letter.is_control()).collect();
        let text = format!("The host {host} is not a name of this server. If it is one, add it: metrics-host = {host}\n");
        Answer::text(403, &text)
    }
}

/// The name that this machine has for itself.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty() && name != "(none)")
}

/// Without the port, in small letters.
fn host_of(value: &str) -> String {
    let end = match value.rfind(']') {
        Some(bracket) => bracket + 1,
        None => value.find(':').unwrap_or(value.len()),
    };
    value[..end].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_junk_gives_an_empty_one() {
        let head = "GET /metrics?a=b HTTP/1.1\r\nHost: Shop.example:91\r\nAccept: text/plain\r\nACCEPT: A/b\r\n\r\n";
        let request = Request::of(head.as_bytes());
        assert_eq!(
            (request.path.as_str(), request.query.as_str(), request.accept.as_str()),
            ("/metrics", "a=b", "text/plain,a/b")
        );
        assert_eq!((request.host.as_deref(), request.is_of_browser, request.is_head()), (Some("shop.example"), false, false));
        for junk in
            ["", "\n\n", "GET\n\n", "GET /\n\n", "GET x HTTP/1.1\r\n\r\n", "\u{0}\u{1} / HTTP/9\n\n", "GET / SMTP/1.1\n\n"]
        {
            assert_eq!(Request::of(junk.as_bytes()), Request::default(), "{junk:?}");
        }
        assert!(Request::of(b"HEAD / HTTP/1.0\r\nUser-Agent: Mozilla/5.0\r\n\r\n").is_of_browser);
    }

    #[test]
    fn under_a_foreign_name_only_prometheus_may_read_and_no_script_can_pretend_to_be_it() {
        let may_read =
            |fields: &str| Request::of(format!("GET / HTTP/1.1\r\nHost: evil.example\r\n{fields}\r\n").as_bytes()).may_read(&[]);
        let prometheus = "User-Agent: Prometheus/2.53.0\r\nAccept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\n";
        assert!(may_read(prometheus));
        assert!(!may_read(""));
        assert!(!may_read("User-Agent: x\r\n"));
        for mark in
            ["Accept-Language: en-US,en;q=0.5", "accept-language:", "Referer: http://evil.example/", "Sec-GPC: 1", "Cookie: a=b"]
        {
            assert!(!may_read(&format!("{prometheus}{mark}\r\n")), "{mark}");
        }
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("read");
        assert!(Request::of(format!("GET / HTTP/1.1\r\nHost: {}:9\r\n\r\n", own.trim()).as_bytes()).may_read(&[]));
    }

    #[test]
    fn only_a_name_that_another_site_may_own_is_foreign() {
        let names = ["shop.internal".to_owned()];
        let is_for = |host: &str| Request::of(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).is_for(&names);
        for host in ["127.0.0.1:9", "[::1]:9", "10.2.3.4", "localhost:9", "a.localhost", "SHOP.internal:9"] {
            assert!(is_for(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9", "shop.internal.evil.example", "", "127.0.0.1.evil.example", "1"]
        {
            assert!(!is_for(host), "{host}");
        }
        assert!(Request::of(b"GET / HTTP/1.0\r\n\r\n").is_for(&[]));
    }
}
