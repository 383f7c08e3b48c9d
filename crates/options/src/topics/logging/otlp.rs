//! Resolves the options of spans (`otlp`). It opens nothing. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::logging::{SpanCollector, Spans, Tracing};

use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, rows, set, supported};
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Each request has an identifier. It is the field `X-Request-ID` of a reverse proxy that `trusted-proxies` lists, or of any
    /// peer that speaks uwsgi, SCGI or FastCGI, and otherwise 128 random bits as 32 hexadecimal digits. The application finds it
    /// as `HTTP_X_REQUEST_ID` and `bolide.request_id` in `environ`, as the field `x-request-id` and the extension
    /// `bolide.request_id` in a scope. `%(request_id)` in `log-format` and `request_id` in JSON contain it, and so do reports of
    /// exceptions. An identifier of a reverse proxy has at most 128 bytes of letters, digits and `-_.:/+=@`.
    /// Example: request-id = true
    ///          log-format = %(request_id) %(method) %(uri) %(status)
    supported("request-id", Setting::Switch(field!(Tracing.request_ids)))
        .takes(Value::Switch, "on with `log-json`, or if `log-format` has `%(request_id)`").reach(Reach::Application),
    /// Responses have the identifier of their request in the field `X-Request-ID`, unless the application sets that field. It
    /// turns `request-id` on.
    /// Example: request-id-answer = true
    on("request-id-answer", Setting::Switch(field!(Tracing.answers_have_ids))).reach(Reach::Application),
    /// The application gets the time when a request arrived as the field `X-Request-Start`, in seconds since 1970, such as
    /// `t=1764359454.123`. Agents for monitoring show the time from then to the call as queuing. Bolide keeps the field of
    /// a reverse proxy that `trusted-proxies` lists and of any peer that speaks uwsgi, SCGI or FastCGI, and replaces that of
    /// another client. The first request of a TCP connection arrived when its data reached this machine, so its wait for a worker
    /// and a thread counts, also that of its TLS handshake. This takes one system call for each connection. A later request, and
    /// any over a UNIX socket, arrived when its first byte was read, and a request over HTTP/2 when its head was.
    /// Example: request-start = true
    on("request-start", Setting::Switch(field!(Tracing.gives_start))).reach(Reach::Application),
    /// Each request belongs to a trace (W3C Trace Context). The application gets the `traceparent` and `tracestate` of a trusted
    /// reverse proxy, or a new `traceparent`, and the response contains the field `traceresponse`. Without this option the
    /// application gets the fields as the client has sent them.
    /// Example: trace-context = true
    on("trace-context", Setting::Switch(field!(Tracing.has_traces))).reach(Reach::Application),
    /// Send a span of each sampled request to this collector of OpenTelemetry, by OTLP over HTTP (protobuf). `/v1/traces` is
    /// added to an endpoint without a path. It turns `trace-context` on, and the application's own spans become children of the
    /// request's. A process of its own sends the spans, in batches, so no request waits for the collector. Spans that it does not
    /// take in time are dropped and counted. `https` trusts the certificates of the system, or those of the file in
    /// SSL_CERT_FILE. An empty value means none.
    /// Example: otlp = http://127.0.0.1:4318
    ///          otlp-service = shop
    ///          otlp-sample = 0.1
    supported("otlp", Setting::By(set_collector)).reach(Reach::Application),
    /// The share of requests that have a span with `otlp`, from 0 to 1. It is decided by the identifier of the trace, as
    /// OpenTelemetry's sampler `parentbased_traceidratio` does. If a trusted reverse proxy sends a `traceparent`, its flag
    /// `sampled` decides instead.
    /// Example: otlp-sample = 0.1
    supported("otlp-sample", Setting::By(set_sample)).takes(Value::Form("a number from 0 to 1"), "1").reach(Reach::Application),
    /// A header field, `NAME: TEXT`, of the requests to the collector of `otlp`, such as its token. Listings of the configuration
    /// do not show the value.
    /// Example: otlp-header = Authorization: Bearer 4f1c0b
    list("otlp-header", Setting::By(add_header)).reach(Reach::Application),
    /// The `service.name` of the spans of `otlp`.
    /// Example: otlp-service = shop
    supported("otlp-service", set!(|draft, _, pair| draft.of::<Tracing>().spans.service = Some(values::text(pair)?)))
        .takes(Value::Text, "the name of the application").reach(Reach::Application),
];

/// The path of traces below the endpoint of a collector.
const TRACES_PATH: &str = "/v1/traces";
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Header fields of a request to the collector, and bytes of each.
const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 4096;
const URL_FORM: &str = "write the collector's endpoint for OTLP over HTTP, such as http://127.0.0.1:4318";
/// Fields that the exporter writes itself.
const OWN_HEADERS: [&str; 6] = ["host", "connection", "content-length", "content-type", "transfer-encoding", "user-agent"];

