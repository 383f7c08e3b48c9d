"""`py-autoreload`: imported files are watched, and a change causes a reload."""

import contextlib
import glob
import itertools
import os

import pytest
from support.waiting import wait_until

VIEWS = 'TEXT = "{text}"\n'
#: Imports a module of its package, and another one at the first request for it.
SHOP = """\
from shop import views
def application(environ, start_response):
    text = views.TEXT
    if environ["PATH_INFO"] == "/late":
        from shop import late
        text = late.TEXT
    start_response("200 OK", [("Content-Length", str(len(text)))])
    return [text.encode()]
"""
WAYS = {
    "one-worker": (),
    "two-workers": ("--processes", "2"),
    "lazy": ("--processes", "2", "--lazy-apps"),
    "gevent": ("--gevent", "50", "--gevent-monkey-patch"),
    # With this period no test would see a change by polling alone.
    "doorbell": ("--py-autoreload", "3600"),
}


@pytest.fixture
def package(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "__init__.py").write_text(SHOP)
    (directory / "views.py").write_text(VIEWS.format(text="old"))
    return directory


def watched(start, *options, **more):
    return start("--py-autoreload", "1", *options, module="shop", master=False, **more)


def has_open(process, path):
    with contextlib.suppress(OSError):
        return any(os.readlink(entry) == str(path) for entry in glob.glob(f"/proc/{process.pid}/fd/*"))


def serves(instance, text, target="/"):
    wait_until(lambda: instance.body(target) == text, f"{text} from {target}")


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_a_changed_module_is_served_and_the_log_says_which(options, start, package):
    instance = watched(start, *options)
    assert instance.body() == "old"
    with instance.looks_away():
        (package / "views.py").write_text(VIEWS.format(text="young"))
    instance.wait_for_generation(2)
    assert instance.body() == "young"
    assert "bolide: py-autoreload: shop/views.py has changed" in instance.lines


def test_a_module_that_an_editor_replaces_reloads_each_time(start, package):
    instance = watched(start, "--processes", "2")
    for number in range(2, 5):
        fresh = package / "views.py~"
        fresh.write_text(VIEWS.format(text=f"version {'x' * number}"))
        fresh.rename(package / "views.py")
        instance.wait_for_generation(number)
        assert instance.body() == f"version {'x' * number}"


def test_a_module_that_a_view_imports_later_is_watched_too(start, package):
    (package / "late.py").write_text(VIEWS.format(text="late"))
    instance = watched(start)
    assert instance.body("/late") == "late"
    # Workers check for new imports once a period: until then the file is not watched.
    number = itertools.count(1)

    def is_noticed():
        (package / "late.py").write_text(VIEWS.format(text=f"later {next(number)}"))
        assert instance.body("/late").startswith("late")
        return "py-autoreload: shop/late.py has changed" in instance.log

    wait_until(is_noticed, "the late module to be watched")
    instance.wait_for_log(r"^bolide: ready: .* of generation \d+ in")


@pytest.mark.parametrize("options", [(), ("--processes", "2", "--lazy-apps")], ids=["prototype", "lazy"])
@pytest.mark.parametrize(
    ("broken", "mending"),
    [
        ('TEXT = "old"\nthis is no Python\n', ("views.py", VIEWS.format(text="young"))),
        ('from shop import tax\nTEXT = "young"\n', ("tax.py", "")),
        ("from shop.prices import TEXT\n", ("prices.py", VIEWS.format(text="young"))),
        ("import shop_prices\nTEXT = shop_prices.TEXT\n", ("../shop_prices/__init__.py", VIEWS.format(text="young"))),
    ],
    ids=["syntax", "missing-name", "missing-module", "missing-package"],
)
def test_the_old_code_serves_on_while_the_new_does_not_import_and_mending_it_reloads(broken, mending, options, start, package):
    instance = watched(start, *options)
    with instance.looks_away():
        (package / "views.py").write_text(broken)
    instance.wait_for_log(r"^bolide: generation 2 could not be loaded .*: generation 1 keeps serving")
    assert instance.body() == "old"
    file = package / mending[0]
    with instance.looks_away():
        file.parent.mkdir(exist_ok=True)
        file.write_text(mending[1])
    instance.wait_for_generation(3)
    assert instance.body() == "young"
    # A generation that fails is not retried automatically.
    assert instance.log.count("could not be loaded") == 1


