//! Resolves the options of routes, header fields, error pages and compression to settings. Runs in the process that reads the
//! configuration.

pub mod admission;
pub mod bulkheads;
pub mod cancelling;
pub mod health;
pub mod named_files;
pub mod rate_limit;
pub mod sticky;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::answering::{Answering, Coding, Collected, RouteRule};
use bolide_contract::settings::ApplicationSettings;
use bolide_routes::Routes;

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, rows, set, supported, within, words};
use crate::topics::services::named_in_rules::CompiledRules;
use crate::values;

const ADMISSION_WORDS: [&str; admission::WORDS.len()] = words(&admission::WORDS);

pub const ENTRIES: &[OptionEntry] = rows![
    /// Run an action for requests whose path (PATH_INFO) matches a regular expression: `EXPRESSION ACTION:TEXT`. Rules run in
    /// order until one answers. See the page about routes.
    /// uWSGI: In uWSGI it needs a build with PCRE. Expressions here are matched in linear time, so lookaround and backreferences
    /// are refused, with an alternative. A negative lookahead at the beginning, as in `^(?!/api).*$`, is supported.
    /// Example: route = ^/healthz$ donotlog:
    ///          route = ^/old/(.*)$ redirect-permanent:/new/$1
    list("route", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for REQUEST_URI, which is the path and the query as the client wrote them.
    /// Example: route-uri = ^/search\?old= return:410
    list("route-uri", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for the Host header.
    /// Example: route-host = ^shop\.example$ redirect-permanent:https://www.shop.example${REQUEST_URI}
    list("route-host", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for QUERY_STRING.
    /// Example: route-qs = (^|&)debug=1 return:403
    list("route-qs", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for the client's address (REMOTE_ADDR).
    /// Example: route-remote-addr = ^10\. donotlog:
    list("route-remote-addr", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for the User-Agent header.
    /// Example: route-user-agent = (?i)badbot return:403
    list("route-user-agent", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for the Referer header.
    /// Example: route-referer = spam\.example return:403
    list("route-referer", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route`, for the user (REMOTE_USER).
    /// Example: route-remote-user = ^guest$ return:403
    list("route-remote-user", Setting::By(add_route)).reach(Reach::Application),
    /// Run an action if a condition holds: `CONDITION:TEXT ACTION:TEXT`.
    /// Example: route-if = equal:${HTTP_X_FORWARDED_PROTO};http redirect-permanent:https://${HTTP_HOST}${REQUEST_URI}
    list("route-if", Setting::By(add_route)).reach(Reach::Application),
    /// The opposite of `route-if`.
    /// Example: route-if-not = ipv4in:${REMOTE_ADDR};10.0.0.0/8 return:403
    list("route-if-not", Setting::By(add_route)).reach(Reach::Application),
    /// Run an action for every request.
    /// Example: route-run = basicauth:Staff only,ann:secret
    list("route-run", Setting::By(add_route)).reach(Reach::Application),
    /// A target for `goto:`.
    /// Example: route-if = startswith:${PATH_INFO};/open/ goto:open
    ///          route-run = basicauth:Staff,ann:secret
    ///          route-label = open
    list("route-label", Setting::By(add_route)).reach(Reach::Application),
    /// Run an action after the application has answered, for paths that match a regular expression. Such actions change header
    /// fields, the status or the log.
    /// uWSGI: In uWSGI `delheader` comes too late for fields that the application set. Here it removes them.
    /// Example: response-route = ^/static/ addheader:Cache-Control: max-age=3600
    list("response-route", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for responses with this status.
    /// Example: response-route-status = 404 addheader:Cache-Control: max-age=60
    list("response-route-status", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for REQUEST_URI.
    /// Example: response-route-uri = \?v= addheader:Cache-Control: immutable
    list("response-route-uri", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for the Host header.
    /// Example: response-route-host = ^test\. addheader:X-Robots-Tag: noindex
    list("response-route-host", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for QUERY_STRING.
    /// Example: response-route-qs = debug=1 addheader:Cache-Control: no-store
    list("response-route-qs", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for the client's address (REMOTE_ADDR).
    /// Example: response-route-remote-addr = ^10\. delheader:X-Debug
    list("response-route-remote-addr", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for the User-Agent header.
    /// Example: response-route-user-agent = bot addheader:X-Robots-Tag: nosnippet
    list("response-route-user-agent", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for the Referer header.
    /// Example: response-route-referer = . addheader:Vary: Referer
    list("response-route-referer", Setting::By(add_route)).reach(Reach::Application),
    /// Like `response-route`, for the user (REMOTE_USER).
    /// Example: response-route-remote-user = . addheader:Cache-Control: private
    list("response-route-remote-user", Setting::By(add_route)).reach(Reach::Application),
    /// Like `route-if`, after the application has answered. `collect-header` makes response fields available as variables.
    /// Example: collect-header = Content-Security-Policy CSP
    ///          response-route-if = empty:${CSP} addheader:Content-Security-Policy: default-src 'self'
    list("response-route-if", Setting::By(add_route)).reach(Reach::Application),
    /// The opposite of `response-route-if`.
    /// Example: response-route-if-not = empty:${HTTP_COOKIE} addheader:Vary: Cookie
    list("response-route-if-not", Setting::By(add_route)).reach(Reach::Application),
    /// Run an action for every response of the application.
    /// Example: response-route-run = addheader:X-Worker: ${uwsgi[wid]}
    list("response-route-run", Setting::By(add_route)).reach(Reach::Application),
    /// A target for `goto:` in response routes.
    /// Example: response-route-if = startswith:${PATH_INFO};/api/ goto:end
    ///          response-route-run = addheader:X-Frame-Options: DENY
    ///          response-route-label = end
    list("response-route-label", Setting::By(add_route)).reach(Reach::Application),
    /// Add a field to every response: `Name: value`.
    /// Example: add-header = X-Content-Type-Options: nosniff
    list("add-header", Setting::By(add_header)).reach(Reach::Application),
    /// Remove a field from every response of the application, and `Server` and `Date` from those of the server.
    /// Example: del-header = X-Powered-By
    list("del-header", Setting::By(remove_header)).reach(Reach::Application),
    /// Make a field of the response a variable for response routes: `NAME VARIABLE`.
    /// Example: collect-header = Content-Type TYPE
    list("collect-header", set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.collected.push(collected(pair, false)?)))
        .reach(Reach::Application),
    /// Like `collect-header`, but also remove the field from the response.
    /// Example: pull-header = X-Internal-User APP_USER
    list("pull-header", set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.collected.push(collected(pair, true)?)))
        .reach(Reach::Application),
    /// An HTML page for the server's own 403 responses, such as those of `return:403`. If there are several, the first readable
    /// one is sent.
    /// Example: error-page-403 = /srv/shop/403.html
    list(
        "error-page-403",
        set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.error_pages.push((403, values::text(pair)?.into()))),
    )
    .reach(Reach::Application),
    /// An HTML page for the server's own 404 responses, such as those of `return:404`. If there are several, the first readable
    /// one is sent.
    /// Example: error-page-404 = /srv/shop/404.html
    list(
        "error-page-404",
        set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.error_pages.push((404, values::text(pair)?.into()))),
    )
    .reach(Reach::Application),
    /// An HTML page for failures of the application. If there are several, the first readable one is sent.
    /// Example: error-page-500 = /srv/shop/500.html
    list(
        "error-page-500",
        set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.error_pages.push((500, values::text(pair)?.into()))),
    )
    .reach(Reach::Application),
    /// Answer GET and HEAD of exactly this path by the server itself, for load balancers. The response is 200 with `ok` while the
    /// worker serves, and 503 with `paused` or `draining` otherwise. It does not reach routes, files, `server-names`, redirects
    /// to HTTPS or the application, is not logged, and does not count as a request. Other methods do not differ from those of
    /// other paths. In the clear and over HTTP/1, a worker answers a new connection also while all of its threads are in long
    /// calls of the application. Over TLS, HTTP/2, uwsgi, SCGI, FastCGI and behind the PROXY protocol, the check waits for a
    /// free thread. In ASGI and gevent, the event loop answers it, and code that blocks the loop may delay it.
    /// Example: health-path = /healthz
    supported(
        "health-path",
        set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.health_path = Some(health::health_path(pair)?)),
    )
    .takes(Value::Form("a path"), "off")
    .reach(Reach::Application),
    /// Serve the requests of a session by the worker that has it. The value lists the places of a request that may say which
    /// session it is of, and the first one with a session that a worker has decides: `header:NAME` (also learned when the
    /// application sets the field in a response, as in MCP's `Mcp-Session-Id`), `query:NAME`, `cookie` (a cookie of the
    /// server's own, `BOLIDE_WORKER`, which is sealed), `address` (the client's, of IPv6 the /64 network). The worker that
    /// serves the first request of a session has it, until it drains, exits or is killed. Then the worker that gets the next
    /// request has it. A connection moves to that worker with what was read of it, over HTTP/1 in the clear, uwsgi and SCGI.
    /// Requests of connections over TLS and HTTP/2 are relayed. Those over FastCGI are served where they come to, and `check`
    /// warns of that. There is room for 65,536 sessions, and the one that was used longest ago is forgotten first.
    /// Example: processes = 4
    ///          sticky = header:mcp-session-id
    ///          sticky = query:sid, cookie
    supported(
        "sticky",
        set!(|draft, _, pair| {
            let answering = draft.of::<AnsweringDraft>();
            answering.sticky_location.get_or_insert(pair.location.clone());
            sticky::add(&mut answering.answering.sticky, pair)?
        }),
    )
    .takes(Value::List, "off")
    .reach(Reach::Application),
    /// Answer 429 to clients that send more requests than this: `REQUESTS/TIME`, where the time is `s`, `m`, `h` or `d`, or a
    /// number of them (`20/30s`). All workers count together. A client is an address, of IPv6 a /64 network. Behind a reverse
    /// proxy it is the address that the proxy names, if `forwarded-allow-ips` trusts the proxy. The number of requests may also
    /// come together, and then one more for each share of the time. The response comes before the body is read, and its
    /// `Retry-After` says in how many seconds the next request passes. In the long form, `rate=` is that value, `burst=` the
    /// number of requests that may come together, `route=` a regular expression for the paths that count, `key=` another text
    /// that identifies a client, `name=` a name for the log and the metrics, and `headers=on` adds the fields `RateLimit` and
    /// `RateLimit-Policy` to responses. Limits come before the routes, and each that applies counts the request. See
    /// `ratelimit` on the page about routes for limits behind other rules, and the page "Rate limiting without Redis".
    /// Example: rate-limit = 60/m
    ///          rate-limit = name=login,route=^/login$,rate=10/m,burst=5
    list("rate-limit", Setting::By(add_route)).reach(Reach::Application),
    /// Limit how many requests of some routes are in progress, in all workers together, so that slow pages leave threads for the
    /// others. `name` is for the log and the metrics. `route` is a regular expression for the path, after the rules of `route`.
    /// A request belongs to the first bulkhead that matches. `max` (1 to 1,024) is the number of requests that the application
    /// has at the same time. More requests wait in the order of their arrival, up to `queue` (100 unless set), and for up to
    /// `wait` (5 seconds unless set). They have no thread, and their bodies are not read. The others get 503 with `Retry-After`.
    /// Health checks, static files and answers of rules do not count.
    /// Example: processes = 4
    ///          bulkhead = name=reports,route=^/reports,max=2,queue=20,wait=5s
    list(
        "bulkhead",
        set!(|draft, _, pair| {
            let answering = draft.of::<AnsweringDraft>();
            bulkheads::add(&mut answering.bulkheads, pair)?
        }),
    )
    .takes(Value::Form("keys and values"), "none")
    .reach(Reach::Application),
    /// End the work for a request whose client has left before its response was complete. The task of an ASGI request is
    /// cancelled (`asyncio.CancelledError`). A request whose client has left while it waited for a thread, a greenlet or the
    /// event loop is never begun, in WSGI and gevent too. Requests that run in threads and greenlets continue, as do WebSockets,
    /// and tasks after their response. The request has status 499 in the log. With `true` a client has left if its connection
    /// was reset or closed, or if it has reset its stream of HTTP/2 or aborted its request of FastCGI. A client that has only
    /// ended its sending side may still read, so its request goes on. With `fin` that counts too, for instances whose clients
    /// never do that and read on, such as a reverse proxy. Over TCP, nginx and most clients of HTTP/1 show nothing else when
    /// they leave. The route action `cancel-on-disconnect:` sets it for some requests.
    /// Example: cancel-on-disconnect = true
    supported(
        "cancel-on-disconnect",
        set!(|draft, _, pair| {
            let answering = draft.of::<AnsweringDraft>();
            answering.cancel_location = Some(pair.location.clone());
            answering.answering.cancel_on_disconnect = cancelling::policy(pair)?;
        }),
    )
    .takes(Value::SwitchOr("`fin`, which counts the end of the sending side"), "off")
        .reach(Reach::Application),
    /// Refuse requests that have waited too long for a free thread, with 503 and `Retry-After`, before their body is read and
    /// the application is called (`auto`). In overload, requests otherwise wait until their clients have left, and all work is
    /// for no client. Each worker measures how long requests keep a thread. As many may wait as begin within
    /// `admission-patience`, and fewer while requests take longer than usual. Beyond that number the oldest are refused first,
    /// as their clients leave next. A refused request is not logged and does not count as a request. A metric counts it, and the
    /// log shows one line a minute. Health checks (`health-path`) are never refused. A worker that had a free thread within the
    /// last `admission-patience` does not find any request late.
    /// While all threads are in calls, a worker refuses requests over HTTP/1 in the clear. Those over TLS, HTTP/2, uwsgi, SCGI,
    /// FastCGI and behind the PROXY protocol, and greenlets of gevent, are refused when they would begin. For ASGI the option
    /// has no effect, because requests do not wait for a thread there. See `limit-concurrency`.
    /// Example: http-socket = 127.0.0.1:8000
    ///          admission = auto
    supported("admission", set!(|draft, _, pair| draft.of::<AnsweringDraft>().admission.set(pair)?))
        .takes(Value::OneOf(&ADMISSION_WORDS), "off").reach(Reach::Application),
    /// How long a request may wait before it begins, with `admission = auto`, from 0.05 to 600 seconds. It should be at most half
    /// of the time that clients wait for a response. The default reaches clients that wait for a second.
    /// Example: http-socket = 127.0.0.1:8000
    ///          admission = auto
    ///          admission-patience = 2
    supported(
        "admission-patience",
        set!(|draft, row, pair| {
            let patience_ms = admission::patience(draft.milliseconds(row, pair)?, pair)?;
            draft.of::<AnsweringDraft>().admission.set_patience(patience_ms, pair);
        }),
    )
        .takes(admission::SECONDS, "0.5").reach(Reach::Application),
    /// Do not select the application by the SCRIPT_NAME that a reverse proxy sends.
    /// Example: ignore-script-name = true
    on("ignore-script-name", Setting::Switch(field!(ApplicationSettings.ignore_script_name))).reach(Reach::Application),
    /// Compress responses for clients that accept it, with the first of these codings that they prefer: `gzip`, `br`, `zstd`.
    /// It applies to complete responses and streams, but not to event streams and already compressed responses.
    /// Example: compress = br,zstd,gzip
    supported("compress", set!(|draft, _, pair| draft.of::<AnsweringDraft>().answering.compression.codings = codings(pair)?))
        .takes(Value::List, "off").reach(Reach::Application),
    /// Media types that `compress` compresses, instead of the usual ones. `text/*` and `*+json` are patterns.
    /// Example: compress = gzip
    ///          compress-types = text/html,application/json
    supported("compress-types", Setting::By(add_compressed_types))
        .takes(Value::List, "text, JSON, XML, JavaScript, fonts").reach(Reach::Application),
    /// Do not compress shorter responses. Streams do not have a length, and are always compressed.
    /// Example: compress = gzip
    ///          compress-min-size = 4096
    supported(
        "compress-min-size",
        set!(|draft, row, pair| draft.of::<AnsweringDraft>().answering.compression.least_bytes =
            draft.bounded_usize(row, pair)? as u64),
    )
    .takes(within(0, 1_073_741_824, "bytes"), "1024")
    .reach(Reach::Application),
    /// The compression level of `compress`.
    /// Example: compress = gzip
    ///          compress-level = 3
    supported("compress-level", Setting::Number(field!(AnsweringDraft.answering.compression.level)))
        .takes(within(1, 9, "(1 is fast, 9 is small)"), "5").reach(Reach::Application),
    /// Compress with gzip the responses that have the field `uWSGI-Encoding: gzip` (which is removed), and neither
    /// Content-Length nor Content-Encoding.
    /// uWSGI: Set `compress` to compress responses without involving the application.
    /// Example: http-auto-gzip = true
    on("http-auto-gzip", Setting::Switch(field!(AnsweringDraft.answering.compression.on_demand))).reach(Reach::Application),
];

/// Adds a routing rule: the option's name is its kind.
pub fn add_route(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let rule = RouteRule { option: row.name().to_owned(), text: values::text(pair)?, origin: pair.location.to_string() };
    draft.of::<AnsweringDraft>().routes.push((rule, pair.location.clone()));
    Ok(())
}

pub fn add_header(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (name, value) = field(pair)?;
    // Configurations in use set `Connection: keep-alive`, which uWSGI sends and does not honor.
    match name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("keep-alive") {
        true => draft.diagnostics.push(
            Diagnostic::warning(
                Some(&pair.location),
                format!("`add-header = {name}: …` has no effect: the server manages connections"),
            )
            .advise("remove the line, and see `http-keepalive`"),
        ),
        false => draft.of::<AnsweringDraft>().answering.added.push((name, value)),
    }
    Ok(())
}

pub fn remove_header(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let name = name(&values::text(pair)?, pair)?;
    if name.eq_ignore_ascii_case("content-length") {
        let message = format!("`{} = {name}` has no effect: the server sets lengths", pair.key);
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("remove the line"));
    } else {
        draft.of::<AnsweringDraft>().answering.removed.push(name);
    }
    Ok(())
}

/// The first `compress-types` replaces the default types.
pub fn add_compressed_types(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    if !std::mem::replace(&mut draft.of::<AnsweringDraft>().has_types, true) {
        draft.of::<AnsweringDraft>().answering.compression.types.clear();
    }
    draft.of::<AnsweringDraft>().answering.compression.types.extend(types(pair)?);
    Ok(())
}

impl AnsweringDraft {
    /// Compiles the routes, so that errors in them are reported before anything starts.
    pub fn complete(self, checked_cache: Option<String>, context: &mut Context) -> (Vec<RouteRule>, Answering, CompiledRules) {
        let mut routes = self.routes;
        // The limits of `rate-limit` count before those of routes, whatever the order of the lines.
        routes.sort_by_key(|(rule, _)| !rate_limit::is_one(rule));
        let (rules, locations): (Vec<RouteRule>, Vec<Location>) = routes.into_iter().unzip();
        let (routes, mistakes) = Routes::compile(&rules, &context.directory);
        for mistake in mistakes {
            let location = locations.get(mistake.rule);
            let diagnostic = match mistake.is_fatal {
                true => Diagnostic::error(location, mistake.message),
                false => Diagnostic::warning(location, mistake.message),
            };
            context.diagnostics.push(if mistake.advice.is_empty() { diagnostic } else { diagnostic.advise(mistake.advice) });
        }
        let routes = routes.unwrap_or_default();
        let cancels_by_route = routes.needs.cancels_on_disconnect;
        let bulkheads = self.bulkheads.into_iter().map(|(bulkhead, _)| bulkhead).collect();
        let mut answering = Answering { checked_cache, bulkheads, cancels_by_route, ..self.answering };
        for (_, page) in &mut answering.error_pages {
            *page = context.absolute(&page);
        }
        (rules, answering, CompiledRules { routes, locations })
    }
}

/// `Name: value`.
fn field(pair: &Pair) -> Result<(String, String), Diagnostic> {
    let text = values::text(pair)?;
    let wrong = |message: String| Diagnostic::error(Some(&pair.location), message);
    let Some((name_text, value)) = text.split_once(':') else {
        return Err(wrong(format!("`{} = {text}` has no colon", pair.key)).advise("write `Name: value`"));
    };
    let name = name(name_text, pair)?;
    let value = value.trim().to_owned();
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(wrong(format!("the value of `{name}` has a control character")));
    }
    // RFC 9110 section 7.6.1, RFC 9112 section 6: these fields describe the connection and the framing of each single response.
    const OWN: &[&str] = &["content-length", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"];
    if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(wrong(format!("the server sets `{name}` itself: it differs between responses")).advise("remove the line"));
    }
    Ok((name, value))
}

fn name(text: &str, pair: &Pair) -> Result<String, Diagnostic> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_token) {
        true => Ok(text.to_owned()),
        false => Err(Diagnostic::error(Some(&pair.location), format!("`{text}` is not a name of a header field"))
            .advise("names have letters, digits and dashes")),
    }
}

/// `NAME VARIABLE`.
pub fn collected(pair: &Pair, pulled: bool) -> Result<Collected, Diagnostic> {
    let text = values::text(pair)?;
    match text.split_once(' ').map(|(field, variable)| (field, variable.trim())) {
        Some((field, variable)) if !variable.is_empty() && !variable.contains(' ') => {
            Ok(Collected { field: name(field, pair)?, variable: variable.to_owned(), pulled })
        }
        _ => Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a variable", pair.key))
            .advise("write the field's name, a space, and the variable's name, such as `Content-Type TYPE`")),
    }
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).filter(|word| !word.is_empty())
}

pub fn codings(pair: &Pair) -> Result<Vec<Coding>, Diagnostic> {
    let text = values::text(pair)?;
    if matches!(text.as_str(), "false" | "off" | "no" | "0") {
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for word in words_of(&text) {
        let coding = match word {
            "gzip" => Coding::Gzip,
            "br" | "brotli" => Coding::Brotli,
            "zstd" => Coding::Zstd,
            _ => {
                return Err(Diagnostic::error(Some(&pair.location), format!("`{word}` is not a way to compress"))
                    .advise("write one or more of gzip, br and zstd, the preferred one first"));
            }
        };
        if !made.contains(&coding) {
            made.push(coding);
        }
    }
    Ok(made)
}

fn types(pair: &Pair) -> Result<Vec<String>, Diagnostic> {
    let text = values::text(pair)?.to_ascii_lowercase();
    match words_of(&text).find(|word| !(word.contains('/') || word.starts_with("*+"))) {
        Some(word) => Err(Diagnostic::error(Some(&pair.location), format!("`{word}` is not a media type"))
            .advise("write types such as `text/html`, `text/*` and `*+json`")),
        None => Ok(words_of(&text).map(str::to_owned).collect()),
    }
}

/// Settings of routes, header fields and compression.
#[derive(Default)]
pub struct AnsweringDraft {
    pub routes: Vec<(RouteRule, Location)>,
    pub answering: Answering,
    /// `compress-types` has replaced the default types.
    pub has_types: bool,
    /// Where `sticky` was configured first.
    pub sticky_location: Option<Location>,
    pub bulkheads: Vec<bulkheads::LocatedBulkhead>,
    /// Where `cancel-on-disconnect` was configured last.
    pub cancel_location: Option<Location>,
    pub admission: admission::AdmissionDraft,
}
