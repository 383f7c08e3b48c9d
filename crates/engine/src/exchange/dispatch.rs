//! Answers without the application: decisions of routes, and static files. It converts a request to a query for `bolide-files`,
//! and the result to a response. It never enters the language. Worker threads run it.

use std::cell::RefCell;

use bolide_files::{Answer, Conditions, FileRequest, Page};
use bolide_protocol::http1::head::{Field, HeadLimits, header_block};
use bolide_routes::{Form, Served, Verdict};

use crate::app::App;
use crate::exchange::context::ExchangeContext;
use crate::exchange::https_redirect::https_redirect;
use crate::exchange::routing::{Rules, give, give_cached};
use crate::logging::access_log::complain;
use crate::logging::counting::AnsweredBy;
use crate::request::{HttpRequest, Parts, Request, VariablesRequest};
use crate::response::ResponseWriter;
use crate::response::named_file::XSendfile;

/// Answers a request by a redirect, a route or a file if possible, and returns which of them answered. `None`: the application
/// must answer.
pub fn serve_directly<A: App>(
    context: &mut ExchangeContext<'_, A>,
    request: &Request<'_, A::Memo>,
    verdict: Option<&Verdict>,
) -> Option<AnsweredBy> {
    let worker = context.worker;
    let listener = worker.listeners.get(context.listener);
    if let Some(port) = listener.and_then(|listener| listener.redirects_to_https) {
        give(&https_redirect(request, port), worker.rules, &mut context.writer);
        return Some(AnsweredBy::Route);
    }
    match (verdict, worker.files) {
        (None | Some(Verdict::Serve), None) => None,
        (None | Some(Verdict::Serve), Some(files)) => {
            let answer = if files.has_maps() { ask(context, request, |ask, complain| files.find(ask, complain)) } else { None };
            if answer.is_none() && files.allows_any_sendfile() {
                let x_sendfile = ask(context, request, |ask, _| XSendfile::of(files, worker.number, ask));
                context.writer.allow_x_sendfile(x_sendfile);
            }
            answer.map(|answer| say(&mut context.writer, worker.rules, answer)).map(|()| AnsweredBy::File)
        }
        (Some(Verdict::Answer(answer)), _) => {
            give(answer, worker.rules, &mut context.writer);
            Some(AnsweredBy::Route)
        }
        (Some(Verdict::Cached(cached)), files) => {
            give_cached(cached, files, &mut context.writer);
            Some(AnsweredBy::Route)
        }
        (Some(Verdict::File(served, relative)), Some(files)) => {
            let routed = routed(served, relative);
            let answer = ask(context, request, |ask, complain| files.find_routed(&routed, ask, complain));
            say(&mut context.writer, worker.rules, answer);
            Some(AnsweredBy::FileOfRoute)
        }
        // The settings of files exist whenever a route names a file.
        (Some(Verdict::Close | Verdict::File(..)), _) => {
            context.writer.cut_off();
            Some(AnsweredBy::Route)
        }
    }
}

fn routed<'a>(served: &'a Served, relative: &'a [u8]) -> bolide_files::Routed<'a> {
    let page = match &served.form {
        Form::Static => None,
        Form::Page(page) => Some(Page {
            status: page.status,
            reason: &page.reason,
            content_type: &page.content_type,
            type_by_name: page.type_by_name,
        }),
    };
    bolide_files::Routed { directory: served.directory, relative, page }
}

/// Looks up the file of a request.
fn ask<A: App, T>(
    context: &mut ExchangeContext<'_, A>,
    request: &Request<'_, A::Memo>,
    find: impl FnOnce(&FileRequest<'_>, &mut dyn FnMut(&str)) -> T,
) -> T {
    let app = RefCell::new(&mut *context.app);
    let (worker, thread) = (context.worker, &*context.thread);
    // If the connection has cached the header block, its fields are not available as spans and are parsed again.
    let mut again = Vec::new();
    let mut ask = FileRequest {
        method: b"",
        path: b"",
        uri: b"",
        document_root: b"",
        conditions: Conditions::default(),
        now_ms: thread.clock.now_ms,
        now: thread.clock.second(),
        aside: &|work| app.borrow_mut().aside(work),
    };
    (ask.method, ask.uri) = (request.parts.method(), request.parts.uri());
    match &request.parts.0 {
        Parts::Http(http) => note_http(&mut ask, http, &worker.head_limits, &mut again),
        Parts::Variables(variables) => note_variables(&mut ask, variables),
    }
    find(&ask, &mut |text| complain(worker.number, text))
}

fn note_http<'a, Memo>(ask: &mut FileRequest<'a>, http: &'a HttpRequest<'_, Memo>, limits: &HeadLimits, again: &mut Vec<Field>) {
    ask.path = http.path;
    let mut fields = http.fields;
    if fields.is_empty() && http.header_bytes.len() > 2 {
        // They parsed before, so parsing does not fail.
        let _ = header_block(http.header_bytes, http.version, limits, again);
        fields = again;
    }
    for field in fields {
        ask.conditions.note(field.name.of(http.header_bytes), field.value.of(http.header_bytes));
    }
}

fn note_variables<'a>(ask: &mut FileRequest<'a>, uwsgi: &'a VariablesRequest<'_>) {
    for (name, value) in uwsgi.pairs() {
        match name {
            b"PATH_INFO" => ask.path = value,
            b"DOCUMENT_ROOT" => ask.document_root = value,
            // A reverse proxy sends an empty value for a field that its client did not send.
            _ if !value.is_empty() => {
                if let Some(name) = name.strip_prefix(b"HTTP_") {
                    ask.conditions.note(name, value);
                }
            }
            _ => {}
        }
    }
}

/// Passes an answer to the response. Data that the client does not read immediately is sent later.
fn say(response: &mut ResponseWriter<'_>, rules: Option<&'static Rules>, answer: Answer) {
    if let Some(page) = rules.filter(|_| answer.is_in_own_words()).and_then(|rules| rules.error_page(answer.status)) {
        return response.give_page(answer.status, "text/html", &page);
    }
    if let Some((content_type, bytes, is_compressed)) = answer.unmodified() {
        response.note_unmodified(content_type, bytes, is_compressed);
    }
    response.ready_head(answer.status, &answer.head(), answer.fields(), answer.length);
    response.give_body(answer.body);
}
