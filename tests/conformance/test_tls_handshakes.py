"""TLS handshakes with all kinds of clients: accepted and refused ones, and their log lines."""

import json
import random
import re
import socket
import ssl
import subprocess

import pytest
from support.client import Client
from support.tls import Authority, Credentials, TlsClient, context_of, openssl, s_client
from support.waiting import wait_until

TLS_ON_PLAIN = "The client speaks TLS"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def credentials(authority):
    return authority.server()


def https(credentials, more=""):
    return (f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key}{more}",)


@pytest.fixture(scope="module")
def server(serve_module, credentials):
    return serve_module("wsgi-file = {apps}/echo.py", listen=https(credentials))


def address_of(server):
    return server.address("https")


def environ(client):
    return json.loads(client.request().text)["environ"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(server, authority, version):
    context = context_of(authority, least=version, most=version)
    with TlsClient(address_of(server), context) as client:
        assert client.request().status == 200
        assert client.request().status == 200, "kept alive"
        assert client.socket.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]


@pytest.mark.parametrize("flag", ["-tls1", "-tls1_1"])
def test_older_versions_are_refused_with_an_alert(serve, credentials, flag):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    status, said = s_client(address_of(server), flag, "-cipher", "DEFAULT@SECLEVEL=0")
    assert status != 0
    assert re.search("alert (protocol version|handshake failure)", said)
    server.wait_for_log("a TLS handshake from 127.0.0.1: it supports none of the enabled versions of TLS")


def test_the_least_version_counts(serve, authority, credentials):
    server = serve("wsgi-file = {apps}/echo.py\ntls-min-version = 1.3", listen=https(credentials))
    status, said = s_client(address_of(server), "-tls1_2")
    assert status != 0
    assert "alert protocol version" in said
    with TlsClient(address_of(server), context_of(authority)) as client:
        assert client.socket.version() == "TLSv1.3"
    server.wait_for_log(
        r"refused a TLS handshake from 127\.0\.0\.1: it supports none of the enabled versions of TLS \(tls-min-version\)"
    )


def test_a_renegotiation_is_refused_and_the_server_goes_on(server, authority):
    # The letter R at the start of a line makes s_client renegotiate.
    _, said = s_client(address_of(server), "-tls1_2", stdin=b"R\n")
    assert "no renegotiation" in said or "unexpected" in said or "Secure Renegotiation IS NOT" in said or "closed" in said
    with TlsClient(address_of(server), context_of(authority)) as client:
        assert client.request().status == 200


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_keys_of_both_kinds_do(serve, authority, key):
    credentials = authority.server(f"{key}.example", key=key)
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with TlsClient(address_of(server), context_of(authority, least=version, most=version), f"{key}.example") as client:
            assert client.request().status == 200


def test_a_chain_is_sent_whole(serve, authority, tmp_path):
    between = Authority(tmp_path, "Tests Between", parent=authority)
    server = serve("wsgi-file = {apps}/echo.py", listen=https(between.server()))
    with TlsClient(address_of(server), context_of(authority)) as client:
        assert client.request().status == 200


def test_alpn_chooses_among_the_enabled_protocols(serve, authority, credentials):
    server = serve("wsgi-file = {apps}/echo.py\nhttp2 = off", listen=https(credentials))
    for offered, chosen in ((("h2", "http/1.1"), "http/1.1"), (("http/1.1",), "http/1.1"), ((), None)):
        with TlsClient(address_of(server), context_of(authority, alpn=offered)) as client:
            assert client.socket.selected_alpn_protocol() == chosen
            assert client.request().status == 200
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    for offered, chosen in ((("http/1.1", "h2"), "h2"), (("http/1.1",), "http/1.1"), (("http/1.0",), "http/1.0"), ((), None)):
        with TlsClient(address_of(server), context_of(authority, alpn=offered)) as client:
            assert client.socket.selected_alpn_protocol() == chosen
    with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
        TlsClient(address_of(server), context_of(authority, alpn=("imap",)))


