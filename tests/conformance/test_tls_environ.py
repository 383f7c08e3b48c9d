"""TLS as applications see it: environ variables named as by mod_ssl and uWSGI, the ASGI extension ``tls``, and the scheme."""

import json
import ssl

import pytest
from support.tls import Authority, TlsClient, context_of, openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def credentials(authority):
    return authority.server()


@pytest.fixture(scope="module")
def alice(authority):
    return authority.client("alice", subject="/C=DE/O=Ex, Ample/OU=Zoë/CN=alice")


def told(server, context, target="/", host="localhost", times=1):
    with TlsClient(server.address("https"), context, host) as client:
        answers = [json.loads(client.request(target=target).text) for _ in range(times)]
    # The second request repeats the header block of the first.
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def serve_wsgi(serve, authority, credentials, more=""):
    listen = (f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key},,{authority.certificate}",)
    return serve("wsgi-file = {apps}/echo.py\n" + more, listen=listen)


def test_environ_says_https_and_what_was_agreed_on(serve, authority, credentials):
    server = serve_wsgi(serve, authority, credentials)
    environ = told(server, context_of(authority), times=3)["environ"]
    assert (environ["wsgi.url_scheme"], environ["HTTPS"]) == ("https", "on")
    assert environ["SERVER_PORT"] == str(server.address("https")[1])
    ours = {name: value for name, value in environ.items() if name.startswith(("SSL_", "HTTPS"))}
    assert ours.pop("SSL_CIPHER_USEKEYSIZE") in ("128", "256")
    assert ours.pop("SSL_CIPHER").startswith("TLS_")
    assert ours == {
        "HTTPS": "on",
        "SSL_PROTOCOL": "TLSv1.3",
        "SSL_SESSION_RESUMED": "Initial",
        "SSL_TLS_SNI": "localhost",
        "SSL_CLIENT_VERIFY": "NONE",
    }


def test_names_of_ciphers_are_openssls(serve, authority, credentials):
    server = serve_wsgi(serve, authority, credentials)
    for version in ("TLSv1_2", "TLSv1_3"):
        context = context_of(authority)
        context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
        with TlsClient(server.address("https"), context) as client:
            environ = json.loads(client.request().text)["environ"]
            name, _, bits = client.socket.cipher()
            assert (environ["SSL_CIPHER"], environ["SSL_CIPHER_USEKEYSIZE"]) == (name, str(bits))
            assert environ["SSL_PROTOCOL"] == client.socket.version()


def test_environ_names_the_client(serve, authority, credentials, alice):
    server = serve_wsgi(serve, authority, credentials)
    environ = told(server, context_of(authority, client=alice), times=2)["environ"]
    serial = openssl("x509", "-in", alice.certificate, "-noout", "-serial").decode().strip().split("=")[1]
    oneline = openssl("x509", "-in", alice.certificate, "-noout", "-subject", "-nameopt", "compat").decode()
    # PEP 3333: text is UTF-8, each byte a character of latin-1.
    rfc2253 = openssl("x509", "-in", alice.certificate, "-noout", "-subject", "-nameopt", "RFC2253,-esc_msb").decode("latin-1")
    assert environ["SSL_CLIENT_VERIFY"] == "SUCCESS"
    assert environ["SSL_CLIENT_S_DN"] == rfc2253.strip().removeprefix("subject=")
    assert environ["SSL_CLIENT_I_DN"] == "CN=Tests Root,O=Bolide"
    assert environ["SSL_CLIENT_M_SERIAL"] == serial
    assert environ["HTTPS_DN"] == oneline.strip().removeprefix("subject=")
    assert "HTTPS_CC" not in environ
    assert "SSL_CLIENT_CERT" not in environ


def test_environ_has_the_certificate_where_it_is_exported(serve, authority, credentials, alice):
    server = serve_wsgi(serve, authority, credentials, "https-export-cert = true")
    environ = told(server, context_of(authority, client=alice))["environ"]
    assert environ["HTTPS_CC"] == environ["SSL_CLIENT_CERT"] == alice.certificate.read_text()


def test_a_plain_request_has_none_of_it_whatever_it_says(serve, authority, credentials):
    listen = ("http-socket = 127.0.0.1:0", f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key}")
    server = serve("wsgi-file = {apps}/echo.py", listen=listen)
    answer = server.get(headers=[("SSL-CLIENT-VERIFY", "SUCCESS"), ("HTTPS", "on")])
    environ = json.loads(answer.text)["environ"]
    assert environ["wsgi.url_scheme"] == "http"
    assert not [name for name in environ if name.startswith(("SSL_", "HTTPS"))]


def test_routes_see_the_same(serve, authority, credentials, alice):
    rules = """
        route-if = equal:${HTTPS};on goto:encrypted
        route = .* break:403 Forbidden
        route-label = encrypted
        route-run = addheader:X-Told: ${SSL_PROTOCOL} ${SSL_CLIENT_S_DN} ${SSL_TLS_SNI}
    """
    listen = (
        "http-socket = 127.0.0.1:0",
        f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key},,{authority.certificate}",
    )
    server = serve(f"wsgi-file = {{apps}}/echo.py\n{rules}", listen=listen)
    with TlsClient(server.address("https"), context_of(authority, client=authority.client("bob"))) as client:
        answer = client.request(headers=[("HTTPS", "off")])
    assert answer.get("x-told") == "TLSv1.3 CN=bob,O=Bolide localhost"
    assert server.get(headers=[("HTTPS", "on")]).status == 403


@pytest.fixture
def asgi(serve, authority, credentials):
    def start(more=""):
        listen = (f"https-socket = 127.0.0.1:0,{credentials.chain},{credentials.key},,{authority.certificate}",)
        return serve("module = asgi_scope:application\npythonpath = {apps}\n" + more, listen=listen)

    return start


def test_the_scope_has_the_scheme_and_the_extension(asgi, authority, credentials, alice):
    server = asgi("https-export-cert = true")
    for context, chain, name in (
        (context_of(authority), [], None),
        (context_of(authority, client=alice), [alice.certificate.read_text()], "CN=alice,OU=Zoë,O=Ex\\, Ample,C=DE"),
    ):
        scope = told(server, context, times=2)
        assert scope["scheme"] == "https"
        tls = scope["extensions"]["tls"]
        assert tls.pop("cipher_suite") in (0x1301, 0x1302, 0x1303)
        # OpenSSL sends the authority's certificate too, which it has for verifying ours.
        assert tls.pop("client_cert_chain")[:1] == chain
        assert tls == {
            "server_cert": credentials.certificate.read_text(),
            "client_cert_name": name,
            "client_cert_error": None,
            "tls_version": 0x0304,
        }


def test_the_chain_stays_with_us_unless_it_is_exported(asgi, authority, alice):
    tls = told(asgi(), context_of(authority, client=alice))["extensions"]["tls"]
    assert tls["client_cert_chain"] == []
    assert tls["client_cert_name"].startswith("CN=alice,")


def test_what_an_application_writes_into_the_extension_is_not_there_next_time(asgi, authority):
    server = asgi()
    with TlsClient(server.address("https"), context_of(authority)) as client:
        first = json.loads(client.request(target="/stain").text)
        assert json.loads(client.request(target="/stain").text) == first == []


def test_a_scope_without_tls_has_no_extension(serve):
    server = serve("module = asgi_scope:application\npythonpath = {apps}")
    scope = json.loads(server.get().text)
    assert scope["scheme"] == "http"
    assert "tls" not in scope["extensions"]
