"""Client information from reverse proxies: PROXY headers, and how applications of both interfaces see it."""

import ipaddress
import json

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21

#: `PP2_TYPE_SSL` and its sub-types.
SSL, SSL_VERSION, SSL_CN, SSL_CIPHER = 0x20, 0x21, 0x22, 0x23


def line(source, port, family="TCP4", destination="198.51.100.1"):
    """Returns a PROXY header of version 1."""
    return f"PROXY {family} {source} {destination} {port} 443\r\n".encode()


def part(kind, value):
    return bytes([kind]) + len(value).to_bytes(2, "big") + value


def binary(source=None, port=0, command=PROXY, parts=b""):
    """Returns a PROXY header of version 2."""
    if source is None:
        family, addresses = 0x00, b""
    else:
        address = ipaddress.ip_address(source)
        family = 0x11 if address.version == 4 else 0x21
        addresses = address.packed + bytes(len(address.packed)) + port.to_bytes(2, "big") + (443).to_bytes(2, "big")
    rest = addresses + parts
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


def ssl_part(version=b"TLSv1.3", cipher=b"TLS_AES_128_GCM_SHA256", name=b"alice", client=0x07, verify=0):
    """Returns the TLV about TLS; ``client`` has the bits of the specification: TLS, certificate of the connection, of the
    session.
    """
    texts = part(SSL_VERSION, version) + part(SSL_CN, name) + part(SSL_CIPHER, cipher)
    return part(SSL, bytes([client]) + verify.to_bytes(4, "big") + texts)


class View:
    """A request as the application sees it, with either interface: the response of ``tests/apps/echo.py`` or
    ``asgi_scope.py``.
    """

    def __init__(self, response):
        assert response.status == 200, response
        told = json.loads(response.body)
        if "environ" in told:
            environ = told["environ"]
            self.address, self.port = environ["REMOTE_ADDR"], environ["REMOTE_PORT"]
            self.scheme = environ["wsgi.url_scheme"]
            self.host = environ.get("HTTP_HOST")
            self.prefix = environ["SCRIPT_NAME"]
            self.path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
            self.fields = {name: value for name, value in environ.items() if name.startswith("HTTP_")}
            self.environ = environ
        else:
            address, port = told["client"] or ("", "")
            self.address, self.port = address, str(port)
            self.scheme = told["scheme"]
            headers = [(name["bytes"], value["bytes"]) for name, value in told["headers"]]
            hosts = [value for name, value in headers if name == "host"]
            assert len(hosts) < 2, headers
            self.host = hosts[0] if hosts else None
            self.prefix = told["root_path"]
            self.path = told["path"]
            self.fields = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers}
            self.environ = None

    @property
    def client(self):
        return (self.address, self.port)