def test_a_client_hello_that_comes_byte_by_byte_is_understood(server, authority):
    context = context_of(authority)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with Client(address_of(server)) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.send_byte_by_byte(outgoing.read())
                assert client.receive()
                incoming.write(client.buffer)
                client.buffer = b""
        tls.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.send_byte_by_byte(outgoing.read())
        incoming.write(client.read_to_end())
        answer = b""
        while True:
            try:
                part = tls.read(65536)
            except ssl.SSLZeroReturnError:
                break
            if not part:
                break
            answer += part
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "a byte", "a head"])
def test_a_handshake_that_does_not_come_to_its_end_is_given_up(serve, credentials, sent):
    server = serve("wsgi-file = {apps}/echo.py\nsocket-timeout = 4", listen=https(credentials))
    with Client(address_of(server)) as client:
        client.send(sent)
        assert client.read_to_end() == b""
    told = "a TLS handshake from 127.0.0.1: the handshake was not complete in time"
    if sent:
        server.wait_for_log(re.escape(told))
    else:
        assert told not in server.log


@pytest.mark.parametrize(
    "sent",
    [
        b"\0" * 64,
        b"\x80\x2e\x01\x00\x02",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        random.Random(1).randbytes(9000),
        b"\x16\x03\x01" + b"\xff" * 300,
    ],
)
def test_junk_ends_its_connection_and_no_other(server, authority, sent):
    with Client(address_of(server)) as client:
        client.send(sent)
        client.read_to_end()
    with TlsClient(address_of(server), context_of(authority)) as client:
        assert client.request().status == 200


def test_scanners_are_one_line_a_minute(serve, credentials):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    for _ in range(5):
        with Client(address_of(server)) as client:
            client.send(b"\x01secret junk")
            client.read_to_end()
    host, port = address_of(server)
    server.wait_for_log(rf"refused a TLS handshake from {host} at {host}:{port} \(.*uwsgi\.ini:2\): it does not speak TLS")
    assert server.log.count("refused a TLS handshake") == 1
    assert "secret" not in server.log


def test_plain_http_is_answered_in_plain_text(serve, credentials):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    with Client(address_of(server)) as client:
        response = client.request()
        assert (response.status, response.says_close) == (400, True)
        assert "https://" in response.text
        assert client.is_closed()
    curl = subprocess.run(["curl", "-s", "http://{}:{}/".format(*address_of(server))], capture_output=True, text=True, timeout=60)
    assert "https://" in curl.stdout
    host, port = address_of(server)
    server.wait_for_log(
        rf"refused a TLS handshake from {host} at {host}:{port} \(.*uwsgi\.ini:2\): it speaks plain HTTP, but this"
    )
    assert server.log.count("refused a TLS handshake") == 1


def test_tls_on_a_plain_port_is_told_once(serve):
    server = serve("wsgi-file = {apps}/echo.py")
    for _ in range(3):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            TlsClient(server.address(), ssl.create_default_context())
    server.wait_for_log(TLS_ON_PLAIN)
    assert server.log.count(TLS_ON_PLAIN) == 1


def test_a_client_without_trust_is_told_of(serve, authority, credentials, tmp_path):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials))
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsClient(address_of(server), context_of(Authority(tmp_path, "Another")))
    server.wait_for_log("a TLS handshake from 127.0.0.1: it does not trust this server's certificate")


# Selection of the certificate.


def test_the_host_that_is_asked_for_chooses_the_certificate(serve, authority, credentials):
    exact = authority.server("a.example", file="exact")
    wild = authority.server("*.example", file="wild")
    several = authority.server("d.test", "e.test", file="several")
    names = f"sni = a.example {exact.chain},{exact.key}", f"sni = *.example {wild.chain},{wild.key}"
    listen = (*https(credentials), *names, f"sni-regexp = ^[de]\\.test$ {several.chain},{several.key}")
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    cases = [("a.example", exact), ("A.Example", exact), ("b.example", wild), ("c.b.example", credentials), (None, credentials)]
    cases += [("d.test", several), ("e.test", several), ("f.test", credentials)]
    for host, shown in cases:
        context = context_of(authority)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection(address_of(server), timeout=60) as plain:
            with context.wrap_socket(plain, server_hostname=host) as tls:
                assert tls.getpeercert(binary_form=True) == shown.der(), host


