"""Service managers such as systemd: the server reports its state, and receives sockets that the manager has opened."""

import json
import os
import signal
import socket

import pytest
from support import uwsgi
from support.client import Client
from support.waiting import TIMEOUT_SECONDS, wait_until
from support_activate import activated
from support_instance import APPLICATIONS, LOAD_FAILED


class Manager:
    """The socket of a service manager."""

    def __init__(self, place):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(place)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.environment = {"NOTIFY_SOCKET": place.replace("\0", "@", 1)}

    def hears(self):
        """Returns the next message as a dictionary."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def hears_nothing(self):
        self.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.socket.recv(4096)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    manager = Manager(str(tmp_path / "notify") if request.param == "path" else f"\0bolide-notify-{tmp_path}")
    yield manager
    manager.socket.close()


def test_the_manager_is_notified_of_readiness_reload_and_stop(manager, start):
    instance = start("--master", environment=manager.environment)
    assert manager.hears() == {"READY": "1", "STATUS": "1 worker of generation 1"}
    instance.reload(2)
    reloading = manager.hears()
    assert reloading["RELOADING"] == "1"
    assert int(reloading["MONOTONIC_USEC"]) > 0
    assert manager.hears() == {"READY": "1", "STATUS": "1 worker of generation 2"}
    assert instance.stop() == 0
    stopping = manager.hears()
    assert stopping["STOPPING"] == "1"
    # The mercy of requests, and of ending interpreters: longer than the default timeout of a service manager.
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 60_000_000


def test_the_master_notifies_the_watchdog_repeatedly(manager, start):
    environment = {**manager.environment, "WATCHDOG_USEC": "200000"}
    start("--master", environment=environment)
    # How many of them come before startup is over depends on the machine.
    heard, fed, ready = [], {"WATCHDOG": "1"}, {"READY": "1", "STATUS": "1 worker of generation 1"}
    while heard.count(fed) < 5 or ready not in heard:
        heard.append(manager.hears())
    assert [one for one in heard if one != fed] == [ready]


def test_the_watchdog_of_another_process_is_not_fed(manager, start):
    environment = {**manager.environment, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    instance = start("--master", environment=environment)
    assert manager.hears()["READY"] == "1"
    assert instance.stop() == 0
    assert manager.hears()["STOPPING"] == "1"


def test_the_manager_gets_more_time_for_a_long_start_and_the_reason_of_a_waiting_stop(manager, start, tmp_path):
    instance = start("--master", "--load-timeout", "300", environment=manager.environment)
    assert manager.hears() == {"STATUS": "the application is loaded", "EXTEND_TIMEOUT_USEC": "300000000"}
    assert manager.hears()["READY"] == "1"
    gate = tmp_path / "gate"
    client = instance.connect()
    client.send(f"GET /wait?{gate} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_until(gate.with_suffix(".waiting").exists, "the application to have the request")
    instance.send_signal(signal.SIGTERM)
    assert manager.hears()["STOPPING"] == "1"
    assert manager.hears()["STATUS"].startswith("waiting for 1 request: GET /wait")
    gate.touch()
    assert client.read_response().status == 200
    assert instance.wait_for_exit() == 0


def test_readiness_is_reported_when_workers_serve_and_not_before(manager, start, tmp_path):
    gate = tmp_path / "gate"
    (tmp_path / "shop.py").write_text(
        "import os, time\nprint('loading', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\nfrom probe import application\n"
    )
    instance = start("--master", module="shop", ready=False, environment=manager.environment)
    instance.wait_for_log("^loading$")
    manager.hears_nothing()
    gate.touch()
    manager.socket.settimeout(TIMEOUT_SECONDS)
    assert manager.hears()["READY"] == "1"
    assert instance.body() == str(instance.worker())


def test_a_reload_that_fails_is_over_for_the_manager_too(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--master", module="shop", environment=manager.environment)
    assert manager.hears()["READY"] == "1"
    (tmp_path / "shop.py").write_text("def (:\n")
    instance.send_signal(signal.SIGHUP)
    assert manager.hears()["RELOADING"] == "1"
    over = manager.hears()
    assert over["READY"] == "1"
    assert over["STATUS"].startswith("generation 2 could not be loaded (SyntaxError: ")
    assert over["STATUS"].endswith("): generation 1 keeps serving")


def write_configuration(tmp_path, *lines):
    text = "\n".join(
        ("[uwsgi]", "http-socket = 127.0.0.1:0", "module = shop", "master = true", f"pythonpath = {APPLICATIONS}", *lines)
    )
    (tmp_path / "uwsgi.ini").write_text(text + "\n")


def hears_of_a_failed_reload(manager, why):
    """The messages that `systemctl reload` waits for with `Type=notify-reload`: the begin, with a later timestamp than the
    request, and the end.
    """
    reloading, over = manager.hears(), manager.hears()
    assert reloading["RELOADING"] == "1"
    assert int(reloading["MONOTONIC_USEC"]) > 0
    assert over["READY"] == "1"
    assert why in over["STATUS"]
    manager.hears_nothing()


def test_a_reload_with_a_wrong_configuration_is_over_for_the_manager_too(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    write_configuration(tmp_path)
    instance = start("--ini", "uwsgi.ini", socket=None, module=None, environment=manager.environment)
    assert manager.hears()["READY"] == "1"
    write_configuration(tmp_path, "no-such-option = 1", "strict = true")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("the configuration can't be used")
    hears_of_a_failed_reload(manager, "generation 1 keeps serving")


def test_a_reload_whose_probe_fails_is_over_for_the_manager_too(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start(
        "--master", "--reload-probe", "/no-such-function", module="shop", environment=manager.environment, alarms=True
    )
    assert manager.hears()["READY"] == "1"
    instance.send_signal(signal.SIGHUP)
    hears_of_a_failed_reload(manager, "reload-probe: GET /no-such-function")


def test_the_manager_waits_for_a_canary_and_is_notified_of_its_rollback(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--master", "--reload-canary", "300", module="shop", environment=manager.environment, alarms=True)
    assert manager.hears()["READY"] == "1"
    instance.send_signal(signal.SIGHUP)
    assert manager.hears()["RELOADING"] == "1"
    assert manager.hears()["STATUS"].endswith("of generation 2 handles requests beside those of generation 1 for 5 min")
    # Longer than the default timeout of a service manager for a reload.
    assert manager.hears() == {"EXTEND_TIMEOUT_USEC": "360000000"}
    canary = int(instance.wait_for_log(r"^bolide: canary: worker 1 \(pid (\d+)\)")[1])
    os.kill(canary, signal.SIGKILL)
    over = manager.hears()
    assert over["READY"] == "1"
    assert over["STATUS"].endswith("was killed by SIGKILL: generation 2 is rolled back, generation 1 keeps serving")


def test_a_reload_that_leaves_nothing_in_service_is_over_for_the_manager_and_told_when_it_is_mended(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance = start("--master", "--reload-order", "stop-first", module="shop", environment=manager.environment, alarms=True)
    assert manager.hears()["READY"] == "1"
    (tmp_path / "shop.py").write_text("def (:\n")
    instance.send_signal(signal.SIGHUP)
    assert manager.hears()["RELOADING"] == "1"
    over = manager.hears()
    assert (over["READY"], over["STATUS"].endswith("nothing is served, clients wait")) == ("1", True)
    (tmp_path / "shop.py").write_text("from probe import application\n")
    instance.send_signal(signal.SIGHUP)
    wait_until(lambda: manager.hears().get("STATUS", "").startswith("1 worker of generation "), "the mended code")
    # If an attempt took the mended code just before, the signal makes one more generation.
    wait_until(lambda: [instance.body()] == list(map(str, instance.workers())), "the mended code alone")


def test_a_reload_that_can_not_be_begun_is_over_for_the_manager_too(manager, start, tmp_path):
    directory = tmp_path / "release"
    directory.mkdir()
    (directory / "shop.py").write_text("from probe import application\n")
    instance = start("--master", "--chdir", directory, module="shop", environment=manager.environment)
    assert manager.hears()["READY"] == "1"
    directory.rename(tmp_path / "gone")
    instance.send_signal(signal.SIGHUP)
    hears_of_a_failed_reload(manager, "generation 1 keeps serving")


def test_a_wrong_configuration_while_a_generation_forms_is_a_failed_reload_after_that_one(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text("from probe import application\n")
    write_configuration(tmp_path)
    patient = {**manager.environment, "BOLIDE_TEST_LOAD_PATIENCE_MS": "600000"}
    instance = start("--ini", "uwsgi.ini", socket=None, module=None, environment=patient)
    assert manager.hears()["READY"] == "1"
    gate = tmp_path / "gate"
    (tmp_path / "shop.py").write_text(
        "import os, time\nprint('loading', flush=True)\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\nfrom probe import application\n"
    )
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("^loading$")
    assert manager.hears()["RELOADING"] == "1"
    write_configuration(tmp_path, "no-such-option = 1", "strict = true")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("one more reload follows it")
    assert manager.hears()["RELOADING"] == "1"
    manager.hears_nothing()
    gate.touch()
    manager.socket.settimeout(TIMEOUT_SECONDS)
    heard = manager.hears()
    assert (heard["READY"], heard["STATUS"].endswith("generation 2 keeps serving")) == ("1", True), heard


def test_a_start_that_fails_is_never_ready(manager, start):
    instance = start(module="no_such_module", ready=False, environment=manager.environment)
    assert instance.wait_for_exit() == LOAD_FAILED
    assert "READY" not in manager.hears()
    manager.hears_nothing()


def test_a_manager_that_is_not_there_does_not_stop_a_start(start, tmp_path):
    instance = start(environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert instance.body() == str(instance.worker())
    instance.wait_for_text("the service manager (NOTIFY_SOCKET) can't be notified")


def test_inherited_sockets_use_the_protocol_of_socket(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "app.sock"))
        local.listen()
        instance = start("--ini", ini(tmp_path, "module = probe"), socket=None, module=None, **activated(tcp, local))
        worker = str(instance.worker())
        assert uwsgi.ask(tcp.getsockname()).body.decode() == worker
        assert uwsgi.ask(str(tmp_path / "app.sock")).body.decode() == worker
        instance.reload(2)
        assert uwsgi.ask(tcp.getsockname()).body.decode() == str(instance.worker())
        assert instance.stop() == 0
        assert (tmp_path / "app.sock").exists(), "the file is the manager's"


def test_protocol_selects_the_protocol_of_an_inherited_socket(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        text = "module = probe\nprotocol = http"
        instance = start("--ini", ini(tmp_path, text), socket=None, module=None, **activated(tcp))
        assert Client(tcp.getsockname()).request().text == str(instance.worker())


def test_an_inherited_socket_is_used_for_the_address_that_names_it(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "app.sock"))
        local.listen()
        host, port = tcp.getsockname()
        instance = start("--http-socket", tmp_path / "app.sock", socket=f"{host}:{port}", **activated(tcp, local))
        assert len(instance.places()) == 2
        worker = str(instance.worker())
        assert Client((host, port)).request().text == worker
        assert Client(str(tmp_path / "app.sock")).request().text == worker


def test_a_socket_is_known_by_the_name_that_its_unit_gives_it(start, fail, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as web, socket.create_server(("127.0.0.1", 0)) as admin:
        text = "module = probe\nhttp-socket = fd://web\nfastcgi-socket = fd://admin"
        environment = {"LISTEN_FDNAMES": "admin:web"}
        instance = start("--ini", ini(tmp_path, text), socket=None, module=None, environment=environment, **activated(admin, web))
        assert instance.places() == [("http", *web.getsockname()), ("fastcgi", *admin.getsockname())]
        assert Client(web.getsockname()).request().text == str(instance.worker())
    status, lines = fail("--ini", "app.ini")
    assert status != 0
    assert any("none of the passed sockets is called `web`" in line for line in lines)


def test_an_application_alone_serves_http_at_its_inherited_socket(start):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        instance = start("probe:application", socket=None, module=None, **activated(tcp))
        assert instance.places() == [("http", *tcp.getsockname())]
        assert Client(tcp.getsockname()).request().text == str(instance.worker())


def test_sockets_for_another_process_are_left_alone(start):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        instance = start(environment={"LISTEN_FDS": "1", "LISTEN_PID": "1"}, kept=[tcp.fileno()])
        assert len(instance.places()) == 1


def test_an_inherited_descriptor_that_is_no_listening_socket_fails_the_start(start):
    with socket.socket() as plain:
        instance = start(ready=False, **activated(plain))
        assert instance.wait_for_exit() == 1
        assert "LISTEN_FDS" in instance.lines[-1]
        assert "is not a listening socket" in instance.lines[-1]


def test_the_variables_of_the_manager_do_not_reach_the_application(manager, start, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import json, os\ndef application(environ, start_response):\n"
        "    start_response('200 OK', [])\n    return [json.dumps(sorted(os.environ)).encode()]\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        instance = start(module="shop", environment=manager.environment, **activated(tcp))
        seen = json.loads(instance.get().text)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} & set(seen)


def ini(directory, text):
    path = directory / "app.ini"
    path.write_text(f"[uwsgi]\n{text}\n")
    return path


MANAGERS = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}


def test_the_variables_of_the_manager_reach_no_program_beside_the_application(manager, start, tmp_path):
    options = {"attach-daemon": "daemon", "alarm": "alarm", "logger": "logger"}
    said = {kind: tmp_path / kind for kind in options.values()}
    # Renamed when it is whole.
    tells = {kind: f"env > {place}.$$; mv {place}.$$ {place}" for kind, place in said.items()}
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        start(
            f"--attach-daemon={tells['daemon']}; exec sleep 1000",
            f"--logger=pipe:{tells['logger']}; exec cat",
            f"--alarm=alarm cmd:{tells['alarm']}",
            "--log-alarm=alarm bolide",
            environment=manager.environment,
            **activated(tcp),
        )
        for kind, place in said.items():
            seen = wait_until(lambda place=place: place.exists() and place.read_text(), kind)
            assert "PATH=" in seen, kind
            assert not MANAGERS & {line.split("=")[0] for line in seen.splitlines()}, kind
