"""Redmine of Debian: an administrator logs in, creates an issue and sees it, in two processes of two threads."""

import re
import shutil

import pytest
from application_support import Visitor, hidden, reload, run
from selenium.webdriver.common.by import By
from support.browser import chromium
from support.waiting import wait_until

SOURCE = "/usr/share/redmine"
#: The settings of its instance. The variable may be set by the administrator of the machine.
ENVIRONMENT = {"RAILS_ENV": "production", "X_DEBIAN_SITEID": "default", "REDMINE_LANG": "en"}
DATABASE = "production:\n  adapter: sqlite3\n  database: {directory}/redmine.sqlite\n  timeout: 20000\n"
FIRST_PASSWORD, PASSWORD = "admin", "a-longer-password"


def install(directory):
    """Copies Debian's Redmine, because it keeps its instances beside its code; makes an instance with a database."""
    root = directory / "redmine"
    shutil.copytree(SOURCE, root, ignore=shutil.ignore_patterns("instances", "Gemfile.lock", "database.yml"))
    instance = root / "instances" / "default"
    for name in ("config", "log", "files", "tmp", "public/plugin_assets"):
        (instance / name).mkdir(parents=True)
    for place in (root, instance):
        (place / "config" / "database.yml").write_text(DATABASE.format(directory=directory))
    (instance / "config" / "secret_key.txt").write_text("of this test" * 8)
    # A second process, because the first has read the columns of tables that were changed later.
    for task in ("db:migrate", "redmine:load_default_data"):
        run("rake", task, directory=root, **ENVIRONMENT)
    return root


@pytest.fixture(scope="module")
def redmine(serve_module, ruby):
    server = serve_module.prepare()
    root = install(server.directory)
    lines = [f"env = {name}={value}" for name, value in ENVIRONMENT.items()]
    lines += [f"plugin = {ruby}", f"rack = {root}/config.ru", f"chdir = {root}", f"check-static = {root}/public"]
    server.configure("\n".join([*lines, "master = true", "processes = 2", "threads = 2"]))
    server.start()
    change_password(server)
    return server


def log_in(server, password):
    """Logs the administrator in; returns the visitor and the page after it."""
    visitor = Visitor(server)
    token = hidden(visitor.get("/login").text, "authenticity_token")
    return visitor, visitor.post("/login", {"authenticity_token": token, "username": "admin", "password": password})


def change_password(server):
    """Redmine demands a new password of its first administrator."""
    visitor, page = log_in(server, FIRST_PASSWORD)
    fields = {"password": FIRST_PASSWORD, "new_password": PASSWORD, "new_password_confirmation": PASSWORD}
    response = visitor.post("/my/password", {"authenticity_token": hidden(page.text, "authenticity_token"), **fields})
    assert "Password was successfully updated" in response.text


@pytest.fixture
def admin(redmine):
    visitor, page = log_in(redmine, PASSWORD)
    assert "Logged in as" in page.text
    return visitor


@pytest.fixture
def project(admin):
    """A project of this test, by its identifier."""
    identifier = f"project-{len(re.findall('class=.project', admin.get('/projects').text))}"
    token = hidden(admin.get("/projects/new").text, "authenticity_token")
    fields = {"project[name]": "A printer", "project[identifier]": identifier, "project[is_public]": "1"}
    fields["project[enabled_module_names][]"] = "issue_tracking"
    fields["project[tracker_ids][]"] = "1"
    response = admin.post("/projects", {"authenticity_token": token, **fields})
    assert "Successful creation" in response.text
    return identifier


def create(visitor, project, **more):
    """Creates an issue; returns the path of its page."""
    token = hidden(visitor.get(f"/projects/{project}/issues/new").text, "authenticity_token")
    fields = {
        "issue[tracker_id]": "1",
        "issue[subject]": "The printer is on fire",
        "issue[priority_id]": "2",
        "issue[status_id]": "1",
    }
    response = visitor.post(f"/projects/{project}/issues", {"authenticity_token": token, **fields, **more})
    found = re.search(r"/issues/\d+", response.text)
    assert response.status == 200
    assert found, response.text[:2000]
    return found[0]


def test_a_wrong_password_is_refused(redmine):
    _, page = log_in(redmine, "a wrong one")
    assert "Invalid user or password" in page.text


def test_an_issue_is_created_and_seen_by_each_thread(admin, project):
    path = create(admin, project)
    for _ in range(8):
        response = admin.get(path)
        assert response.status == 200
        assert "The printer is on fire" in response.text


def test_a_file_is_attached_to_an_issue_and_comes_back(admin, project):
    content = bytes(range(256)) * 8000
    token = re.search(r'name="csrf-token" content="([^"]+)"', admin.get(f"/projects/{project}/issues/new").text)[1]
    headers = [("Content-Type", "application/octet-stream"), ("X-CSRF-Token", token)]
    response = admin.ask("POST", "/uploads.js?attachment_id=1&filename=fire.bin", headers, content)
    assert response.status == 200
    upload = re.search(r"\d+\.[0-9a-f]{64}", response.text)[0]
    path = create(admin, project, **{"attachments[1][token]": upload, "attachments[1][filename]": "fire.bin"})
    link = re.search(r"/attachments/download/\d+/fire\.bin", admin.get(path).text)[0]
    assert admin.get(link).body == content


def test_a_search_finds_the_issue(admin, project):
    path = create(admin, project)
    assert f'href="{path}"' in admin.get("/search?q=printer&scope=all&issues=1").text


def test_a_browser_logs_in_and_creates_an_issue_without_an_error_of_its_scripts(redmine, project):
    with chromium() as browser:
        browser.get(f"{redmine.url}/login")
        browser.find_element(By.ID, "username").send_keys("admin")
        browser.find_element(By.ID, "password").send_keys(PASSWORD)
        browser.find_element(By.ID, "login-submit").click()
        wait_until(lambda: "Logged in as" in browser.page_source, "the browser is logged in")
        browser.get(f"{redmine.url}/projects/{project}/issues/new")
        browser.find_element(By.ID, "issue_subject").send_keys("A browser has found a fault")
        browser.find_element(By.NAME, "commit").click()
        wait_until(lambda: re.search(r"/issues/\d+$", browser.current_url), "the page of the issue")
        assert browser.find_element(By.CSS_SELECTOR, ".subject h3").text == "A browser has found a fault"
        assert [line for line in browser.console() if not line.startswith("DEBUG")] == []


def test_style_sheets_come_with_the_page(admin):
    path = re.search(r'href="(/stylesheets/application[^"]+)"', admin.get("/").text)[1]
    response = admin.get(path)
    assert response.status == 200
    assert response.get("content-type").startswith("text/css")


def test_a_reload_keeps_the_session_and_the_database(redmine, admin, project):
    path = create(admin, project)
    reload(redmine)
    page = admin.get(path).text
    assert "Logged in as" in page
    assert "The printer is on fire" in page
    create(admin, project)