def test_an_ocsp_response_goes_along(serve, authority, tmp_path):
    credentials = authority.server("ocsp.example")
    index = tmp_path / "index"
    serial = openssl("x509", "-in", credentials.certificate, "-noout", "-serial").decode().strip().split("=")[1]
    index.write_text(f"V\t991231235959Z\t\t{serial}\tunknown\t/CN=ocsp.example\n")
    response, request = tmp_path / "response.der", tmp_path / "request.der"
    openssl("ocsp", "-issuer", authority.certificate, "-cert", credentials.certificate, "-reqout", request, "-no_nonce")
    signer = ("-rsigner", authority.certificate, "-rkey", authority.key, "-CA", authority.certificate)
    openssl("ocsp", "-index", index, *signer, "-reqin", request, "-respout", response, "-ndays", 1)
    server = serve(f"wsgi-file = {{apps}}/echo.py\ntls-ocsp-file = {response}", listen=https(credentials))
    _, said = s_client(address_of(server), "-status", "-servername", "ocsp.example")
    assert "OCSP Response Status: successful" in said
    assert "Cert Status: good" in said


# Client certificates.


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("clients"), "Tests Clients")


def test_a_client_without_a_certificate_is_let_in_where_it_is_optional(serve, authority, credentials, clients):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials, f",,{clients.certificate}"))
    with TlsClient(address_of(server), context_of(authority)) as client:
        assert environ(client)["SSL_CLIENT_VERIFY"] == "NONE"
    with TlsClient(address_of(server), context_of(authority, client=clients.client("alice"))) as client:
        assert environ(client)["SSL_CLIENT_S_DN"] == "CN=alice,O=Bolide"


def test_the_authority_of_clients_can_be_named_for_all_addresses(serve, authority, credentials, clients):
    asked = f"tls-client-ca = {clients.certificate}\ntls-client-auth = required"
    server = serve(f"wsgi-file = {{apps}}/echo.py\n{asked}", listen=https(credentials))
    with pytest.raises((ssl.SSLError, ConnectionError)), TlsClient(address_of(server), context_of(authority)) as client:
        client.request()
    with TlsClient(address_of(server), context_of(authority, client=clients.client("dave"))) as client:
        assert environ(client)["SSL_CLIENT_S_DN"] == "CN=dave,O=Bolide"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate_is_refused_where_one_is_required(serve, authority, credentials, clients, version):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials, f",,!{clients.certificate}"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        # With TLS 1.3 the client's handshake is complete before the server has verified the client.
        with TlsClient(address_of(server), context_of(authority, least=version, most=version)) as client:
            client.request()
    server.wait_for_log(r"a TLS handshake from 127\.0\.0\.1: it sent no certificate \(tls-client-auth\)")
    with TlsClient(
        address_of(server), context_of(authority, client=clients.client("bob"), least=version, most=version)
    ) as client:
        assert client.request().status == 200


def test_certificates_of_another_authority_and_those_of_servers_are_refused(serve, authority, credentials, clients, tmp_path):
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials, f",,{clients.certificate}"))
    for wrong in (Authority(tmp_path, "Strangers").client("mallory"), clients.server("mallory.example")):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with TlsClient(address_of(server), context_of(authority, client=wrong)) as client:
                client.request()
    server.wait_for_log("its certificate was not accepted")


