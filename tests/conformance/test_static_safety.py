"""Static files: files that must never be served, and the effects of missing permissions or descriptors."""

import contextlib
import os
import resource
import socket
import stat

import pytest
from support.client import Client
from support.files import assert_same, fill, pattern
from support.server import program
from support.uwsgi import ask

SECRET = b"the secret"

#: Path traversal attempts, as clients have tried them. Each is sent unmodified, and below both prefixes.
TRAVERSALS = [
    "../secret.txt",
    "../../secret.txt",
    "d/../../secret.txt",
    "d/..%2f..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "%2e%2e%2fsecret.txt",
    "%2E%2E%2Fsecret.txt",
    ".%2e/secret.txt",
    "%252e%252e/secret.txt",
    "%252e%252e%252fsecret.txt",
    "..%c0%afsecret.txt",
    "%c0%ae%c0%ae/secret.txt",
    "..%5csecret.txt",
    "..\\secret.txt",
    "d\\..\\..\\secret.txt",
    "..;/secret.txt",
    "..%00/secret.txt",
    "../secret.txt%00.css",
    "a.txt%00",
    "./../secret.txt",
    "d//../../secret.txt",
    "//secret.txt",
    "/secret.txt",
    "....//secret.txt",
    "..././secret.txt",
    ".../secret.txt",
    "d/.../secret.txt",
    "%2fetc/passwd",
    "//etc/passwd",
    "/etc/passwd",
    "..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "../../../../../../../../etc/passwd",
    "out/secret.txt",
    "outdirectory/secret.txt",
    "absolute",
    "proc/self/environ",
    "a.txt/../../secret.txt",
    "..%0asecret.txt",
    "~/secret.txt",
    "%uff0e%uff0e/secret.txt",
]


@pytest.fixture(scope="module")
def server(serve_module):
    server = serve_module(
        "wsgi-file = {apps}/static_front.py\ncheck-static = files/root\n"
        "static-map = /s=files/root\nstatic-map = /slash/=files/root",
        listen=("http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0"),
    )
    fill(server.directory / "files", {"root/a.txt": b"a", "root/d/b.txt": b"b", "secret.txt": SECRET, "rootother/x": SECRET})
    root = server.directory / "files" / "root"
    (root / "out").symlink_to("..")
    (root / "outdirectory").symlink_to(server.directory / "files")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "proc").symlink_to("/proc")
    return server


def is_harmless(status, body):
    return SECRET not in body and b"root:" not in body and status in (200, 400, 404)


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_way_leads_out_of_the_directory(server, path):
    for prefix in ("/s/", "/slash/", "/", "/s/d/", "/s"):
        with Client(server.address()) as client:
            client.send(f"GET {prefix}{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1"))
            response = client.read_response()
            assert is_harmless(response.status, response.body), f"{prefix}{path}: {response}"
            # None of it is a file: the application answered, or the request was refused.
            assert response.status == 400 or response.get("x-from") == "application", f"{prefix}{path}: {response}"
    # The system may create such a link, so the server keeps serving.
    assert server.get("/s/a.txt").body == b"a"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "d/../../secret.txt", "out/secret.txt", "..\\secret.txt", "a.txt\0", "\0", "", "//"]
)
def test_no_reverse_proxy_can_lead_out_of_the_directory(server, path):
    for prefix in ("/s/", "/slash/", "/", ""):
        extra = [("PATH_INFO", prefix + path)]
        answer = ask(server.address("uwsgi"), target="/s/x", extra=extra)
        assert is_harmless(answer.status, answer.body), f"{prefix}{path}"
        assert answer.all("X-From") == ["application"]


def test_a_neighbor_with_a_longer_name_is_not_below_the_directory(server):
    for path in ("/sother/x", "/s/../rootother/x", "/s/%2e%2e/rootother/x", "/s../rootother/x"):
        assert server.get(path).get("x-from") == "application"


