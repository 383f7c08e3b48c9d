"""Ruby: applications of Sinatra and Rails work as under a server of their own, with two processes of two threads."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from application_support import LARGE, RELOADS, FrameworkTests, Sites, Visitor, hidden, reload_under_load, run
from support.files import assert_same

HERE = Path(__file__).resolve().parent
FRAMEWORKS = ("sinatra", "rails")
#: What `rails new` leaves out: everything that needs packages of JavaScript, or mail.
LEFT_OUT = (
    "bundle javascript spring bootsnap sprockets listen git turbolinks jbuilder test webpack-install "
    "action-mailer action-cable action-text active-storage action-mailbox"
)


def sinatra(directory):
    """An application of one file, behind Rack::Lint."""
    (directory / "large.bin").write_bytes(LARGE)
    return Path(shutil.copy(HERE / "sinatra" / "config.ru", directory))


def rails(directory):
    """An application that `rails new` has made, with a scaffold of notes in SQLite. Rack::Lint is in front of it."""
    left_out = [f"--skip-{name}" for name in LEFT_OUT.split()]
    run("rails", "new", "shop", *left_out, directory=directory)
    application = directory / "shop"
    (application / "Gemfile").write_text('source "https://rubygems.org"\ngem "rails"\ngem "sqlite3"\n')
    environment = {"RAILS_ENV": "production", "SECRET_KEY_BASE": "of this test", "BUNDLE_GEMFILE": str(application / "Gemfile")}
    run("bin/rails", "generate", "scaffold", "note", "title:string", directory=application, **environment)
    run("bin/rails", "db:migrate", directory=application, **environment)
    for name in ("application", "files"):
        shutil.copy(HERE / "rails" / f"{name}_controller.rb", application / "app" / "controllers")
    shutil.copy(HERE / "rails" / "routes.rb", application / "config")
    (application / "large.bin").write_bytes(LARGE)
    file = application / "config.ru"
    file.write_text('require "rack/lint"\nrequire_relative "config/environment"\nuse Rack::Lint\nrun Rails.application\n')
    return file


def start(serve, plugin, name):
    """Starts one of the applications with two processes of two threads."""
    server = serve.prepare()
    file = globals()[name](server.directory)
    settings = ["RAILS_ENV=production", "RAILS_LOG_TO_STDOUT=1", "SECRET_KEY_BASE=of this test"]
    lines = [f"env = {setting}" for setting in settings]
    lines += [f"plugin = {plugin}", f"rack = {file}", f"chdir = {file.parent}", "master = true", "processes = 2", "threads = 2"]
    server.configure("\n".join(lines))
    return server.start()


@pytest.fixture(scope="module")
def sites(serve_module, ruby):
    return Sites(lambda name: start(serve_module, ruby, name))


@pytest.fixture(params=FRAMEWORKS)
def site(sites, request):
    """The server of each framework's application."""
    return sites[request.param]


def test_a_template_shows_what_the_path_says(site):
    response = Visitor(site).get("/hello/K%3Cm")
    assert (response.status, response.text.strip()) == (200, "<p>Hello, K&lt;m!</p>")
    assert response.get("content-type").startswith("text/html")


class TestEachFramework(FrameworkTests):
    pass


def test_a_file_comes_whole(site):
    response = Visitor(site).get("/file")
    assert response.get("content-type") == "application/octet-stream"
    assert_same(response.body, LARGE)


def test_a_redirect_leads_to_the_page(site):
    assert Visitor(site).get("/old").text.strip() == "<p>Hello, moved!</p>"


def test_a_failing_route_is_500_and_its_message_is_in_the_log(site):
    workers = site.workers()
    assert Visitor(site).get("/fails").status == 500
    site.wait_for_text("the route fails")
    assert site.workers() == workers
    assert Visitor(site).get("/").text == "code 0"


def test_a_page_that_does_not_exist_is_404(site):
    assert Visitor(site).get("/there/is/no/such/page").status == 404


def test_two_requests_meet_in_the_threads_of_a_process(serve, ruby):
    server = serve.prepare()
    file = sinatra(server.directory)
    server.configure(f"plugin = {ruby}\nrack = {file}\nmaster = true\nprocesses = 1\nthreads = 2")
    server.start()
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda side: Visitor(server).get(f"/meet/{side}").text, ["first", "second"])
        assert list(answers) == ["the second", "the first"]


def test_a_form_of_rails_writes_a_note_that_each_worker_shows(sites):
    visitor = Visitor(sites["rails"])
    token = hidden(visitor.get("/notes/new").text, "authenticity_token")
    response = visitor.post("/notes", {"authenticity_token": token, "note[title]": "Buy <milk>"})
    assert response.status == 200
    for _ in range(6):
        assert "Buy &lt;milk&gt;" in visitor.get("/notes").text


def test_a_form_without_the_token_of_its_session_is_refused(sites):
    server = sites["rails"]
    token = hidden(Visitor(server).get("/notes/new").text, "authenticity_token")
    response = Visitor(server).post("/notes", {"authenticity_token": token, "note[title]": "of another session"})
    assert response.status == 422
    assert "of another session" not in Visitor(server).get("/notes").text


def test_threads_write_into_one_database(sites):
    def write(number):
        visitor = Visitor(sites["rails"])
        token = hidden(visitor.get("/notes/new").text, "authenticity_token")
        return visitor.post("/notes", {"authenticity_token": token, "note[title]": f"note number {number}."}).status

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(20))) == [200] * 20
    page = Visitor(sites["rails"]).get("/notes").text
    assert all(f"note number {number}." in page for number in range(20))


@pytest.mark.timeout(900)
def test_reloads_under_load_take_the_new_code_and_lose_no_request(serve, ruby):
    server = start(serve, ruby, "rails")
    controller = server.directory / "shop" / "app" / "controllers" / "application_controller.rb"
    text = controller.read_text()
    load = reload_under_load(server, lambda number: controller.write_text(text.replace("code 0", f"code {number}")), RELOADS)
    assert load.losses == []
