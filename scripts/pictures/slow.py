"""The picture of the report about a slow request, which waits for a database."""

import re
import socket
import threading
import time

from running import free_port, logged

SERVING = """[uwsgi]
http = 127.0.0.1:{port}
module = shop:application
slow-request = 300
"""
APPLICATION = """import orders


def application(environ, start_response):
    body = orders.of_day() if environ["PATH_INFO"] == "/orders" else b"hello"
    start_response("200 OK", [])
    return [body]
"""
ORDERS = """import socket


def of_day():
    database = socket.create_connection(("127.0.0.1", {port}))
    return database.recv(100)
"""
#: The time until the database answers, in seconds: the request has been looked at several times by then.
ANSWER_SECONDS = 1.8


def slow(directory):
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as database:
        own = database.getsockname()[1]
        threading.Thread(target=answer, args=(database,), daemon=True).start()
        (directory / "shop.py").write_text(APPLICATION)
        (directory / "orders.py").write_text(ORDERS.format(port=own))
        (directory / "serve.ini").write_text(SERVING.format(port=port))
        lines = logged(directory, port, "/orders?day=2026-11-22", " samples ")
    begin = next(number for number, line in enumerate(lines) if "slow request:" in line)
    return {"slow": ["$ bolide uwsgi.ini", "…", *(settled(line, own) for line in lines[begin:])]}


def answer(database):
    connection, _ = database.accept()
    with connection:
        time.sleep(ANSWER_SECONDS)
        connection.sendall(b"3 orders")


def settled(line, port):
    line = line.replace(f"127.0.0.1:{port}", "10.0.0.5:5432")
    line = re.sub(r"\d+ of \d+ samples? \(about [^)]*\)", "3 of 3 samples (about 1.8 s)", line)
    line = re.sub(r"request [0-9a-f]{8,}", "request 5f0c2a9e71d84b36", line)
    return re.sub(r"\b\d[\d.]* (m?s)\b(?! of| in)", lambda found: "1.8 s" if found[1] == "s" else "0 ms", line)
