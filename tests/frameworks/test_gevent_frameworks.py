"""Flask and Django in greenlets of a patched worker, that wait for requests, redis, PostgreSQL and SQLite."""

import hashlib
import json

import pytest
import requests
from support.postgresql import Postgresql
from support.redis_server import RedisServer
from support.waiting import wait_until

SITE = """
import hashlib, logging, os, sqlite3, tempfile, threading
import gevent, redis, requests
from flask import Flask, Response, g, jsonify, request, stream_with_context
app = application = Flask(__name__)
logging.basicConfig(level=logging.INFO, format="%(threadName)s %(message)s")
waiting = 0
opened = threading.Event()
store = redis.Redis(unix_socket_path=os.environ["REDIS"]) if "REDIS" in os.environ else None

def wait():
    global waiting
    waiting += 1
    opened.wait()
    waiting -= 1

@app.route("/waiting")
def number():
    return str(waiting)
@app.route("/open")
def open_all():
    opened.set()
    return "open"
@app.route("/json", methods=["POST"])
def of_json():
    wait()
    return jsonify(got=request.get_json(), path=request.path)
@app.route("/form", methods=["POST"])
def of_form():
    wait()
    return jsonify(dict(request.form))
@app.route("/upload", methods=["POST"])
def upload():
    file = request.files["file"]
    wait()
    return jsonify(name=file.filename, digest=hashlib.sha256(file.read()).hexdigest(), note=request.form["note"])
@app.route("/stream/<name>")
def stream(name):
    g.name = name
    def parts():
        yield f"{g.name} {request.args['x']},"
        wait()
        yield f"{g.name} {request.args['x']}"
    return Response(stream_with_context(parts()), mimetype="text/plain")
@app.route("/itself")
def itself():
    found = [requests.get(request.host_url + "slow", timeout=30).text for _ in range(2)]
    return ",".join(found)
@app.route("/slow")
def slow():
    gevent.sleep(0.05)
    return "slow"
@app.route("/logs/<name>")
def logs(name):
    app.logger.info("before %s", name)
    wait()
    app.logger.info("after %s", name)
    return name
@app.route("/sqlite/<int:number>")
def database(number):
    with sqlite3.connect(os.path.join(os.path.dirname(__file__), "data"), timeout=30) as connection:
        connection.execute("create table if not exists orders (number integer)")
        connection.execute("insert into orders values (?)", (number,))
    # The hub waits in SQLite, so no greenlet may wait while it holds the file.
    gevent.sleep(0)
    return str(number)
@app.route("/orders")
def orders():
    with sqlite3.connect(os.path.join(os.path.dirname(__file__), "data")) as connection:
        return jsonify([row[0] for row in connection.execute("select number from orders order by number")])
@app.route("/take/<name>")
def take(name):
    global waiting
    waiting += 1
    found = store.blpop(name, timeout=30)
    waiting -= 1
    return found[1]
@app.route("/give/<name>/<text>")
def give(name, text):
    return str(store.rpush(name, text))
"""

#: Each view waits in the database, for a lock that another one releases.
DJANGO = """
import psycogreen.gevent
psycogreen.gevent.patch_psycopg()
import os
from django.conf import settings
settings.configure(
    SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__,
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": os.environ["POSTGRESQL"],
    }},
)
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse
from django.urls import path
waiting = 0
is_held = False
def ask(sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()
def wait(request, number):
    global waiting
    waiting += 1
    ask("select pg_advisory_lock(%s)", number)
    waiting -= 1
    return HttpResponse(ask("select 'got ' || %s", number)[0])
def hold(request):
    global is_held
    ask("select count(pg_advisory_lock(number)) from generate_series(0, 9) as number")
    is_held = True
    while waiting < 10:
        ask("select pg_sleep(0.01)")
    ask("select pg_advisory_unlock_all()")
    return HttpResponse("released")
def held(request):
    return HttpResponse(str(is_held))
urlpatterns = [path("wait/<int:number>", wait), path("hold", hold), path("held", held)]
application = get_wsgi_application()
"""


