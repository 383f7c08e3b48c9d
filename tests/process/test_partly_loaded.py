"""Several applications of which one can't be loaded: at startup the others are served, at a reload the generation before it."""

import subprocess

import pytest
from support.server import program
from support_instance import COMMAND_SECONDS, reload_by_command

#: The exit status of a startup whose application can't be loaded.
LOAD_FAILED = 22

SHOP = "def app(e, s):\n    s('200 OK', [])\n    return [f\"shop {e['SCRIPT_NAME']} {e['PATH_INFO']}\".encode()]\n"
MANAGED = "\nmount = /api=shop:app\nmanage-script-name = true\nmaster = true"


def started(serve, lines, **files):
    server = serve.prepare(lines + MANAGED)
    for name, text in {"shop": SHOP, **files}.items():
        (server.directory / f"{name}.py").write_text(text)
    return server.start()


#: The lines besides a mount of the shop, and the bodies for these paths.
PARTS = {
    "a module whose callable only the mount names": ("module = shop", "shop  /x", "shop /api /x"),
    "a module that fails": ("module = broken", "shop  /x", "shop /api /x"),
    "a module that is missing": ("module = nowhere", "shop  /x", "shop /api /x"),
    "a mount that fails": ("mount = /x=broken.py", "shop  /x", "shop /api /x"),
    "a mount that fails beside a module": ("module = blog:app\nmount = /x=broken.py", "blog  /x", "shop /api /x"),
    "an application is needed, and one is there": ("need-app = true\nmodule = broken", "shop  /x", "shop /api /x"),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("more", ["", "\nlazy-apps = true\nprocesses = 2"])
def test_the_others_are_served_and_the_first_of_them_is_the_default(name, more, serve):
    lines, elsewhere, below = PARTS[name]
    broken = "raise RuntimeError('no settings')\n"
    server = started(serve, lines + more, broken=broken, blog=SHOP.replace("shop", "blog"))
    assert [server.get(path).text for path in ("/x", "/api/x")] == [elsewhere, below]
    assert server.log.count("nothing is served from here") == 1


def test_the_start_fails_if_none_can_be_loaded(serve):
    server = serve.prepare("module = nowhere\nmount = /api=gone:app\nmaster = true")
    server.launch()
    assert server.wait_for_exit() == LOAD_FAILED
    assert "nowhere" in server.lines[-1]


def test_an_application_that_breaks_before_a_reload_fails_it(serve):
    server = started(serve, "module = blog:app", blog=SHOP.replace("shop", "blog"))
    (server.directory / "shop.py").write_text("raise RuntimeError('half deployed')\n")
    command = [*program(), "reload", "--wait", str(server.process.pid)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode != 0
    assert "half deployed" in done.stdout
    assert server.get("/api/x").text == "shop /api /x"


def test_an_application_that_only_the_configuration_lacks_fails_no_reload(serve):
    server = started(serve, "module = shop")
    reload_by_command(server)
    assert server.get("/api/x").text == "shop /api /x"
    assert server.get("/x").text == "shop  /x"
