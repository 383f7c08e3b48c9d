//! Rows of request identifiers and traces. Pure data.

use crate::catalogue::row::{OptionEntry, Setting, Value};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "request-id",
        Setting::Switch(|draft| &mut draft.tracing.request_ids),
        Value::Switch,
        "on with `log-json`, or if `log-format` has `%(request_id)`",
        "Each request has an identifier: the field `X-Request-ID` of a front server that `trusted-proxies` names, or of any peer that speaks uwsgi, SCGI or FastCGI; otherwise 128 random bits as 32 hexadecimal digits. The application finds it as `HTTP_X_REQUEST_ID` and `bolide.request_id` in `environ`, as the field `x-request-id` and the extension `bolide.request_id` in a scope; `%(request_id)` in `log-format` and `request_id` in JSON have it, and so do reports of exceptions. An identifier of a front server has at most 128 bytes of letters, digits and `-_.:/+=@`.",
    )
    .example("request-id = true\nlog-format = %(request_id) %(method) %(uri) %(status)"),
    OptionEntry::supported(
        "request-id-answer",
        Setting::Switch(|draft| &mut draft.tracing.answers_have_ids),
        Value::Switch,
        "off",
        "Responses have the identifier of their request in the field `X-Request-ID`, unless the application sets that field. It turns `request-id` on.",
    )
    .example("request-id-answer = true"),
    OptionEntry::supported(
        "trace-context",
        Setting::Switch(|draft| &mut draft.tracing.has_traces),
        Value::Switch,
        "off",
        "Each request belongs to a trace (W3C Trace Context): the application gets the `traceparent` and `tracestate` of a trusted front server, or a new `traceparent`, and the response has the field `traceresponse`. Without this option the application gets the fields as the client has sent them.",
    )
    .example("trace-context = true"),
];
