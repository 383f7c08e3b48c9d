"""The agents of OpenTelemetry and Sentry see the same trace with ``trace-context``, ``otlp`` and without them."""

import json

import pytest

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#: Nothing listens there; the spans of the server itself are of no interest here.
OTLP = "otlp = http://127.0.0.1:9"
SENTRY = "771a43a4192642f0b136d5159a501700-1234567890abcdef-1"

#: Each application answers with the trace and the parent of the span that its agent has made for the request.
TOLD = """\
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
spans = []
class Kept(SpanProcessor):
    def on_start(self, span, parent_context=None):
        if span.kind is trace.SpanKind.SERVER:
            spans.append(span)
provider = TracerProvider()
provider.add_span_processor(Kept())
trace.set_tracer_provider(provider)
def told():
    span = spans[-1]
    parent = span.parent
    return {
        "trace": format(span.get_span_context().trace_id, "032x"),
        "parent": parent and format(parent.span_id, "016x"),
        "state": parent and parent.trace_state.to_header(),
    }
"""

APPLICATIONS = {
    "flask": TOLD
    + """\
import flask, sentry_sdk
from opentelemetry.instrumentation.flask import FlaskInstrumentor
events = []
sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=lambda event: events.append(event), traces_sample_rate=1.0)
application = flask.Flask(__name__)
FlaskInstrumentor().instrument_app(application)
@application.get("/")
def view():
    return told()
@application.get("/sentry")
def sentry():
    span = sentry_sdk.get_current_span()
    return {"trace": span.trace_id, "parent": span.containing_transaction.parent_span_id}
""",
    "asgi": TOLD
    + """\
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
async def view(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(told()).encode()})
application = OpenTelemetryMiddleware(view)
""",
}


@pytest.fixture(params=["", "trace-context = true", OTLP], ids=["without", "with", "otlp"])
def serving(serve, tmp_path, request):
    def serving(name):
        (tmp_path / "shop.py").write_text(APPLICATIONS[name])
        server = serve(f"pythonpath = {tmp_path}\nmodule = shop:application\n{request.param}")
        return server, request.param

    return serving


def ask(server, headers, target="/"):
    with server.connect() as client:
        answer = client.request("GET", target, headers)
    return json.loads(answer.body), {name.lower(): value for name, value in answer.headers}.get("traceresponse")


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_agents_see_the_clients_span_as_their_parent(serving, name):
    server, option = serving(name)
    told, answered = ask(server, [("traceparent", PARENT), ("tracestate", "vendor=1")])
    _, trace, span, _ = PARENT.split("-")
    if option == OTLP:
        # The server's own span is between them.
        assert answered.split("-")[2] not in ("", span)
        span = answered.split("-")[2]
    assert told == {"trace": trace, "parent": span, "state": "vendor=1"}
    assert answered == (f"00-{trace}-{span}-01" if option else None)
    told, answered = ask(server, [])
    if option:
        assert (told["trace"], told["parent"]) == tuple(answered.split("-")[1:3])
    else:
        assert (told["parent"], answered) == (None, None)
    if name == "flask":
        told, _ = ask(server, [("sentry-trace", SENTRY)], "/sentry")
        assert told == dict(zip(("trace", "parent"), SENTRY.split("-")[:2]))
