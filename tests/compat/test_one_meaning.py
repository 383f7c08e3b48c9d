"""A setting of another server means the same as a flag, in gunicorn.conf.py and as a keyword of `bolide.run`."""

import inspect
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn
from bolide import _run
from gunicorn.config import KNOWN_SETTINGS
from support.server import program
from support.waiting import TIMEOUT_SECONDS

#: Values of settings that do not accept "9".
VALUES = {
    "access_log_format": "%(h)s %(z)s",
    "accesslog": "a.log",
    "asgi_lifespan": "on",
    "asgi_loop": "asyncio",
    "bind": "127.0.0.1:9000",
    "ca_certs": "ca.pem",
    "certfile": "c.pem",
    "cert_reqs": 2,
    "chdir": "src",
    "control_socket": "c.sock",
    "errorlog": "e.log",
    "forwarded_allow_ips": "10.0.0.1",
    "group": "daemon",
    "header_map": "refuse",
    "http2_cleartext": "both",
    "http_protocols": "h1",
    "keyfile": "k.pem",
    "limit_request_line": 131072,
    "loglevel": "info",
    "paste": "p.ini",
    "pidfile": "shop.pid",
    "proxy_allow_ips": "10.0.0.1",
    "proxy_protocol": "auto",
    "pythonpath": "src",
    "raw_env": ["A=1", "B=2"],
    "reload_extra_files": ["app.py"],
    "root_path": "/shop",
    "statsd_host": "127.0.0.1:8125",
    "user": "daemon",
    "websocket_max_message_size": 1000,
    "worker_class": "gevent",
}
#: Settings whose flag and file can't mean the same: a file can't name another file, reloads in production too, and makes Python
#: set up `logging`. Without `--bind`, `--umask` and `--protocol` are uWSGI's; and a prefix by itself means nothing.
APART = {"config", "reload", "logconfig", "logconfig_json", "umask", "protocol", "statsd_prefix"}

TRUST = {"trusted-headers = x-forwarded-for, x-forwarded-proto"}


