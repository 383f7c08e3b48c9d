"""Checks blocks that are not commands: each is checked by the program that it is for.

Fragments are completed with their surroundings in a real file: a section, an `http` block, defaults. Nothing is served.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys

from session import DIRECTORY
from support.ports import reserve
from support.waiting import TIMEOUT_SECONDS

NGINX = """
daemon off;
pid {directory}/nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {directory}/client;
    proxy_temp_path {directory}/proxy;
    uwsgi_temp_path {directory}/uwsgi;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    {inner}
}}
"""
HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
"""
HAPROXY_SECTION = re.compile(r"^(global|defaults|frontend|backend|listen)\b", re.MULTILINE)
#: Files that nginx's packages contain besides its configuration.
NGINX_FILES = "/etc/nginx"


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_SECONDS, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def program(name):
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert path, f"{name} is not installed: scripts/test names its package"
    return path


def check(step, directory):
    """Fails with the error in the block; returns False for a block that cannot be checked."""
    if step.language == "ini" and "[Unit]" in step.text:
        unit(step, directory)
    elif step.language in CONFIGURATIONS:
        configurations([step], directory)
    elif step.language in CHECKS:
        CHECKS[step.language](step, directory)
    else:
        return False
    return True


def configurations(steps, directory):
    """Returns the findings of `bolide check` in configurations, all in one run; findings about files of their own machine are
    left out.
    """
    places = {}
    for number, step in enumerate(steps):
        if step.language == "json":
            json.loads(step.text)
        if is_ours(step):
            path = directory / f"{number}.{step.language}"
            headless = step.language == "ini" and not re.search(r"^\[", step.text, re.MULTILINE)
            path.write_text("[uwsgi]\n" * headless + step.text)
            places[str(path)] = step.place
    if not places:
        return
    # The tests' own environment variables are not options of a configuration.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
    status, said = run(
        [sys.executable, "-m", "bolide", "check", "--no-paths", "--format", "lines", *places], cwd=directory, env=own
    )
    assert status in (0, 1, 2), f"bolide check ended with {status}:\n{said}"
    problems = [line for line in said.splitlines() if is_problem(line)]
    for path, place in places.items():
        problems = [line.replace(f"{path}:", f"{place} + ") for line in problems]
    for step in steps:
        about = [line for line in problems if line.startswith(f"{step.place} + ")]
        assert about or not step.expected, f"{step.place}: bolide check has nothing to say of {step.expected}"
        problems = [line for line in problems if not step.expected or line not in about]
    assert not problems, "bolide check says\n" + "\n".join(problems)


def is_configuration(step):
    return step.language in CONFIGURATIONS and "[Unit]" not in step.text


def is_ours(step):
    return step.language == "ini" or re.search(r"^\s*[\"\[]?uwsgi\b", step.text, re.MULTILINE) is not None


#: Findings that are expected because the file is a fragment or is meant for another machine.
FRAGMENT = re.compile(
    r"there is no (file|directory|user|group|application|socket|such) ?|there is no `/|no such (file|user|group)|does not exist"
    r"|no application is named"
    r"|no address speaks (HTTP|TLS)|has no effect without `|has no effect: there is no|`allow-missing` permits that"
    r"|are written to /tmp/keys.log"
    r"|can't change to `|can't be (read|opened|found)|No such file|` needs root, and this is|this user may not listen on port"
)


def is_problem(line):
    return re.search(r": (error|warning): ", line) is not None and FRAGMENT.search(line) is None


def unit(step, directory):
    """Checks a unit with systemd; its program does not exist on this machine."""
    name = step.name.rsplit("/", 1)[-1] or "bolide.service"
    text = re.sub(r"^(Exec\w+=)\S+", rf"\1{shutil.which('true')}", step.text, flags=re.MULTILINE)
    path = directory / name
    path.write_text(text)
    if name.endswith(".socket"):
        path.with_suffix(".service").write_text(f"[Service]\nExecStart={shutil.which('true')}\n")
    status, said = run([program("systemd-analyze"), "verify", "--man=no", str(path)], cwd=directory)
    own = [line for line in said.splitlines() if name in line]
    assert not own, f"{step.place}: systemd-analyze verify says\n" + "\n".join(own)
    assert status == 0 or not own, f"{step.place}: {said}"