def self_signed(directory, name, *extensions):
    """Returns credentials that a client has made for itself."""
    key, certificate = directory / f"{name}.key", directory / f"{name}.crt"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    added = [part for extension in extensions for part in ("-addext", extension)]
    openssl("req", "-x509", "-new", "-key", key, "-subj", f"/O=Bolide/CN={name}", "-days", 30, *added, "-out", certificate)
    return Credentials(certificate, key)


def test_each_cause_of_a_refused_certificate_has_its_line(serve, authority, credentials, clients, tmp_path):
    server = serve("wsgi-file = {apps}/echo.py\nssl-verify-depth = 0", listen=https(credentials, f",,!{clients.certificate}"))
    stranger = Authority(tmp_path, "Strangers").client("mallory")
    alone = self_signed(tmp_path, "alone")
    leaf = self_signed(tmp_path, "leaf", "basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth")
    of_the_authority = Credentials(clients.certificate, clients.key)
    department = Authority(tmp_path, "Tests Department", parent=clients)
    causes = [
        ("no known authority issued it", stranger, 2),
        ("it is not for clients", clients.server("mallory.example"), 1),
        ("it sent no certificate (tls-client-auth)", None, 1),
        ("it has expired", clients.client("late", days=-1), 1),
        ("its chain is longer than ssl-verify-depth allows", department.client("carol"), 1),
        ("it is self-signed, and not one of the authorities", alone, 1),
        ("it is self-signed, and not one of the authorities", leaf, 1),
        ("it is an authority's (CA:TRUE), not a client's", of_the_authority, 1),
    ]
    for _, wrong, times in causes:
        for _ in range(times):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                with TlsClient(address_of(server), context_of(authority, client=wrong)) as client:
                    client.request()
    distinct = {cause for cause, _, _ in causes}
    for cause in distinct:
        server.wait_for_log(rf"{re.escape(cause)}$")
    lines = [line for line in server.whole_log().splitlines() if "refused a TLS handshake" in line]
    assert len([line for line in lines if "more like it" not in line]) == len(distinct)


@pytest.mark.parametrize(("depth", "is_let_in"), [(0, False), (1, True)])
def test_chains_of_clients_are_as_long_as_they_may_be(serve, authority, credentials, clients, tmp_path, depth, is_let_in):
    carol = Authority(tmp_path, "Tests Department", parent=clients).client("carol")
    server = serve(
        f"wsgi-file = {{apps}}/echo.py\nssl-verify-depth = {depth}", listen=https(credentials, f",,{clients.certificate}")
    )
    context = context_of(authority, client=carol)
    if is_let_in:
        with TlsClient(address_of(server), context) as client:
            assert client.request().status == 200
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)), TlsClient(address_of(server), context) as client:
            client.request()
        server.wait_for_text("its chain is longer than ssl-verify-depth allows")


# Sessions.


def resumed(server, context, session, count=1):
    """Connects with a session. Returns the number of resumed connections, and the pids of the workers that served them."""
    times, pids = 0, set()
    for _ in range(count):
        with TlsClient(address_of(server), context, session=session) as client:
            told = environ(client)
            assert client.socket.session_reused == (told["SSL_SESSION_RESUMED"] == "Resumed")
            times += client.socket.session_reused
            pids.add(told.get("PID"))
    return times


def first_session(server, context):
    with TlsClient(address_of(server), context) as client:
        # With TLS 1.3 tickets come after the handshake.
        assert environ(client)["SSL_SESSION_RESUMED"] == "Initial"
        return client.socket.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed_on_any_worker_and_after_a_reload(serve, authority, credentials, version):
    server = serve("wsgi-file = {apps}/echo.py\nprocesses = 4\nmaster = true", listen=https(credentials))
    context = context_of(authority, least=version, most=version)
    session = first_session(server, context)
    assert session.has_ticket
    assert resumed(server, context, session, count=16) == 16
    ready = server.log.count("bolide: ready")
    server.send_signal(1)
    server.wait_for(lambda: server.log.count("bolide: ready") > ready or server.log.count("reload") > 0, "it reloads")
    wait_until(lambda: resumed(server, context, session) == 1, lambda: "a session of before the reload is not resumed")


