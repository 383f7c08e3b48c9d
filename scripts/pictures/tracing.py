"""Pictures of a span as a collector of OpenTelemetry has it, and of the report about a route that leaves memory behind."""

import http.server
import queue
import re
import signal
import subprocess
import threading

from google.protobuf import text_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from running import TIMEOUT_SECONDS, ask, bolide, free_port

SPANS = """[uwsgi]
http = 127.0.0.1:{port}
module = shop:application
otlp = http://127.0.0.1:{collector}
otlp-service = shop
route-group = orders /orders/
"""
SHOP = """import time


def application(environ, start_response):
    time.sleep(0.2)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"7 orders"]
"""
LEAK = """[uwsgi]
http = 127.0.0.1:{port}
module = shop:application
leak-report = 160
disable-logging = true
"""
LEAKING = """seen = []


def application(environ, start_response):
    if environ["PATH_INFO"].startswith("/users/"):
        seen.append({"path": environ["PATH_INFO"], "visits": [1.5]})
    start_response("200 OK", [("Content-Length", "5")])
    return [b"hello"]
"""
#: Requests after which the report must be there.
MAX_REQUESTS = 20_000


def span(directory):
    taken = queue.Queue()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            taken.put(ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, args=(0.01,), daemon=True).start()
    port = free_port()
    (directory / "shop.py").write_text(SHOP)
    (directory / "uwsgi.ini").write_text(SPANS.format(port=port, collector=collector.server_address[1]))
    with bolide(directory, "uwsgi.ini", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            next(line for line in server.stderr if "open http" in line)
            ask(port, "/orders/7?token=s3cret")
            request = taken.get(timeout=TIMEOUT_SECONDS)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=TIMEOUT_SECONDS)
            collector.shutdown()
            collector.server_close()
    (made,) = request.resource_spans[0].scope_spans[0].spans
    return {"span": ["$ curl http://127.0.0.1:8000/orders/7?token=s3cret", "7 orders", "", *told(made, port)]}


def told(made, port):
    """Returns a span as lines, each field on one line, as protobuf writes it."""
    print_field = text_format.MessageToString
    yield f'name: "{made.name}"'
    yield 'trace_id: "4bf92f3577b34da6a3ce929d0e0e4736"  span_id: "00f067aa0ba902b7"'
    for attribute in made.attributes:
        if attribute.key != "user_agent.original":
            yield f"attributes {{ {print_field(attribute, as_one_line=True, as_utf8=True)} }}".replace(str(port), "8000")
    # The view sleeps for 200 ms; the rest depends on the machine.
    for event in made.events:
        is_after = event.time_unix_nano - made.start_time_unix_nano >= 200_000_000 and event.name in ("write", "returned")
        yield f'events {{ name: "{event.name}" }}  +{200 if is_after else 0} ms'


def leak(directory):
    port = free_port()
    (directory / "shop.py").write_text(LEAKING)
    (directory / "uwsgi.ini").write_text(LEAK.format(port=port))
    found = []
    with bolide(directory, "uwsgi.ini", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            next(line for line in server.stderr if "open http" in line)
            reader = threading.Thread(target=lambda: found.extend(line for line in server.stderr if "leaves about" in line))
            reader.start()
            for number in range(MAX_REQUESTS):
                if found:
                    break
                ask(port, f"/users/{number}")
                ask(port, "/")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=TIMEOUT_SECONDS)
            reader.join()
    return {"leak": ["$ bolide uwsgi.ini", "…", settled(found[0].rstrip("\n"))]}


def settled(line):
    line = re.sub(r"about [^(]* in memory", "about 429 bytes in memory", line)
    line = re.sub(r"\(\d+ of the last \d+", "(81 of the last 160", line)
    line = re.sub(r"parts: [^;]*;", "parts: 4.6 KiB, 3.8 KiB, 4.2 KiB, 4.2 KiB, 3.4 KiB, 5.0 KiB, 4.2 KiB, 4.6 KiB;", line)
    return re.sub(r"[\d.]+ small objects", "5.0 small objects", line)
