"""The dirty apps of a gunicorn.conf.py: mules keep them, and gunicorn's own client calls them."""

import pytest

SHOP = """
import asyncio, os, time
from gunicorn.dirty import DirtyApp, DirtyClient, get_dirty_client, get_dirty_client_async
from gunicorn.dirty.errors import DirtyError
class Model(DirtyApp):
    def init(self):
        self.rate = 3
    def scale(self, *numbers):
        return [number * self.rate for number in numbers]
    def parts(self, most):
        yield from range(most)
    def fail(self):
        raise RuntimeError("no data")
    def die(self):
        os.kill(os.getpid(), 9)
    def wait(self):
        time.sleep(5)
class Other(Model):
    def init(self):
        self.rate = 4
NAME = "shop:Model"
async def later(*arguments):
    client = await get_dirty_client_async()
    return await client.execute_async(*arguments)
async def streamed(*arguments):
    return [part async for part in get_dirty_client().stream_async(*arguments)]
def application(environ, start_response):
    start_response("200 OK", [])
    client = get_dirty_client(timeout=30)
    try:
        return [repr(eval(environ["PATH_INFO"][1:])).encode()]
    except DirtyError as error:
        return [type(error).__name__.encode()]
"""
CONFIGURATION = """
bind = "127.0.0.1:0"
dirty_apps = ["shop:Model", "shop:Other:1"]
dirty_workers = 1
dirty_timeout = 60
dirty_graceful_timeout = 20
dirty_threads = 1
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "gunicorn.conf.py").write_text(CONFIGURATION)
    return tmp_path


def test_gunicorns_client_calls_dirty_apps_in_mules(directory, serve):
    instance = serve.prepare(
        arguments=["-c", str(directory / "gunicorn.conf.py"), "--chdir", str(directory), "shop:application"]
    ).start()
    instance.expects_alarms = True
    expected = {
        "client.execute(NAME,'scale',1,2)": "[3, 6]",
        "client.execute('shop:Other','scale',1,2)": "[4, 8]",
        "list(client.stream(NAME,'parts',3))": "[0, 1, 2]",
        "asyncio.run(later(NAME,'scale',5))": "[15]",
        "asyncio.run(streamed(NAME,'parts',2))": "[0, 1]",
        "client.execute(NAME,'fail')": "DirtyAppError",
        "client.execute(NAME,'absent')": "DirtyAppError",
        "client.execute('shop:Absent','x')": "DirtyNoWorkersAvailableError",
        "DirtyClient(None,timeout=0.1).execute(NAME,'wait')": "DirtyTimeoutError",
        "client.execute(NAME,'die')": "DirtyWorkerError",
    }
    for expression, value in expected.items():
        assert instance.get(f"/{expression}").text == value
    assert instance.get("/client.execute(NAME,'scale',4)").text == "[12]"


def test_dirty_apps_without_workers_and_workers_without_apps_start_nothing(directory, call):
    for alone in ("dirty_workers", "dirty_apps"):
        kept = [line for line in CONFIGURATION.splitlines() if not line.startswith(alone)]
        (directory / "gunicorn.conf.py").write_text("\n".join(kept))
        status, said = call("config", "-c", "gunicorn.conf.py", "shop:application", directory=directory)
        assert status == 0
        assert "\nmules =" not in said
        assert "\nmule-app =" not in said
        assert "nothing to do: there are no dirty " + alone.removeprefix("dirty_") in said


def test_several_threads_of_a_dirty_worker_are_refused_with_advice(directory, call):
    (directory / "gunicorn.conf.py").write_text(CONFIGURATION.replace("dirty_threads = 1", "dirty_threads = 4"))
    status, said = call("-c", "gunicorn.conf.py", "shop:application", directory=directory)
    assert status != 0
    assert "write `dirty_workers = 4` instead: a mule answers one call at a time" in said
