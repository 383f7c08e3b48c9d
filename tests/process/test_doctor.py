"""`bolide doctor`: the configuration, the import of the application, and the limits of the machine, in one command."""

import json
import os
import resource
import socket
import subprocess

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS

APPLICATION = "def application(environ, start_response): ...\n"


@pytest.fixture
def doctor(tmp_path):
    """Runs `bolide doctor`. Returns its status and its text."""

    def doctor(*arguments, descriptors=None):
        def limit():
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        done = subprocess.run(
            [*program(), "doctor", *arguments],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            preexec_fn=limit,
        )
        return done.returncode, done.stdout

    return doctor


def test_the_machine_alone_is_told_without_a_configuration(doctor):
    status, text = doctor(descriptors=1024)
    assert status == 0
    facts = {line[:13].strip(): line[13:].strip() for line in text.partition("\n\n")[0].splitlines()}
    assert facts["CPUs"] == str(len(os.sched_getaffinity(0)))
    assert facts["python"].startswith("CPython 3.")
    assert facts["descriptors"] == "1024 for each process"
    assert facts["memory"].endswith(" GB")
    assert "note: a worker may have 1024 descriptors" in text
    assert "LimitNOFILE" in text


def test_each_thing_that_does_not_suffice_has_its_place_and_its_cure(doctor, tmp_path, free_port):
    port = free_port()
    (tmp_path / "shop.py").write_text("import there_is_no_such_module\n")
    lines = [f"http-socket = 127.0.0.1:{port}", "module = shop", "listen = 1000000", "http-socket = 192.0.2.1:9000"]
    (tmp_path / "uwsgi.ini").write_text("\n".join(["[uwsgi]", *lines, "harakri = 3", ""]))
    with socket.create_server(("127.0.0.1", port)):
        status, text = doctor("uwsgi.ini")
    assert status == 2
    for words in (
        "uwsgi.ini:6: ",
        "there_is_no_such_module",
        f"uwsgi.ini:2: note: port {port} is in use",
        "`ss -ltnp`",
        "listen = 1000000 is reduced to",
        "sysctl net.core.somaxconn=1000000",
        "uwsgi.ini:5: error: 192.0.2.1 is not an address of this machine",
    ):
        assert words in text, text


def test_an_application_that_is_right_has_at_most_the_warning_about_root(doctor, tmp_path, free_port):
    (tmp_path / "shop.py").write_text(APPLICATION)
    status, text = doctor("shop", "--http", f"127.0.0.1:{free_port()}", descriptors=8192)
    assert status == 0
    is_root = os.geteuid() == 0
    assert text.endswith("\n1 warning\n" if is_root else "\nnothing to report\n"), text
    assert ("would run as root" in text) is is_root


def test_json_is_an_object_of_the_machine_and_the_diagnostics(doctor, tmp_path):
    (tmp_path / "shop.py").write_text("1 / 0\n")
    status, text = doctor("--json", "shop")
    found = json.loads(text)
    assert status == 2
    assert found["machine"]["python"].startswith("CPython")
    assert any("ZeroDivisionError" in diagnostic["message"] for diagnostic in found["diagnostics"])
