"""The page about Caddy and Apache, in the real programs: client, scheme, host and static files are right."""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pages
import pytest
from checking import certificate
from support.ports import reserve
from support.server import Server
from support.waiting import TIMEOUT_SECONDS, wait_until

PAGE = "docs/other-proxies.md"
SAYS = """\
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [" ".join([environ["wsgi.url_scheme"], environ["REMOTE_ADDR"], environ["HTTP_HOST"]]).encode()]
"""
APACHE = """\
ServerRoot {directory}
PidFile {directory}/apache.pid
ErrorLog {directory}/proxy.log
Listen 127.0.0.1:{port}
User www-data
Group www-data
{modules}
{text}
"""
MODULES = ("mpm_event", "authz_core", "alias", "proxy", "proxy_http", "headers", "socache_shmcb", "ssl")
CADDY = "{{\n admin off\n auto_https disable_redirects\n skip_install_trust\n}}\n{text}"


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(SAYS)
    static = tmp_path / "static"
    static.mkdir()
    (static / "a.css").write_text("body {}\n")
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    server = Server(tmp_path / "server", f"chdir = {tmp_path}\nmodule = shop")
    (tmp_path / "server").mkdir(exist_ok=True)
    server.start()
    yield server
    server.finish()


def block(language):
    (step,) = (step for step in pages.steps(PAGE) if step.language == language)
    return step.text


def found(name):
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed: its configuration is not run here")
    return path


def answers(port, path, tmp_path, command, environment):
    """Starts the proxy in the foreground, and returns what it answers to a request for shop.example."""
    with (tmp_path / "output").open("wb") as output:
        proxy = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=tmp_path)
    curl = ["curl", "--silent", "--insecure", "--resolve", f"shop.example:{port}:127.0.0.1", f"https://shop.example:{port}{path}"]
    said = []

    def answered():
        said[:] = [subprocess.run(curl, capture_output=True, text=True, timeout=TIMEOUT_SECONDS).stdout]
        return said[0] or proxy.poll() is not None

    try:
        wait_until(answered, lambda: (tmp_path / "output").read_text())
        assert proxy.poll() is None, (tmp_path / "output").read_text()
        return said[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            proxy.terminate()
        proxy.wait(TIMEOUT_SECONDS)


@pytest.mark.parametrize(("path", "part"), [("/", "https 127.0.0.1 shop.example"), ("/static/a.css", "body {}")])
def test_caddy_passes_client_scheme_and_host(shop, tmp_path, path, part):
    program = found("caddy")
    with reserve() as held:
        port = held.getsockname()[1]
    text = block("caddy").replace("shop.example", f"https://shop.example:{port}\ntls internal", 1)
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{shop.port}").replace("/srv/shop/static", str(tmp_path / "static"))
    (tmp_path / "Caddyfile").write_text(CADDY.format(text=text))
    own = {
        **os.environ,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
    }
    command = [program, "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
    assert part in answers(port, path, tmp_path, command, own)


@pytest.mark.parametrize(("path", "part"), [("/", "https 127.0.0.1 shop.example"), ("/static/a.css", "body {}")])
def test_apache_passes_client_scheme_and_host(shop, tmp_path, path, part):
    program = found("apache2")
    modules = Path(program).resolve().parents[1] / "lib" / "apache2" / "modules"
    certificate(tmp_path)
    with reserve() as held:
        port = held.getsockname()[1]
    text = block("apache").replace("*:443", f"127.0.0.1:{port}").replace("127.0.0.1:8000", f"127.0.0.1:{shop.port}")
    text = re.sub(r"/etc/ssl/\S+", str(tmp_path / "site.pem"), text).replace("/srv/shop/static", str(tmp_path / "static"))
    loaded = "\n".join(f"LoadModule {name}_module {modules}/mod_{name}.so" for name in MODULES)
    (tmp_path / "apache.conf").write_text(APACHE.format(directory=tmp_path, port=port, modules=loaded, text=text))
    assert part in answers(port, path, tmp_path, [program, "-X", "-f", str(tmp_path / "apache.conf")], dict(os.environ))