@pytest.fixture
def site(serve):
    def start(more="", text=SITE):
        server = serve.prepare(f"module = shop\npythonpath = {{directory}}\ngevent = 50\ngevent-monkey-patch = true\n{more}")
        (server.directory / "shop.py").write_text(text)
        return server.start()

    return start


def begin(server, target, method="GET", headers=(), body=b""):
    client = server.connect()
    head = f"{method} {target} HTTP/1.1\r\nHost: {server.url[7:]}\r\nContent-Length: {len(body)}\r\n"
    client.send((head + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n").encode() + body)
    return client


def waits(server, count):
    wait_until(lambda: server.get("/waiting").text == str(count), f"{count} wait")


def test_each_request_of_flask_keeps_its_own_data_while_others_wait(site):
    server = site()
    file = bytes(range(256)) * 20480
    made = requests.Request("POST", "http://shop/upload", files={"file": ("a.bin", file)}, data={"note": "n\u00e9"}).prepare()
    posts = [begin(server, "/json", "POST", [("Content-Type", "application/json")], json.dumps([n]).encode()) for n in range(10)]
    form = begin(server, "/form", "POST", [("Content-Type", "application/x-www-form-urlencoded")], b"a=1&b=%C3%A9")
    upload = begin(server, "/upload", "POST", [("Content-Type", made.headers["Content-Type"])], made.body)
    streams = [begin(server, f"/stream/s{number}?x={number}") for number in range(10)]
    chunks = []
    for number, client in enumerate(streams):
        assert client.read_head().status == 200
        chunks.append(client.read_chunks())
        assert next(chunks[-1]).decode() == f"s{number} {number},"
    waits(server, 22)
    server.get("/open")
    for number, client in enumerate(posts):
        assert json.loads(client.read_response().body) == {"got": [number], "path": "/json"}
    assert json.loads(form.read_response().body) == {"a": "1", "b": "\u00e9"}
    told = json.loads(upload.read_response().body)
    assert told == {"name": "a.bin", "digest": hashlib.sha256(file).hexdigest(), "note": "n\u00e9"}
    for number, left in enumerate(chunks):
        assert b"".join(left).decode() == f"s{number} {number}"


def test_views_ask_their_own_worker_and_a_database_file(site):
    server = site()
    clients = [begin(server, "/itself") for _ in range(10)]
    assert {client.read_response().text for client in clients} == {"slow,slow"}
    clients = [begin(server, f"/sqlite/{number}") for number in range(10)]
    assert [client.read_response().text for client in clients] == [str(number) for number in range(10)]
    assert json.loads(server.get("/orders").body) == list(range(10))


def test_lines_of_the_logging_module_are_whole(site):
    server = site()
    clients = [begin(server, f"/logs/number{number}") for number in range(20)]
    waits(server, 20)
    server.get("/open")
    assert [client.read_response().text for client in clients] == [f"number{number}" for number in range(20)]
    for number in range(20):
        server.wait_for_log(rf"^\S+ after number{number}$")
    assert len([line for line in server.lines if " before number" in line]) == 20


def test_a_view_that_waits_for_redis_lets_another_one_feed_it(site):
    redis = RedisServer()
    try:
        server = site(f"env = REDIS={redis.socket}")
        clients = [begin(server, f"/take/queue{number}") for number in range(10)]
        waits(server, 10)
        for number in reversed(range(10)):
            server.get(f"/give/queue{number}/text{number}")
            assert clients[number].read_response().text == f"text{number}"
    finally:
        redis.finish()


def test_views_of_django_wait_for_postgresql_beside_each_other(site):
    database = Postgresql()
    try:
        server = site(f"env = POSTGRESQL={database.directory}", DJANGO)
        # It releases its locks when the ten wait.
        holder = begin(server, "/hold")
        wait_until(lambda: server.get("/held").text == "True", "the locks")
        clients = [begin(server, f"/wait/{number}") for number in range(10)]
        assert holder.read_response().text == "released"
        assert {client.read_response().text for client in clients} == {f"got {number}" for number in range(10)}
    finally:
        database.finish()