/// `otlp`. An empty value means none, so that it can be a placeholder of a variable that is not set everywhere.
pub fn set_collector(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = pair.value.as_deref().unwrap_or_default();
    draft.of::<Tracing>().spans.collector = match text {
        "" => None,
        text => Some(collector(text, pair.location.to_string()).map_err(|what| {
            // A password that does not belong there is not repeated.
            let shown = if text.contains('@') { "" } else { text };
            Diagnostic::error(Some(&pair.location), format!("`otlp = {shown}`: {what}")).advise(URL_FORM)
        })?),
    };
    Ok(())
}

fn collector(text: &str, origin: String) -> Result<SpanCollector, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
    let is_https = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err("its scheme is neither http nor https"),
    };
    if text.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) || text.contains('#') {
        return Err("it has characters that do not belong in a URL");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("it has a user or a password: these go into `otlp-header = Authorization: Basic ...`");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("its address has no closing bracket")?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")).ok_or("its port is not a number")?)
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    if host.is_empty() || host.contains(['[', ']']) {
        return Err("it has no host");
    }
    let port = match port {
        "" if is_https => HTTPS_PORT,
        "" => HTTP_PORT,
        port => port.parse().ok().filter(|port| *port > 0).ok_or("its port is not a number from 1 to 65535")?,
    };
    let target = match path {
        "" | "/" => TRACES_PATH.to_owned(),
        path if path.starts_with('?') => format!("{TRACES_PATH}{path}"),
        path => path.to_owned(),
    };
    Ok(SpanCollector { is_https, host: host.to_owned(), port, target, origin })
}

/// `otlp-sample`: a share from 0 to 1, exact to a millionth.
pub fn set_sample(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let Some(share) = share else {
        let message = format!("`otlp-sample = {text}` is not a share");
        return Err(Diagnostic::error(Some(&pair.location), message).advise("write a number from 0 to 1, such as 0.1"));
    };
    // A positive share is never rounded to none.
    draft.of::<Tracing>().spans.sampled_ppm = Some((share * f64::from(Spans::ALL_PPM)).ceil() as u32);
    Ok(())
}

/// `otlp-header`: `NAME: VALUE`. The value is in no message.
pub fn add_header(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let error = |what: String| {
        Err(Diagnostic::error(Some(&pair.location), what).advise("write `otlp-header = Authorization: Bearer TOKEN`"))
    };
    let Some((name, value)) = text.split_once(':').map(|(name, value)| (name.trim(), value.trim())) else {
        return error("`otlp-header` has no colon between a name and a value".to_owned());
    };
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_sign) {
        return error("`otlp-header` has no name of a header field before its colon".to_owned());
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return error(format!("`otlp-header`: Bolide writes the field {name} itself"));
    }
    if value.is_empty() || text.len() > MAX_HEADER_BYTES || value.bytes().any(|byte| !(b' '..0x7f).contains(&byte)) {
        return error(format!("`otlp-header`: the value of {name} is not one of a header field"));
    }
    let headers = &mut draft.of::<Tracing>().spans.headers;
    if headers.len() >= MAX_HEADERS {
        return error(format!("there are {MAX_HEADERS} `otlp-header` already"));
    }
    headers.push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// Spans need traces, and the times of their requests' phases.
pub fn complete(mut tracing: Tracing) -> Tracing {
    if tracing.spans.is_on() {
        tracing.has_traces = true;
        tracing.times_phases = true;
    }
    tracing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_is_that_of_traces() {
        for (url, found) in [
            ("http://127.0.0.1:4318", "false 127.0.0.1 4318 /v1/traces"),
            ("HTTP://collector/", "false collector 80 /v1/traces"),
            ("https://otlp.example.com", "true otlp.example.com 443 /v1/traces"),
            ("https://[::1]:9/a/b?c=d", "true ::1 9 /a/b?c=d"),
            ("https://[::1]", "true ::1 443 /v1/traces"),
            ("http://a?b=c", "false a 80 /v1/traces?b=c"),
        ] {
            let SpanCollector { is_https, host, port, target, .. } = collector(url, String::new()).expect(url);
            assert_eq!(format!("{is_https} {host} {port} {target}"), found, "{url}");
        }
        for url in
            ["a", "grpc://a", "http://", "http://:9", "http://a:0", "http://a:b", "http://u:p@a", "http://[a", "http://a b"]
        {
            assert!(collector(url, String::new()).is_err(), "{url}");
        }
    }
}
