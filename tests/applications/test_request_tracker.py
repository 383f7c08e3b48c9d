"""Request Tracker of Debian: a user logs in, creates a ticket and sees it, in two workers with one SQLite database."""

import re

import pytest
from application_support import Visitor, hidden, reload, run
from support.ports import reserve

SERVER = "/usr/share/request-tracker5/libexec/rt-server"
SETTINGS = """
Set($rtname, 'example.com');
Set($Organization, 'example.com');
Set($WebPath, '');
Set($WebDomain, '127.0.0.1');
Set($WebPort, {port});
Set($DatabaseType, 'SQLite');
Set($DatabaseName, '{directory}/rt.db');
Set($LogToSyslog, undef);
Set($LogToSTDERR, 'error');
Set($MasonDataDir, '{directory}/mason');
Set($MasonSessionDir, '{directory}/sessions');
Set($MailCommand, 'testfile');
1;
"""


@pytest.fixture(scope="module")
def tracker(serve_module, perl):
    """A server of a new tracker. Its pages name its port, so the port is chosen first."""
    with reserve() as held:
        port = held.getsockname()[1]
    server = serve_module.prepare()
    (server.directory / "settings").mkdir()
    for name in ("mason", "sessions"):
        (server.directory / name).mkdir()
    settings = server.directory / "RT_SiteConfig.pm"
    settings.write_text(SETTINGS.replace("{port}", str(port)).replace("{directory}", str(server.directory)))
    places = {"RT_SITE_CONFIG": str(settings), "RT_SITE_CONFIG_DIR": str(server.directory / "settings")}
    run("rt-setup-database-5", "--action", "init", "--skip-create", directory=server.directory, **places)
    lines = [f"env = {name}={value}" for name, value in places.items()]
    lines += [f"plugin = {perl}", f"psgi = {SERVER}", "master = true", "processes = 2"]
    server.configure("\n".join(lines), listen=[f"http-socket = 127.0.0.1:{port}"])
    return server.start()


@pytest.fixture
def root(tracker):
    """A visitor who is logged in as the administrator."""
    visitor = Visitor(tracker)
    page = visitor.get("/").text
    response = visitor.post("/NoAuth/Login.html", {"user": "root", "pass": "password", "next": hidden(page, "next")})
    assert response.status == 200
    assert "Logged in as" in response.text
    return visitor


def create(visitor, subject):
    """Creates a ticket as the form of its page does; returns its number."""
    page = visitor.get("/Ticket/Create.html?Queue=1").text
    fields = {"id": "new", "Token": hidden(page, "Token"), "Queue": "1", "Subject": subject, "Content": "It does not print."}
    response = visitor.post(
        "/Ticket/Create.html", {**fields, "Status": "new", "Requestors": "kim@example.com", "SubmitTicket": "Create"}
    )
    assert response.status == 200
    found = re.search(r"#(\d+): ", response.text)
    assert found, response.text[:2000]
    return found[1]


def test_a_wrong_password_is_refused(tracker):
    visitor = Visitor(tracker)
    response = visitor.post(
        "/NoAuth/Login.html", {"user": "root", "pass": "a wrong one", "next": hidden(visitor.get("/").text, "next")}
    )
    assert "Your username or password is incorrect" in response.text
    assert "Logged in as" not in response.text


def test_a_ticket_is_created_and_seen_by_each_worker(root):
    number = create(root, "The printer is on fire")
    for _ in range(6):
        assert "The printer is on fire" in root.get(f"/Ticket/Display.html?id={number}").text
        assert "It does not print." in root.get(f"/Ticket/History.html?id={number}").text


def test_a_search_finds_the_ticket(root):
    number = create(root, "A lamp flickers")
    page = root.get("/Search/Results.html?Query=Subject%20LIKE%20'flickers'").text
    assert f"/Ticket/Display.html?id={number}" in page
    assert "A lamp flickers" in page


def test_static_files_come_with_the_page(root):
    page = root.get("/").text
    style = re.search(r'href="(/[^"]+\.css)"', page)
    response = root.get(style[1])
    assert response.status == 200
    assert response.get("content-type").startswith("text/css")
    assert len(response.body) > 10_000


def test_a_reload_keeps_the_session_and_the_database(tracker, root):
    number = create(root, "Before the reload")
    reload(tracker)
    page = root.get(f"/Ticket/Display.html?id={number}").text
    assert "Logged in as" in page
    assert "Before the reload" in page
    create(root, "After the reload")