def read(directory, *arguments):
    """Returns the report of `bolide config` about these arguments: its status, the options, and the settings without effect."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = {name: value for name, value in os.environ.items() if name not in ("PORT", "WEB_CONCURRENCY")}
    command = [*program(), "config", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, timeout=TIMEOUT_SECONDS, **streams)
    said = done.stdout.decode()
    lines = said.splitlines()
    options = {re.sub(r"\s+# .*", "", line) for line in lines if " = " in line and line[0] not in ";#" and "error" not in line}
    # Without the program's name.
    options = {"log-syslog =" if option == "log-syslog = true" else option for option in options}
    remarks = {found[1] for line in lines if (found := re.search(r"(?:note|warning): `[-\w]+`: (.*)", line))}
    return done.returncode, options, remarks, said


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    (directory / "src").mkdir()
    (directory / "app.py").write_text("")
    return directory


def advice_of(said):
    """Returns the replacement that an error suggests: the text in the last brackets of its line, or after the sentence
    of a file.
    """
    found = re.search(r"error: .*(?:not carried over: |\()(.*?)\)?$", said, re.MULTILINE)
    return found[1] if found else said


def differences_of(setting, directory, defaults):
    """Returns the meaning of a gunicorn setting as a flag, in a file, or as a keyword."""
    flag = next(word for word in setting.cli if word.startswith("--"))
    is_switch = setting.action in ("store_true", "store_const")
    value = setting.action == "store_true" if is_switch else VALUES.get(setting.name, "9")
    values = [] if is_switch else value if isinstance(value, list) else [value]
    line = [f"{flag}={one}" for one in values] or [flag]
    of_line = read(directory, *line, "app:app")
    own = directory / setting.name
    own.mkdir()
    for name in ("src", "app.py"):
        (own / name).symlink_to(directory / name)
    (own / "gunicorn.conf.py").write_text(f"{setting.name} = {value!r}\n")
    of_file = read(own, "-c", "gunicorn.conf.py", "app:app")
    try:
        # The flag may report that something has no effect.
        given = True if is_switch else value
        words = _run.arguments_of("app:app", {flag[2:].replace("-", "_"): given})
        words = [word for word in words[1:] if not word.startswith("--pythonpath=/")]
        of_keyword = of_line if words == line else read(directory, *words, "app:app")
    except (TypeError, ValueError) as refusal:
        of_keyword = (1, set(), set(), str(refusal))
    if of_line[0] or of_file[0] or of_keyword[0]:
        # All of them refuse it with the same words.
        same = all(one[0] for one in (of_line, of_file, of_keyword))
        advice = advice_of(of_line[3])
        if setting.name == "daemon":
            return [] if not (of_line[0] or of_file[0]) else [of_line, of_file]
        return [] if same and advice in of_file[3] and advice in of_keyword[3] else [of_line, of_file, of_keyword]
    found = []
    if of_keyword[1:3] != of_line[1:3]:
        found.append(("keyword", of_keyword[3], of_line[3]))
    options = {option.replace(", unix", "") for option in of_file[1]}
    more = options - of_line[1] - defaults - TRUST
    if of_line[1] - options - {"http = 127.0.0.1:8000"} or {one for one in more if not one.startswith("log-format")}:
        found.append(("file", of_file[3], of_line[3]))
    if of_file[2] != of_line[2]:
        found.append(("remarks of the file", of_file[3], of_line[3]))
    return found


def test_each_setting_of_gunicorn_means_the_same_as_a_flag_in_the_file_and_as_a_keyword(directory):
    own = directory / "defaults"
    own.mkdir()
    (own / "gunicorn.conf.py").write_text("")
    defaults = read(own, "-c", "gunicorn.conf.py", "app:app")[1]
    settings = [setting for setting in KNOWN_SETTINGS if setting.cli and setting.name not in APART]
    assert len(settings) > 80
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = pool.map(lambda setting: differences_of(setting, directory, defaults), settings)
        different = {setting.name: differences for setting, differences in zip(settings, found) if differences}
    assert different == {}


def test_each_setting_of_gunicorn_is_known(directory):
    """A name that resembles a setting causes a remark about the setting."""
    names = [setting.name for setting in KNOWN_SETTINGS if setting.cli]
    own = directory / "names"
    own.mkdir()
    (own / "gunicorn.conf.py").write_text("".join(f"{name}x = 1\n" for name in names))
    said = read(own, "-c", "gunicorn.conf.py", "app:app")[3]
    assert [name for name in names if f"did you mean `{name}`?" not in said] == []


#: Values of uvicorn's keywords that do not accept "9", each different from the default.
KEYWORDS = {
    "env_file": "variables",
    "forwarded_allow_ips": "10.0.0.1",
    "headers": [("X-Shop", "open")],
    "host": "127.0.0.2",
    "http": "h11",
    "http2": True,
    "interface": "asgi3",
    "lifespan": "off",
    "log_level": "warning",
    "loop": "asyncio",
    "reload": True,
    "root_path": "/shop",
    "ssl_cert_reqs": 1,
    "ssl_certfile": "c.pem",
    "uds": "x.sock",
    "use_colors": False,
    "ws": "wsproto",
    "ws_per_message_deflate": False,
}
#: The application, and a function, which have no flag.
NO_FLAG = {"app", "ssl_context_factory"}


def test_each_keyword_of_uvicorn_is_handed_on_or_refused_as_its_flag_is(directory):
    (directory / "variables").write_text("A=1\n")
    wrong = {}
    for name, parameter in inspect.signature(uvicorn.run).parameters.items():
        if name in NO_FLAG:
            continue
        value = KEYWORDS.get(name, not parameter.default if isinstance(parameter.default, bool) else 9)
        given = {name: value, **({"ssl_certfile": "c.pem"} if name == "ssl_keyfile" else {})}
        try:
            words = _run.arguments_of("app:app", given)
        except (TypeError, ValueError) as refusal:
            if not re.search(r"leave it out|write |means", str(refusal)):
                wrong[name] = str(refusal)
            continue
        status, _, _, said = read(directory, *words)
        # The file does not exist; the test expects that it is opened.
        if status and "c.pem can't be read" not in said:
            wrong[name] = said
    assert wrong == {}
