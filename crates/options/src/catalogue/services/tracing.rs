//! Rows of request identifiers and traces. Pure data.

use bolide_contract::logging::Tracing;

use crate::resolve::logging::otlp;
use crate::row::{OptionEntry, Setting, Value, set};
use crate::values;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "request-id",
        Setting::Switch(|draft| &mut draft.of::<Tracing>().request_ids),
        Value::Switch,
        "on with `log-json`, or if `log-format` has `%(request_id)`",
        "Each request has an identifier: the field `X-Request-ID` of a front server that `trusted-proxies` names, or of any peer that speaks uwsgi, SCGI or FastCGI; otherwise 128 random bits as 32 hexadecimal digits. The application finds it as `HTTP_X_REQUEST_ID` and `bolide.request_id` in `environ`, as the field `x-request-id` and the extension `bolide.request_id` in a scope; `%(request_id)` in `log-format` and `request_id` in JSON have it, and so do reports of exceptions. An identifier of a front server has at most 128 bytes of letters, digits and `-_.:/+=@`.",
    )
    .example("request-id = true\nlog-format = %(request_id) %(method) %(uri) %(status)"),
    OptionEntry::supported(
        "request-id-answer",
        Setting::Switch(|draft| &mut draft.of::<Tracing>().answers_have_ids),
        Value::Switch,
        "off",
        "Responses have the identifier of their request in the field `X-Request-ID`, unless the application sets that field. It turns `request-id` on.",
    )
    .example("request-id-answer = true"),
    OptionEntry::supported(
        "trace-context",
        Setting::Switch(|draft| &mut draft.of::<Tracing>().has_traces),
        Value::Switch,
        "off",
        "Each request belongs to a trace (W3C Trace Context): the application gets the `traceparent` and `tracestate` of a trusted front server, or a new `traceparent`, and the response has the field `traceresponse`. Without this option the application gets the fields as the client has sent them.",
    )
    .example("trace-context = true"),
    OptionEntry::supported(
        "otlp",
        Setting::By(otlp::set_collector),
        Value::Text,
        "",
        "Sends a span of each sampled request to this collector of OpenTelemetry, by OTLP over HTTP (protobuf). `/v1/traces` is added to an endpoint without a path. It turns `trace-context` on; the application's own spans become children of the request's. A process of its own sends the spans, in batches: no request waits for the collector, and spans that it does not take in time are dropped and counted. `https` trusts the certificates of the system, or those of the file that SSL_CERT_FILE names. An empty value means none.",
    )
    .example("otlp = http://127.0.0.1:4318\notlp-service = shop\notlp-sample = 0.1"),
    OptionEntry::supported(
        "otlp-sample",
        Setting::By(otlp::set_sample),
        Value::Special,
        "1",
        "The share of requests that have a span with `otlp`, from 0 to 1. It is decided by the identifier of the trace, as OpenTelemetry's sampler `parentbased_traceidratio` does: if a trusted front server sends a `traceparent`, its flag `sampled` decides instead.",
    )
    .example("otlp-sample = 0.1"),
    OptionEntry::supported(
        "otlp-header",
        Setting::By(otlp::add_header),
        Value::List,
        "",
        "A header field, `NAME: TEXT`, of the requests to the collector of `otlp`, such as its token. Listings of the configuration do not show the value.",
    )
    .example("otlp-header = Authorization: Bearer 4f1c0b"),
    OptionEntry::supported(
        "otlp-service",
        set!(|draft, _, pair| draft.of::<Tracing>().spans.service = Some(values::text(pair)?)),
        Value::Text,
        "the name of the application",
        "The `service.name` of the spans of `otlp`.",
    )
    .example("otlp-service = shop"),
];
