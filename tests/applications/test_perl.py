"""Perl: applications of Dancer2, Mojolicious and Catalyst work as under a server of their own."""

import shutil
from pathlib import Path

import pytest
from application_support import LARGE, RELOADS, FrameworkTests, Sites, Visitor, reload_under_load, run
from support.files import assert_same

HERE = Path(__file__).resolve().parent
FRAMEWORKS = ("dancer2", "mojolicious", "catalyst")


def dancer2(directory):
    """An application that `dancer2 gen` has made, with routes of this test. Returns its file."""
    run("dancer2", "gen", "-a", "Visits", directory=directory)
    application = directory / "Visits"
    shutil.copy(HERE / "dancer2" / "Visits.pm", application / "lib")
    shutil.copy(HERE / "dancer2" / "hello.tt", application / "views")
    (application / "public" / "large.bin").write_bytes(LARGE)
    return application / "bin" / "app.psgi"


def mojolicious(directory):
    """A Lite application of one file."""
    return Path(shutil.copy(HERE / "mojolicious" / "app.pl", directory))


def catalyst(directory):
    """An application that `catalyst.pl` has made, with a controller of this test, a view and sessions."""
    run("catalyst.pl", "Shop", directory=directory)
    application = directory / "Shop"
    run("perl", "script/shop_create.pl", "view", "HTML", "TT", directory=application)
    main = application / "lib" / "Shop.pm"
    plugins = "ConfigLoader Session Session::State::Cookie Session::Store::File"
    main.write_text(main.read_text().replace("-Debug", "").replace("ConfigLoader\n", f"{plugins}\n"))
    shutil.copy(HERE / "catalyst" / "Root.pm", application / "lib" / "Shop" / "Controller")
    (application / "root" / "hello.tt").write_text("<p>Hello, [% visitor | html %]!</p>\n")
    (application / "large.bin").write_bytes(LARGE)
    return application / "shop.psgi"


def start(serve, plugin, name):
    """Starts one of the applications with two workers."""
    server = serve.prepare()
    file = globals()[name](server.directory)
    # The file of an application of Catalyst does not say where its modules are.
    server.configure(f"plugin = {plugin}\npsgi = {file}\nenv = PERL5LIB={file.parent}/lib\nmaster = true\nprocesses = 2")
    return server.start()


@pytest.fixture(scope="module")
def sites(serve_module, perl):
    return Sites(lambda name: start(serve_module, perl, name))


@pytest.fixture(params=FRAMEWORKS)
def site(sites, request):
    """The server of each framework's application."""
    return sites[request.param]


def test_a_template_shows_what_the_path_says(site):
    response = Visitor(site).get("/hello/Kim")
    assert (response.status, response.text.strip()) == (200, "<p>Hello, Kim!</p>")
    assert response.get("content-type").startswith("text/html")


class TestEachFramework(FrameworkTests):
    pass


@pytest.mark.parametrize("name", ["dancer2", "catalyst"])
def test_a_file_comes_whole(sites, name):
    response = Visitor(sites[name]).get("/file")
    assert response.get("content-type") == "application/octet-stream"
    assert_same(response.body, LARGE)


def test_a_redirect_leads_to_the_page(sites):
    assert Visitor(sites["dancer2"]).get("/old").text.strip() == "<p>Hello, moved!</p>"


def test_a_failing_route_is_500_and_its_message_is_in_the_log(site):
    workers = site.workers()
    assert Visitor(site).get("/fails").status == 500
    site.wait_for_text("the route fails")
    assert site.workers() == workers
    assert Visitor(site).get("/").text == "code 0"


def test_a_page_that_does_not_exist_is_404(site):
    assert Visitor(site).get("/there/is/no/such/page").status == 404


@pytest.mark.timeout(600)
def test_reloads_under_load_take_the_new_code_and_lose_no_request(serve, perl):
    server = start(serve, perl, "dancer2")
    module = server.directory / "Visits" / "lib" / "Visits.pm"
    text = module.read_text()
    load = reload_under_load(server, lambda number: module.write_text(text.replace("code 0", f"code {number}")), RELOADS)
    assert load.losses == []
