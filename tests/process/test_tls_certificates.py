"""Certificates: errors in them are reported at startup, and a reload uses new ones without losing a client."""

import hashlib
import os
import re
import signal
import socket
import ssl

import pytest
from support.repeating import Repeating
from support.server import program
from support.tls import Authority, context_of, openssl
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_instance import START_FAILED

#: Threads that open connections while certificates change.
KNOCKERS = 3


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "authority")


@pytest.fixture
def served(tmp_path, authority):
    """The files that the configuration names; ``put`` replaces them as a renewal does, by renaming."""
    return Served(tmp_path / "served", authority.server(file="first"))


class Served:
    def __init__(self, directory, credentials):
        directory.mkdir()
        self.chain, self.key = directory / "app.pem", directory / "app.key"
        self.option = f"127.0.0.1:0,{self.chain},{self.key}"
        self.put(credentials)

    def put(self, credentials):
        for path, text in ((self.chain, credentials.chain.read_bytes()), (self.key, credentials.key.read_bytes())):
            new = path.with_suffix(".new")
            new.write_bytes(text)
            new.replace(path)


def shown(address, context, name="localhost"):
    """Returns the certificate that a client gets for this name, in DER, after a response over it."""
    with (
        socket.create_connection(address, timeout=TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
        return connection.getpeercert(binary_form=True)


class Knockers(Repeating):
    """Threads that connect repeatedly, each time with a full handshake, and record certificates and failures."""

    def __init__(self, address, context):
        super().__init__(KNOCKERS)
        self.address, self.context = address, context
        self.seen = set()

    def wait_for(self, der):
        wait_until(lambda: der in self.seen, lambda: f"a certificate; failures: {self.failures[:3]}")

    def once(self):
        self.seen.add(shown(self.address, self.context))


def test_a_certificate_changes_under_load_without_a_failed_handshake(start, served, authority):
    instance = start("--processes", "2", "--https", served.option)
    with Knockers(instance.address("https"), context_of(authority)) as knockers:
        for number in range(2, 5):
            credentials = authority.server(file=f"number-{number}")
            served.put(credentials)
            instance.reload(number)
            knockers.wait_for(credentials.der())
    assert knockers.failures == []
    assert re.search(r"^bolide: reload: the certificate .*/app\.pem has changed: for localhost", instance.log, re.MULTILINE)


def test_after_a_reload_only_the_new_certificate_is_shown(start, served, authority):
    instance = start("--https", served.option)
    first = shown(instance.address("https"), context_of(authority))
    credentials = authority.server(file="second", key="rsa")
    served.put(credentials)
    assert shown(instance.address("https"), context_of(authority)) == first, "nothing is read before a reload"
    instance.reload(2)
    assert {shown(instance.address("https"), context_of(authority)) for _ in range(5)} == {credentials.der()}
    assert re.search(r"has changed: for localhost, 127\.0\.0\.1; key RSA 2048; expires on ", instance.log)


@pytest.mark.parametrize("wrong", ["missing", "of another key", "empty"])
def test_a_new_certificate_that_is_wrong_leaves_the_old_one_in_place_and_says_why(wrong, start, served, authority):
    instance = start("--https", served.option)
    before = shown(instance.address("https"), context_of(authority))
    reasons = {"missing": "No such file", "of another key": "the key belongs to another", "empty": "is empty"}
    if wrong == "missing":
        served.chain.unlink()
    elif wrong == "empty":
        served.chain.write_bytes(b"")
    else:
        served.key.write_bytes(authority.server(file="other").key.read_bytes())
    instance.reload(2)
    line = instance.wait_for_log(r"^bolide: reload: WARNING: .*; the previous one stays in use").group()
    assert reasons[wrong] in line
    assert shown(instance.address("https"), context_of(authority)) == before


def test_a_reload_that_does_not_take_a_certificate_says_so_to_the_command_that_waits(start, served, authority, call):
    instance = start("--https", served.option)
    pid = str(instance.pid)

    def reloaded(generation):
        """Returns the warnings about certificates that stay."""
        status, said = call("reload", "--wait", pid)
        *warnings, last = said.splitlines()
        assert (status, last) == (0, f"master {pid}: generation {generation} serves")
        return [line for line in warnings if "the previous one stays in use" in line]

    key = served.key.read_bytes()
    assert reloaded(2) == []
    served.key.write_bytes(authority.server(file="other").key.read_bytes())
    (warning,) = reloaded(3)
    assert warning.startswith("bolide: WARNING: ")
    assert "the key belongs to another" in warning
    # The next reload has no warning of the one before.
    served.key.write_bytes(key)
    assert reloaded(4) == []


def test_a_master_that_may_not_read_a_key_any_more_keeps_the_current_one(start, served, authority):
    # Root reads files without permission, unless it has lost that capability.
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    instance = start("--https", served.option, command=[*powerless, *program()])
    before = shown(instance.address("https"), context_of(authority))
    served.key.chmod(0)
    instance.reload(2)
    line = instance.wait_for_log(r"^bolide: reload: WARNING: .*; the previous one stays in use").group()
    assert f"the key {served.key} can't be read: Permission denied" in line
    assert shown(instance.address("https"), context_of(authority)) == before


def test_names_of_a_directory_are_those_of_the_last_reload(start, served, authority, tmp_path):
    sites = tmp_path / "sites"
    sites.mkdir()

    def put(name):
        credentials = authority.server(name)
        (sites / f"{name}.crt").write_bytes(credentials.chain.read_bytes())
        (sites / f"{name}.key").write_bytes(credentials.key.read_bytes())
        return credentials.der()

    one = put("one.example")
    instance = start("--https", served.option, "--sni-dir", sites)
    context = context_of(authority)
    own = shown(instance.address("https"), context)
    assert shown(instance.address("https"), context, "one.example") == one != own
    two = put("two.example")
    (sites / "one.example.crt").unlink()
    instance.reload(2)
    assert shown(instance.address("https"), context, "two.example") == two
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(instance.address("https"), context, "one.example")
    assert shown(instance.address("https"), context) == own


def test_a_certificate_for_development_has_the_fingerprint_of_the_log_for_as_long_as_the_instance_lives(start):
    instance = start("--https", "127.0.0.1:0,auto", "--processes", "2")
    told = instance.wait_for_log(r"for development only; SHA-256 fingerprint ([0-9A-F:]{95})").group(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before = shown(instance.address("https"), context)
    assert hashlib.sha256(before).hexdigest().upper() == told.replace(":", "")
    trusting = ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(before))
    for name in ("localhost", "127.0.0.1", "::1"):
        assert shown(instance.address("https"), trusting, name) == before, f"a client that trusts it takes it for {name}"
    instance.reload(2)
    assert shown(instance.address("https"), context) == before


@pytest.mark.parametrize("options", [(), ("--threads", "2"), ("--route", "^/a break:403")], ids=["plain", "threads", "routes"])
def test_plain_http_is_sent_to_https_whatever_else_is_served(options, start, served):
    instance = start("--https", served.option, "--http-to-https", "127.0.0.1:0,8443", *options, socket=None)
    with instance.connect(instance.address("http")) as client:
        answer = client.request("GET", "/a/b?c=%20d")
        assert (answer.status, answer.get("Location")) == (301, "https://localhost:8443/a/b?c=%20d")
        answer = client.request("POST", "/form", body=b"x=1")
        assert (answer.status, answer.get("Location")) == (308, "https://localhost:8443/form")
        client.send(b"GET http://shop.example:8080/x HTTP/1.1\r\nHost: shop.example:8080\r\n\r\n")
        assert client.read_response().get("Location") == "https://shop.example:8443/x"
        client.send(b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n")
        assert client.read_response().get("Location") == "https://[::1]:8443/"
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert client.read_response().status == 400, "there is no host to be sent to"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("swapped", "is a key, and does not contain a certificate"),
        ("of another key", "the key belongs to another certificate"),
        ("encrypted", "openssl pkey -in"),
        ("DER", "is DER instead of PEM"),
        ("missing", "can't be read: No such file or directory"),
    ],
)
def test_a_certificate_that_can_not_be_shown_is_one_error_with_its_line_and_no_start(wrong, said, fail, authority, tmp_path):
    credentials = authority.server()
    chain, key = credentials.chain, credentials.key
    if wrong == "swapped":
        chain, key = key, chain
    elif wrong == "of another key":
        key = authority.server(file="other").key
    elif wrong == "encrypted":
        key = tmp_path / "encrypted.key"
        openssl("pkey", "-in", credentials.key, "-aes128", "-passout", "pass:secret", "-out", key)
    elif wrong == "DER":
        chain = tmp_path / "app.der"
        chain.write_bytes(credentials.der())
    else:
        chain = tmp_path / "nowhere.pem"
    (tmp_path / "app.ini").write_text(f"[uwsgi]\nmodule = probe\nhttp = 127.0.0.1:0\nhttps = 127.0.0.1:0,{chain},{key}\n")
    for command in (("app.ini",), ("check", "app.ini")):
        status, lines = fail(*command)
        assert status != 0
        errors = [line for line in lines if ": error: " in line]
        assert len(errors) == 1, lines
        assert said in "\n".join(lines), lines
        assert "app.ini:4: error: " in errors[0]
    assert fail("app.ini")[0] == START_FAILED


def test_a_certificate_near_its_end_is_a_warning_of_the_start_and_its_key_is_nowhere_in_the_log(start, authority, tmp_path):
    credentials = authority.server(file="old", days=12)
    instance = start("--https", f"127.0.0.1:0,{credentials.chain},{credentials.key}")
    instance.send_signal(signal.SIGUSR1)
    assert re.search(r"warning: the certificate \S+ expires in 1[12] days, on \d{4}-\d\d-\d\d", instance.log), instance.log
    secret = credentials.key.read_text().splitlines()[1]
    assert secret not in instance.log


def test_gunicorns_and_uvicorns_words_make_the_address_an_https_one(start, authority):
    credentials = authority.server()
    for words in (("--certfile", "--keyfile"), ("--ssl-certfile", "--ssl-keyfile")):
        instance = start(words[0], credentials.chain, words[1], credentials.key)
        assert shown(instance.address("https"), context_of(authority)) == credentials.der()


@pytest.mark.parametrize("kind", ["Ed448", "RSA-PSS"])
def test_a_key_that_makes_no_signatures_here_is_refused_for_its_kind(fail, tmp_path, kind):
    key, certificate = tmp_path / "app.key", tmp_path / "app.crt"
    openssl("genpkey", "-algorithm", kind.upper(), "-out", key)
    openssl("req", "-x509", "-new", "-key", key, "-subj", "/CN=localhost", "-days", "90", "-out", certificate)
    status, lines = fail("--https", f"127.0.0.1:0,{certificate},{key}", "--module", "probe")
    assert status == START_FAILED
    assert f"this server's TLS library can't sign with keys of the type {kind}" in lines[-1]
    assert "create another key: ECDSA" in lines[-1]


def test_a_key_of_another_certificate_is_refused_whatever_the_versions_are(fail, tmp_path):
    keys = [tmp_path / "one.key", tmp_path / "other.key"]
    for key in keys:
        openssl("genpkey", "-algorithm", "RSA", "-out", key)
    certificate = tmp_path / "app.crt"
    request = openssl("req", "-new", "-key", keys[0], "-subj", "/CN=localhost")
    openssl("x509", "-req", "-days", "90", "-signkey", keys[0], "-out", certificate, stdin=request)
    status, lines = fail("--https", f"127.0.0.1:0,{certificate},{keys[1]}", "--module", "probe")
    assert status == START_FAILED
    assert "the key belongs to another certificate" in lines[-1]
    assert "name a certificate and a key that belong together" in lines[-1]