def test_the_module_that_a_worker_lacks_is_watched_however_late_the_master_hears_of_both(start, package, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    instance = watched(start, "--lazy-apps")
    with instance.looks_away():
        (package / "views.py").write_text(
            f"import os\nif os.path.exists({str(gate)!r}):\n    open({str(gate)!r}).read()\nfrom shop.prices import TEXT\n"
        )
    # The new worker waits for the gate. It reports the module and exits, and its prototype reports that, while the master looks
    # away.
    writer = os.open(gate, os.O_WRONLY)
    worker = wait_until(
        lambda: next((process.pid for process in instance.processes() if has_open(process, gate)), None), "the worker's look"
    )
    with instance.looks_away():
        os.close(writer)
        wait_until(lambda: not os.path.exists(f"/proc/{worker}"), "the end of the worker")
    instance.wait_for_log(r"^bolide: generation 2 could not be loaded .*: generation 1 keeps serving")
    gate.unlink()
    (package / "prices.py").write_text(VIEWS.format(text="young"))
    serves(instance, "young")


def test_a_module_that_fails_is_mended_in_a_file_that_only_it_had_imported(start, package):
    instance = watched(start)
    with instance.looks_away():
        (package / "tax.py").write_text("raise RuntimeError('no taxes')\n")
    with instance.looks_away():
        (package / "views.py").write_text('from shop import tax\nTEXT = "young"\n')
    instance.wait_for_log(r"generation 2 could not be loaded .*no taxes")
    with instance.looks_away():
        (package / "tax.py").write_text("RATE = 19\n")
    instance.wait_for_generation(3)
    assert "bolide: py-autoreload: shop/tax.py has changed" in instance.lines


def test_a_file_that_changes_during_its_import_is_loaded_again(start, package, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    waits = f"open({str(gate)!r}).close()\n"
    instance = watched(start)
    # The module has been read when it waits for the gate.
    with instance.looks_away():
        (package / "views.py").write_text(VIEWS.format(text="young") + waits)
    instance.wait_for_log(r"^bolide: reload: starting generation 2")
    with open(gate, "w"):
        (package / "views.py").write_text(VIEWS.format(text="younger"))
    serves(instance, "younger")


def test_a_worker_that_imports_after_py_autoreload_was_switched_off_finishes_its_request(start, package, tmp_path):
    settings, gate = tmp_path / "shop.ini", tmp_path / "gate"
    settings.write_text("[uwsgi]\npy-autoreload = 1\n")
    os.mkfifo(gate)
    (package / "late.py").write_text("TEXT = 'late'\n")
    # The second wait is for the period in which a worker checks its imports.
    slow = f"open({str(gate)!r}).close()\nfrom shop import late\nimport time\ntime.sleep(2.5)\nTEXT = 'slow'\n"
    (package / "slow.py").write_text(slow)
    (package / "__init__.py").write_text(SHOP.replace("late", "slow"))
    instance = start("--ini", settings, "--threads", "2", module="shop", master=False)
    held = instance.connect()
    held.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with open(gate, "w"):
        settings.write_text("[uwsgi]\n")
        instance.wait_for_log(r"^bolide: ready: .* of generation 2 in")
    assert held.read_response().text == "slow"
    assert "nobody asked for" not in instance.whole_log()


def test_modules_that_are_ignored_do_not_reload(start, package):
    (package / "late.py").write_text(VIEWS.format(text="late"))
    (package / "views.py").write_text('from shop import late\nTEXT = "old"\n')
    instance = watched(start, "--py-auto-reload-ignore", "shop.late")
    (package / "late.py").write_text(VIEWS.format(text="changed"))
    with instance.looks_away():
        (package / "views.py").write_text('from shop import late\nTEXT = "young"\n')
    instance.wait_for_generation(2)
    assert "late.py" not in instance.log


def test_the_files_of_the_configuration_are_watched(start, package, tmp_path):
    settings = tmp_path / "shop.ini"
    settings.write_text("[uwsgi]\npy-autoreload = 1\nenv = SHOP=one\n")
    (package / "views.py").write_text('import os\nTEXT = os.environ["SHOP"]\n')
    instance = start("--ini", settings, module="shop", master=False)
    assert instance.body() == "one"
    with instance.looks_away():
        settings.write_text("[uwsgi]\npy-autoreload = 1\nenv = SHOP=two\n")
    instance.wait_for_generation(2)
    assert instance.body() == "two"
    assert "bolide: py-autoreload: shop.ini has changed" in instance.lines