def test_sessions_are_not_resumed_where_they_are_off(serve, authority, credentials):
    server = serve("wsgi-file = {apps}/echo.py\nssl-sessions-timeout = 0", listen=https(credentials))
    context = context_of(authority)
    session = first_session(server, context)
    assert session is None or not session.has_ticket
    with TlsClient(address_of(server), context) as client:
        assert environ(client)["SSL_SESSION_RESUMED"] == "Initial"


def test_a_session_of_a_port_without_client_certificates_opens_none_that_asks_for_them(serve, authority, credentials, clients):
    listen = (*https(credentials), *https(credentials, f",,!{clients.certificate}"))
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    open_port, closed_port = (place[1:] for place in server.places() if place[0] == "https")
    context = context_of(authority)
    with TlsClient(open_port, context) as client:
        client.request()
        session = client.socket.session
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with TlsClient(closed_port, context, session=session) as client:
            client.request()


def test_secrets_are_written_where_that_was_asked_for(serve, authority, credentials, tmp_path):
    log = tmp_path / "keys.log"
    server = serve(f"wsgi-file = {{apps}}/echo.py\ntls-keylog = {log}", listen=https(credentials))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = context_of(authority, least=version, most=version)
        context.keylog_filename = str(tmp_path / "client.log")
        with TlsClient(address_of(server), context) as client:
            assert client.request().status == 200
    ours, theirs = (
        {line for line in file.read_text().splitlines() if line and not line.startswith("#")}
        for file in (log, tmp_path / "client.log")
    )
    assert theirs
    assert theirs <= ours
    assert log.stat().st_mode & 0o777 == 0o600


#: For openssl genpkey.
CURVE = ("EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def of_version_1(directory, *kind):
    """Returns a certificate and its key as the recipe in uWSGI's documentation creates them: without extensions, and therefore
    X.509 version 1.
    """
    key, certificate = directory / "old.key", directory / "old.crt"
    openssl("genpkey", "-algorithm", *kind, "-out", key)
    request = openssl("req", "-new", "-key", key, "-subj", "/CN=localhost")
    openssl("x509", "-req", "-days", "30", "-signkey", key, "-out", certificate, stdin=request)
    return key, certificate


@pytest.mark.parametrize("kind", [("RSA",), CURVE, ("ED25519",)], ids=lambda kind: kind[0])
def test_a_certificate_of_version_1_is_shown(serve, tmp_path, kind):
    key, certificate = of_version_1(tmp_path, *kind)
    assert "Version: 1" in openssl("x509", "-in", certificate, "-noout", "-text").decode()
    server = serve("wsgi-file = {apps}/echo.py", listen=(f"https-socket = 127.0.0.1:0,{certificate},{key}",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate)
    with TlsClient(address_of(server), context) as client:
        assert client.request().status == 200
        shown = client.socket.getpeercert(binary_form=True)
    assert shown == openssl("x509", "-in", certificate, "-outform", "DER")


def test_a_clients_certificate_of_version_1_is_refused_and_the_log_says_why(serve, authority, credentials, tmp_path):
    key, certificate = tmp_path / "client.key", tmp_path / "client.crt"
    openssl("genpkey", "-algorithm", *CURVE, "-out", key)
    request = openssl("req", "-new", "-key", key, "-subj", "/CN=client")
    by = ("-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial")
    openssl("x509", "-req", *by, "-days", "30", "-out", certificate, stdin=request)
    server = serve("wsgi-file = {apps}/echo.py", listen=https(credentials, f",,!{authority.certificate}"))
    context = context_of(authority)
    context.load_cert_chain(certificate, key)
    with pytest.raises((ssl.SSLError, ConnectionError)), TlsClient(address_of(server), context) as client:
        client.request()
    server.wait_for_log("its certificate was not accepted: it has X.509 version 1, but only version 3 is accepted")
