"""Certificates for the tests, made by Debian's ``openssl``: an authority, and certificates for servers and clients.

Keys are P-256 and live in the test's directory. Only the test that created a certificate trusts it.
"""

import ssl
import subprocess
from pathlib import Path

from support.client import TIMEOUT_SECONDS, Client


def openssl(*arguments, stdin=None):
    """Runs ``openssl`` and returns its output; a failure shows the output."""
    done = subprocess.run(["openssl", *map(str, arguments)], input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace')}"
    return done.stdout


class Credentials:
    """A certificate with its key, in PEM files: ``chain`` contains the certificate and its issuers without the root."""

    def __init__(self, chain, key, certificate=None):
        self.chain = Path(chain)
        self.key = Path(key)
        #: The certificate alone.
        self.certificate = Path(certificate or chain)

    def der(self):
        """Returns the certificate in DER."""
        return ssl.PEM_cert_to_DER_cert(self.certificate.read_text())


class Authority:
    """An authority whose files are in ``directory``; ``certificate`` is its own, for clients and servers that trust it.

    With ``parent`` it is an intermediate authority.
    """

    def __init__(self, directory, name="Tests Root", parent=None):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.parent = parent
        self._file = name.lower().replace(" ", "-")
        self.key = self.directory / f"{self._file}.key"
        self.certificate = self.directory / f"{self._file}.crt"
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        if parent is None:
            self._make_key(self.key)
            added = [part for extension in extensions for part in ("-addext", extension)]
            openssl(
                "req",
                "-x509",
                "-new",
                "-key",
                self.key,
                "-subj",
                f"/O=Bolide/CN={name}",
                "-days",
                30,
                *added,
                "-out",
                self.certificate,
            )
        else:
            parent.sign(self.key, self.certificate, f"/O=Bolide/CN={name}", extensions)

    def server(self, *names, file=None, days=30, key="ec", subject=None):
        """Returns credentials for a server of these names (``localhost`` and 127.0.0.1 by default)."""
        names = names or ("localhost", "127.0.0.1")
        alternatives = ",".join(f"IP:{name}" if name[0].isdigit() else f"DNS:{name}" for name in names)
        usage = (f"subjectAltName={alternatives}", "extendedKeyUsage=serverAuth")
        return self._issue(file or names[0].replace("*", "any"), subject or f"/O=Bolide/CN={names[0]}", usage, days, key)

    def client(self, name="client", file=None, days=30, subject=None):
        """Returns credentials for a client; ``subject`` is its whole name in openssl's format, ``/C=DE/O=Example/CN=…``."""
        return self._issue(file or name, subject or f"/O=Bolide/CN={name}", ("extendedKeyUsage=clientAuth",), days, "ec")

    def sign(self, key, certificate, subject, extensions, days=30, kind="ec"):
        """Creates a key and a certificate for it, with this subject and these extensions."""
        self._make_key(key, kind)
        request = openssl("req", "-new", "-utf8", "-key", key, "-subj", subject)
        settings = certificate.with_suffix(".ext")
        settings.write_text("\n".join(extensions) + "\n")
        signed_by = ("-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial")
        openssl("x509", "-req", *signed_by, "-days", days, "-extfile", settings, "-out", certificate, stdin=request)

    def _issue(self, file, subject, extensions, days, key):
        key_file, certificate, chain = (self.directory / f"{file}{suffix}" for suffix in (".key", ".crt", ".pem"))
        self.sign(key_file, certificate, subject, extensions, days, key)
        texts, above = [certificate.read_text()], self
        while above.parent is not None:
            texts.append(above.certificate.read_text())
            above = above.parent
        chain.write_text("".join(texts))
        return Credentials(chain, key_file, certificate)

    @staticmethod
    def _make_key(file, kind="ec"):
        kinds = {"ec": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa": ("-algorithm", "RSA")}
        openssl("genpkey", *kinds[kind], "-out", file)
        file.chmod(0o600)


def context_of(authority, client=None, alpn=("http/1.1",), least=None, most=None):
    """Returns a client's TLS context that trusts ``authority`` only and presents the certificate of ``client``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if client is not None:
        context.load_cert_chain(client.chain, client.key)
    if least is not None:
        context.minimum_version = least
    if most is not None:
        context.maximum_version = most
    return context


class TlsClient(Client):
    """A TLS connection. ``host`` is the name that it sends and verifies; with None, no name is sent."""

    def __init__(self, address, context, host="localhost", session=None, **options):
        super().__init__(address, **options)
        context.check_hostname = host is not None
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=host, session=session, suppress_ragged_eofs=False)
        except BaseException:
            self.socket.close()
            raise

    def say_goodbye(self):
        """Sends close_notify and waits for the server's."""
        return self.socket.unwrap()


def s_client(address, *arguments, stdin=b"", patience=TIMEOUT_SECONDS):
    """Runs ``openssl s_client`` to its end and returns its status and output."""
    command = ["openssl", "s_client", "-connect", "{}:{}".format(*address), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience)
    return done.returncode, done.stdout.decode(errors="replace")
