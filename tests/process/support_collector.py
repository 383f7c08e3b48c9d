"""A collector of OpenTelemetry for tests: takes spans by OTLP over HTTP, and answers as told."""

import contextlib
import http.server
import ssl
import threading

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.waiting import wait_until


class Collector:
    """``answers`` are the statuses of the next requests; after them every request is answered with 200. A request with the
    status None is not answered while the collector exists. ``context`` serves TLS.
    """

    def __init__(self, answers=(), context=None):
        self.answers = list(answers)
        #: Requests as messages, those with an error included, and their header fields.
        self.requests = []
        self.headers = []
        self.paths = []
        self._taken = []
        self._ended = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.take(self.path, self.headers, body)
                if status is None:
                    collector._ended.wait()
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

            def handle(self):
                # A client that is killed, or trusts no certificate of ours, ends without a word.
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    super().handle()

        return Handler

    def take(self, path, headers, body):
        request = ExportTraceServiceRequest.FromString(body)
        status = self.answers.pop(0) if self.answers else 200
        self.paths.append(path)
        self.headers.append(headers)
        self.requests.append(request)
        if status == 200:
            self._taken.append(request)
        return status

    @property
    def spans(self):
        """The spans that were answered with 200."""
        groups = [scope for request in self._taken for resource in request.resource_spans for scope in resource.scope_spans]
        return [span for group in groups for span in group.spans]

    @property
    def resource(self):
        return values(self.requests[-1].resource_spans[0].resource.attributes)

    def wait_for(self, count=1):
        """Returns the spans when there are at least this many."""
        return wait_until(lambda: len(self.spans) >= count and self.spans, f"{count} spans")


def values(pairs):
    """Attributes as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def told(span):
    """What a span says of its request, with its status code."""
    return {**values(span.attributes), "failed": span.status.code == 2}
