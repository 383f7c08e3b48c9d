"""Responses with a CGI header (RFC 3875 section 6), as SCGI and FastCGI use them."""


class Answer:
    """A whole response, split at the empty line."""

    def __init__(self, data):
        head, separator, self.body = data.partition(b"\r\n\r\n")
        assert separator, f"there is no head: {data[:200]!r}"
        first, *fields = head.decode("latin-1").split("\r\n")
        name, _, self.status_text = first.partition(": ")
        assert name == "Status", f"the head does not begin with its status: {first!r}"
        self.status = int(self.status_text.split(" ")[0])
        self.headers = [tuple(field.split(": ", 1)) for field in fields]

    def all(self, name):
        return [value for known, value in self.headers if known.lower() == name.lower()]
