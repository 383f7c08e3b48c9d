"""`bolide init --from FILE`: the generated configuration passes the check, starts, and serves like the file's own
command line.
"""

import os
import subprocess

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS

WSGI = """
import os
def app(environ, start_response):
    start_response("200 OK", [])
    return [os.environ.get("SHOP", "nothing").encode()]
def create_app():
    return app
"""
ASGI = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"nothing"})
"""


def run(directory, *arguments, **environment):
    done = subprocess.run(
        [*program(), *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


#: File, its text, the expected configuration, and the application's answer.
FILES = {
    "Procfile": (
        "release: python manage.py migrate\nweb: SHOP=open gunicorn app:app --workers 2 --bind 0.0.0.0:$PORT --log-level info\n",
        ["module = app:app", "processes = 2", "http = 0.0.0.0:$(PORT)", "env = SHOP=open"],
        "open",
    ),
    "Dockerfile": (
        'FROM python:3.12\nENV SHOP=packed\nCOPY . .\nENTRYPOINT ["python", "-m"]\n'
        'CMD ["uvicorn", "web:app", "--host", "0.0.0.0", "--port", "8000", "--workers", "2"]\n',
        ["asgi = web:app", "http = 0.0.0.0:8000", "processes = 2", "lazy-apps = true"],
        "nothing",
    ),
    "docker-compose.yml": (
        'services:\n  web:\n    command: >\n      sh -c "waitress-serve --call\n      --port=${PORT:-8080} app:create_app"\n',
        ["module = app:create_app", "factory = true", "threads = 4", "if-env = PORT", "http = 0.0.0.0:8080"],
        "nothing",
    ),
    "supervisord.conf": (
        "[program:shop]\ncommand=hypercorn -b 127.0.0.1:%(ENV_PORT)s -w 2 web:app\n"
        'environment=SHOP="a b",OTHER=c\nautorestart=true\n',
        ["module = web:app", "http = 127.0.0.1:$(PORT)", "env = SHOP=a b", "env = OTHER=c"],
        "nothing",
    ),
    "shop.service": (
        "[Unit]\nDescription=Shop\n[Service]\nEnvironment=SHOP=served PORT=1\nExecStart=/opt/shop/bin/gunicorn \\\n"
        "    --access-logfile - --timeout 90 \\\n    app:app\nRestart=always\n",
        ["module = app:app", "env = SHOP=served", "harakiri = 90", "http = 127.0.0.1:8000"],
        "served",
    ),
    "start.sh": (
        "#!/bin/sh\nset -e\n"
        "python manage.py migrate && exec poetry run granian --interface wsgi --port 8000 --workers 2 app:app\n",
        ["module = app:app", "http = 127.0.0.1:8000", "; python manage.py migrate: it does not belong to the server"],
        "nothing",
    ),
    "flask/Procfile": (
        "web: FLASK_ENV=x flask --app app run -h 0.0.0.0 -p 5001\n",
        ["module = app:app", "http = 0.0.0.0:5001"],
        "nothing",
    ),
    "fastapi/Procfile": ("web: fastapi run web.py --port 8001\n", ["asgi = web:app", "http = 0.0.0.0:8001"], "nothing"),
    "daphne/Procfile": ("web: daphne -b 127.0.0.1 -p 8002 web:app\n", ["asgi = web:app", "http = 127.0.0.1:8002"], "nothing"),
    "hypercorn/Procfile": (
        "web: hypercorn -b 127.0.0.1:${PORT:-8005} web:app\n",
        ["module = web:app", "if-env = PORT", "http = 127.0.0.1:%(_)", "if-not-env = PORT", "http = 127.0.0.1:8005"],
        "nothing",
    ),
    "uwsgi/Procfile": (
        "web: uwsgi --http-socket :8003 --module app:app --processes 2 --master\n",
        ["http-socket = :8003", "module = app:app", "processes = 2", "master = true"],
        "nothing",
    ),
}


@pytest.fixture
def shop(serve):
    """Writes a file into a directory with applications. Returns the server and the name of the file."""

    def shop(file, text):
        server = serve.prepare(arguments=["bolide.ini"])
        name = file.rsplit("/")[-1]
        (server.directory / name).write_text(text)
        (server.directory / "app.py").write_text(WSGI)
        (server.directory / "web.py").write_text(ASGI)
        return server, name

    return shop


@pytest.mark.parametrize("file", FILES)
def test_the_generated_configuration_passes_the_check_starts_and_serves(file, shop):
    text, expected, answer = FILES[file]
    server, name = shop(file, text)
    status, said, _ = run(server.directory, "init", "--from", name)
    assert status == 0, said
    assert "Start it with:           bolide bolide.ini" in said
    written = (server.directory / "bolide.ini").read_text()
    lines = written.splitlines()
    for line in expected:
        assert any(known == line or (line.startswith(";") and known.startswith(line)) for known in lines), written
    status, said, _ = run(server.directory, "check", "bolide.ini", PORT="8004")
    assert status == 0, f"{said}\n{written}"
    # The port of the test is a free one.
    addresses = ("http = ", "http-socket = ", "processes = %(_)", "if-", "endif")
    kept = [line for line in lines if not line.startswith(addresses)]
    (server.directory / "bolide.ini").write_text("\n".join([*kept, "http = 127.0.0.1:0"]) + "\n")
    server.start()
    assert server.get("/").text == answer


def test_a_gunicorn_conf_becomes_a_configuration_that_keeps_its_hooks(shop):
    hooked = (
        "wsgi_app = 'app:app'\nbind = '127.0.0.1:0'\nworkers = 2\n"
        "def post_fork(server, worker):\n    server.log.info('worker %s', worker.age)\n"
        "def worker_int(worker):\n    pass\n"
    )
    server, name = shop("gunicorn.conf.py", hooked)
    status, said, errors = run(server.directory, "init", "--from", name)
    assert status == 0, said
    assert "not carried over from gunicorn.conf.py: gunicorn.conf.py:6: worker_int: this hook is not called" in errors
    written = (server.directory / "bolide.ini").read_text()
    assert "gunicorn-hooks = %dgunicorn.conf.py\n" in written
    assert "; gunicorn.conf.py:6: worker_int" in written
    server.start()
    server.wait_for_text("worker 2")
    assert server.get("/").text == "nothing"


def test_it_writes_toml_too_and_never_over_a_file(shop):
    server, name = shop("Procfile", "web: gunicorn -b :${PORT:-8000} -e 'A=\"b\"' -e C=d app:app\n")
    status, said, _ = run(server.directory, "init", "--from", name, "--to", "toml")
    assert status == 0, said
    written = (server.directory / "bolide.toml").read_text()
    assert 'http = ":8000"' in written
    assert 'env = ["A=\\"b\\"", "C=d"]' in written
    assert run(server.directory, "check", "bolide.toml")[0] == 0
    status, said, _ = run(server.directory, "init", f"--from={name}", "--to=toml")
    assert status == 1
    assert "bolide.toml already exists" in said
    assert (server.directory / "bolide.toml").read_text() == written


@pytest.mark.parametrize(
    ("text", "said"),
    [("web: node index.js\n", "does not start a known server"), (None, "can't read `Procfile`")],
)
def test_a_file_that_starts_nothing_known_is_an_error(text, said, tmp_path):
    if text is not None:
        (tmp_path / "Procfile").write_text(text)
    status, told, _ = run(tmp_path, "init", "--from", "Procfile")
    assert status == 1
    assert said in told
    assert not (tmp_path / "bolide.ini").exists()


def test_the_usual_procfile_of_gunicorn_keeps_the_platforms_port_and_names_the_other_processes(tmp_path):
    (tmp_path / "app.py").write_text(WSGI)
    (tmp_path / "Procfile").write_text(
        "release: python manage.py migrate\nweb: gunicorn app:app --timeout 60 --log-file -\nworker: celery -A shop worker\n"
    )
    status, told, errors = run(tmp_path, "init", "--from", "Procfile")
    assert status == 0
    text = (tmp_path / "bolide.ini").read_text()
    assert "no such flag" not in errors + text
    assert "if-env = PORT\nhttp = 0.0.0.0:%(_)\nendif =\nif-not-env = PORT\nhttp = 127.0.0.1:8000\nendif =\n" in text
    assert "if-env = WEB_CONCURRENCY\nprocesses = %(_)\nendif =\n" in text
    assert "worker: celery -A shop worker: it is another process: use `attach-daemon2" in errors
    assert "release: python manage.py migrate: it runs before startup" in errors
    assert "equivalent to the web server of Procfile" in told
    _, shown, _ = run(tmp_path, "config", "bolide.ini", PORT="28999")
    assert "0.0.0.0:28999" in shown


@pytest.mark.parametrize("flag", ["--paste shop.ini", "--worker-conn 10", "--log-file=-", "--spew"])
def test_a_flag_that_gunicorn_has_is_never_said_to_be_none(flag, tmp_path):
    (tmp_path / "Procfile").write_text(f"web: gunicorn app:app {flag}\n")
    _, _, errors = run(tmp_path, "init", "--from", "Procfile")
    assert "no such flag" not in errors


def test_a_configuration_that_ignores_the_platforms_port_is_noted_at_the_check(tmp_path):
    (tmp_path / "shop.ini").write_text("[uwsgi]\nmodule = app\nhttp = 127.0.0.1:8000\n")
    _, told, _ = run(tmp_path, "check", "shop.ini", PORT="28330")
    assert "PORT = 28330 is set and not used: shop.ini:3 listens on port 8000" in told
    _, told, _ = run(tmp_path, "check", "shop.ini", PORT="8000")
    assert "is set and not used" not in told
