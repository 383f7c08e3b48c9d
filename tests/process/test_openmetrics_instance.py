"""What ``/metrics`` tells of the instance itself: reloads by their cause, TLS handshakes, and the address at an upgrade."""

import os
import socket
import subprocess

import pytest
from support.metrics import fetch, metrics_address, samples, value_of
from support.repeating import Repeating
from support.tls import Authority
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_processes import is_alive
from support_upgrade import UPGRADE, pid_of, upgrade
from support_versions import write


def counts(address, name):
    """Returns the values of a family's series that are not 0, by the values of their labels."""
    return {tuple(value for _, value in key[1:]): count for key, count in samples(address).items() if key[0] == name and count}


def test_reloads_are_counted_by_what_has_asked_for_them(start, call, tmp_path):
    touched, fifo = tmp_path / "touched", tmp_path / "fifo"
    (tmp_path / "asking.py").write_text(
        "import uwsgi\n"
        "def application(environ, start_response):\n"
        "    if environ['PATH_INFO'] == '/reload': uwsgi.reload()\n"
        "    start_response('200 OK', [])\n"
        "    return [b'']\n"
    )
    options = ("--touch-reload", touched, "--master-fifo", fifo, "--fs-reload", tmp_path / "watched")
    instance = start("--metrics", "127.0.0.1:0", *options, module="asking", alarms=True)
    address = metrics_address(instance)
    expected = {}

    def counted(*labels):
        expected[labels] = expected.get(labels, 0) + 1
        wait_until(lambda: counts(address, "bolide_reloads_total") == expected, lambda: f"{labels} in {expected}")

    instance.reload(2)
    counted("signal", "done")
    assert call("reload", "--wait", instance.pid)[0] == 0
    counted("command", "done")
    touched.touch()
    counted("touch", "done")
    fifo.write_text("r")
    counted("fifo", "done")
    (tmp_path / "watched").touch()
    counted("change", "done")
    # The request is for the worker of the last reload, and not for the one before.
    instance.wait_for_generation(6)
    instance.get("/reload")
    counted("application", "done")
    (tmp_path / "asking.py").write_text("import no_such_module\n")
    touched.touch()
    counted("touch", "failed")


class Scraping(Repeating):
    """A scraper that connects again and again; each answer is one of a ready instance."""

    def __init__(self, address):
        super().__init__(1)
        self.address, self.count = address, 0

    def once(self):
        answer = fetch(self.address, "/metrics")
        assert (answer.status, "bolide_requests_total" in answer.body) == (200, True)
        self.count += 1

    def wait_for_more(self):
        before = self.count
        wait_until(lambda: self.failures or self.count > before + 2, "more scrapes")


def test_the_address_goes_on_answering_at_an_upgrade(upgradable, tmp_path):
    instance = upgradable("--metrics", "127.0.0.1:0", alarms=True)
    address = metrics_address(instance)
    with Scraping(address) as scraping:
        scraping.wait_for_more()
        upgrade(tmp_path)
        wait_until(lambda: not is_alive(instance.pid) or instance.process.poll() is not None, "the end of the old master")
        scraping.wait_for_more()
        assert counts(address, "bolide_reloads_total") == {("upgrade", "done"): 1}
        # One that fails is counted by the master that stays.
        before = pid_of(tmp_path)
        write(tmp_path, "broken", before="import no_such_module\n")
        os.kill(before, UPGRADE)
        wait_until(
            lambda: counts(address, "bolide_reloads_total") == {("upgrade", "done"): 1, ("upgrade", "failed"): 1}, "a failure"
        )
        scraping.wait_for_more()
        assert pid_of(tmp_path) == before
    assert scraping.failures == []


def s_client(address, *arguments):
    """Connects with OpenSSL's client, which ends after the handshake. Returns its status."""
    command = ["openssl", "s_client", "-connect", f"{address[0]}:{address[1]}", *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS, check=False).returncode


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


def test_handshakes_of_tls_are_counted_and_those_that_fail_by_their_reason(start, authority):
    served = authority.server()
    options = ("--https", f"127.0.0.1:0,{served.chain},{served.key}", "--http-timeout", "5")
    required = ("--tls-client-ca", authority.certificate, "--tls-client-auth", "required")
    instance = start("--metrics", "127.0.0.1:0", *options, *required, alarms=True)
    address, metrics = instance.address("https"), metrics_address(instance)
    expected = {}

    def failed(reason):
        expected[reason,] = expected.get((reason,), 0) + 1
        wait_until(lambda: counts(metrics, "bolide_tls_handshake_failures_total") == expected, lambda: f"{reason}: {expected}")

    own = authority.client()
    trusted = ("-CAfile", authority.certificate, "-verify_return_error")
    assert s_client(address, *trusted, "-cert", own.chain, "-key", own.key) == 0
    wait_until(lambda: value_of(metrics, "bolide_tls_handshakes_total") == 1, "a handshake")
    s_client(address, *trusted)
    failed("client_certificate")
    other = Authority(authority.directory / "other", name="Other Root").client()
    s_client(address, *trusted, "-cert", other.chain, "-key", other.key)
    failed("client_certificate")
    s_client(address, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0")
    failed("nothing_in_common")
    s_client(address, "-tls1_2", "-cipher", "AES128-SHA")
    failed("nothing_in_common")
    s_client(address, "-verify_return_error", "-cert", own.chain, "-key", own.key)
    failed("server_certificate")
    starts = ((b"GET / HTTP/1.1\r\n\r\n", "plain_http"), (b"\x00\x01\x02", "not_tls"), (b"\x16\x03\x01\x00\x05hell", "left"))
    for first, reason in starts:
        with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as client:
            client.sendall(first)
        failed(reason)
    with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as client:
        client.sendall(b"\x16\x03\x01")
        failed("timeout")
    assert value_of(metrics, "bolide_tls_handshakes_total") == 1