def nginx(step, directory):
    held = []

    def free(match):
        held.append(reserve())
        return f"listen 127.0.0.1:{held[-1].getsockname()[1]}"

    text = re.sub(r"\blisten +[\d.:\[\]]+", free, step.text)
    text = DIRECTORY.sub(lambda match: str(directory) + match["directory"], text)
    top, server = [], []
    for block in blocks(text):
        (top if re.match(r"\s*(server|upstream|map|limit_|log_format|geo|split_clients|#)", block) else server).append(block)
    if server:
        top.append("server {\n listen unix:" + str(directory / "nginx.sock") + ";\n" + "\n".join(server) + "\n}")
    named = set(re.findall(r"_pass (?:https?://)?([a-z_]+)\s*;", text)) - set(re.findall(r"upstream (\w+)", text))
    top += [f"upstream {name} {{ server 127.0.0.1:9; }}" for name in sorted(named)]
    for parameters in ("uwsgi_params", "fastcgi_params", "scgi_params", "proxy_params"):
        if os.path.exists(f"{NGINX_FILES}/{parameters}"):
            shutil.copy(f"{NGINX_FILES}/{parameters}", directory)
    file = directory / "nginx.conf"
    if re.search(r"ssl_certificate ", text):
        certificate(directory)
        text_of = re.sub(r"(ssl_certificate(?:_key)? )[^;]+", rf"\1{directory}/site.pem", "\n".join(top))
        top = [text_of]
    file.write_text(NGINX.format(directory=directory, inner="\n".join(top)))
    status, said = run([program("nginx"), "-t", "-p", str(directory), "-c", str(file)])
    for one in held:
        one.close()
    assert status == 0, f"{step.place}: nginx -t says\n{said}"


def blocks(text):
    """Returns the directives of the outermost level, each with its braces."""
    found, current, depth = [], "", 0
    for line in text.splitlines(keepends=True):
        current += line
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|#.*|\$\{\w+\}", "", line)
        depth += bare.count("{") - bare.count("}")
        if depth == 0 and current.strip() and not current.strip().startswith("#"):
            found.append(current)
            current = ""
    assert depth == 0, f"a brace is missing:\n{text}"
    return found


def certificate(directory):
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=shop.example",
    ]
    status, said = run([*command, "-keyout", str(directory / "key.pem"), "-out", str(directory / "certificate.pem")])
    assert status == 0, said
    (directory / "site.pem").write_text((directory / "certificate.pem").read_text() + (directory / "key.pem").read_text())


def haproxy(step, directory):
    text = step.text
    if not HAPROXY_SECTION.search(text):
        text = "backend shop\n" + text
    if re.search(r"\bcrt ", text):
        certificate(directory)
        text = re.sub(r"\bcrt \S+", f"crt {directory}/site.pem", text)
    text = DIRECTORY.sub(lambda match: str(directory) + match["directory"], text)
    if not re.search(r"^\s*bind\b", text, re.MULTILINE):
        text += f"\nfrontend any\n    mode tcp\n    bind unix@{directory}/haproxy.sock\n"
    path = directory / "haproxy.cfg"
    path.write_text(("" if re.search(r"^defaults", text, re.MULTILINE) else HAPROXY) + text)
    status, said = run([program("haproxy"), "-c", "-f", str(path)])
    assert status == 0, f"{step.place}: haproxy -c says\n{said}"


def logrotate(step, directory):
    text = re.sub(r"^(\s*)(su|create) .*$", "", step.text, flags=re.MULTILINE)
    path = directory / "rotate"
    path.write_text(text)
    path.chmod(0o644)
    status, said = run([program("logrotate"), "-d", "-s", str(directory / "state"), str(path)])
    assert status == 0, f"{step.place}: logrotate -d says\n{said}"
    assert "error:" not in said, f"{step.place}: logrotate -d says\n{said}"


def python(step, directory):
    ast.parse(step.text)


#: Formats that `bolide check` reads.
CONFIGURATIONS = ("ini", "toml", "yaml", "json")
CHECKS = {"nginx": nginx, "haproxy": haproxy, "logrotate": logrotate, "python": python}