def test_devices_pipes_and_sockets_are_no_files_and_are_not_waited_for(server):
    root = server.directory / "files" / "root"
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        # A socket address has little room for a path.
        os.chdir(root)
        listener.bind("sock")
        os.chdir(here)
        names = ["pipe", "sock", "d"]
        # Only root may create devices, and not in every container.
        with contextlib.suppress(PermissionError):
            os.mknod(root / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
            names.append("zero")
        for name in names:
            for method in ("GET", "HEAD"):
                assert server.get(f"/s/{name}", method=method).get("x-from") == "application", name


def test_a_link_that_is_switched_while_it_is_asked_for_never_leads_out(server):
    """A thousand lookups of a name that alternates between a directory and a link to the outside."""
    root = server.directory / "files" / "root"
    (root / "switch").mkdir()
    (root / "switch" / "secret.txt").write_bytes(b"harmless")
    (root / "away").symlink_to("..")
    seen = set()
    with server.connect() as client:
        for number in range(1000):
            if number % 2:
                os.rename(root / "switch", root / "kept")
                os.rename(root / "away", root / "switch")
            else:
                if (root / "kept").exists():
                    os.rename(root / "switch", root / "away")
                    os.rename(root / "kept", root / "switch")
            response = client.request(target=f"/s/switch/secret.txt?{number}")
            seen.add(response.body)
            assert SECRET not in response.body
    assert b"harmless" in seen


# Rights.


def without_roots_rights():
    """Returns the command of a server that is subject to file modes: root may read everything, unless it drops that
    capability.
    """
    if os.geteuid() != 0:
        return None
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *program()]


def test_what_may_not_be_read_is_forbidden_and_no_fault(serve):
    configuration = "wsgi-file = {apps}/static_front.py\nstatic-map = /s=files\ncheck-static = files"
    server = serve.prepare(configuration, command=without_roots_rights())
    directory = server.directory / "files"
    fill(directory, {"open.txt": b"open", "closed.txt": b"closed", "d/in.txt": b"in"})
    (directory / "closed.txt").chmod(0o000)
    (directory / "d").chmod(0o000)
    try:
        server.start()
        assert server.get("/s/open.txt").body == b"open"
        for path in ("/s/closed.txt", "/s/d/in.txt", "/s/d/none"):
            assert server.get(path).status == 403, path
        # If every path is looked up, the application answers for inaccessible ones.
        assert server.get("/d/in.txt").get("x-from") == "application"
    finally:
        (directory / "d").chmod(0o755)


# Descriptors.


def test_a_full_descriptor_table_is_503_and_passes(serve):
    server = serve.prepare("wsgi-file = {apps}/static_front.py\nstatic-map = /s=files\nstatic-cache-files = 0")
    fill(server.directory / "files", {f"{number}.bin": pattern(3_000_000) for number in range(40)})
    server.start()
    worker = processes_of_workers(server)[0]
    held = len(os.listdir(f"/proc/{worker}/fd"))
    soft, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    clients = [server.connect(receive_bytes=4096) for _ in range(12)]
    for number, client in enumerate(clients):
        client.send(f"GET /s/{number}.bin HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    for client in clients:
        assert client.read_head().status == 200
    late = server.connect()
    # Exactly the current number of open descriptors, and no more.
    late.request(target="/")
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (held + 1, hard))
    response = late.request(target="/s/30.bin")
    assert (response.status, response.get("retry-after")) == (503, "1")
    assert late.request(target="/").get("x-from") == "application", "the connection is good for more"
    server.wait_for_log("can't open a file: EMFILE")
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (soft, hard))
    assert len(late.request(target="/s/30.bin").body) == 3_000_000
    for client in clients:
        assert_same(client.read_exactly(3_000_000), pattern(3_000_000))


def test_the_cache_gives_its_descriptors_back_when_they_are_short(serve):
    server = serve.prepare("wsgi-file = {apps}/static_front.py\nstatic-map = /s=files")
    fill(server.directory / "files", {f"{number}.bin": pattern(20_000) for number in range(30)})
    server.start()
    worker = processes_of_workers(server)[0]
    with server.connect() as client:
        for number in range(20):
            assert_same(client.request(target=f"/s/{number}.bin").body, pattern(20_000))
        held = len(os.listdir(f"/proc/{worker}/fd"))
        _, hard = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (held, hard))
        for number in range(30):
            assert_same(client.request(target=f"/s/{number}.bin").body, pattern(20_000))
        server.wait_for_log("no file descriptors were left: the file cache has closed its own")


def processes_of_workers(server):
    """Returns the pids of the workers, as their log lines name them."""
    server.get("/")
    return [int(server.wait_for_log(r"^\[pid: (\d+)\|").group(1))]
