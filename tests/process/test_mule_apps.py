"""Objects that mules keep: any process calls their methods, and gets the result."""

import threading

import pytest
from support.waiting import wait_until
from support_instance import reload_by_command
from support_mules import helpers_of, prepare, wait_for_notes

MODELS = """
import asyncio, json
from bolide.helpers import mules
class Model:
    def init(self):
        note("init")
        self.calls = 0
    def add(self, *numbers, times=1):
        self.calls += 1
        return sum(numbers) * times
    def who(self):
        return uwsgi.mule_id(), self.calls
    def echo(self, value):
        return value
    def fail(self):
        raise RuntimeError("no data")
    def die(self):
        os.kill(os.getpid(), 9)
    def wait(self):
        note("waits")
        while not os.path.exists("gate"):
            time.sleep(0.01)
        return "done"
    def count(self, most):
        for number in range(most):
            yield number
        if most == 3:
            raise RuntimeError("three")
    async def later(self, value):
        await asyncio.sleep(0)
        return value
    async def count_later(self, most):
        for number in range(most):
            yield number
    def _hidden(self):
        pass
    def close(self):
        note("close")
class Large:
    workers = 1
    def __call__(self, action, *arguments):
        return [uwsgi.mule_id(), action, *arguments]
NAME = "shop:Model"
def answer(path):
    try:
        return repr(eval(path[1:].replace("%20", " ")))
    except mules.CallError as error:
        return f"{type(error).__name__}: {error}"
def of_loop(made):
    return asyncio.run(made)
async def listed(parts):
    return [part async for part in parts]
"""


@pytest.fixture
def shop(serve, tmp_path):
    def shop(*options, **more):
        return prepare(serve, tmp_path, "mule-app = shop:Model", *options, source=MODELS, **more)

    return shop


def test_a_method_is_called_in_a_mule_and_its_result_comes_back(shop, call):
    instance = shop("mules = 1")
    expected = {
        "mules.call(NAME,'add',1,2,times=3)": "9",
        "mules.call(NAME,'who')": "(1, 1)",
        "mules.call(NAME,'echo',None)": "None",
        "len(mules.call(NAME,'echo',bytes(3000000)))": "3000000",
        "list(mules.stream(NAME,'count',2))": "[0, 1]",
        "list(mules.stream(NAME,'count_later',2))": "[0, 1]",
        "mules.call(NAME,'later',5)": "5",
        "of_loop(mules.call_async(NAME,'add',4,5))": "9",
        "of_loop(listed(mules.stream_async(NAME,'count',2)))": "[0, 1]",
        "mules.call(NAME,'fail')": "AppError: no data",
        "list(mules.stream(NAME,'count',3))": "AppError: three",
        "of_loop(mules.call_async(NAME,'fail'))": "AppError: no data",
        "mules.call(NAME,'_hidden')": "AppError: there is no method '_hidden'",
        "mules.call(NAME,'absent')": "AppError: there is no method 'absent'",
        "mules.call('shop:Absent','x')": "UnknownAppError: no mule runs shop:Absent: write `mule-app = shop:Absent`",
    }
    for expression, value in expected.items():
        assert instance.get(f"/{expression}").text == value
    instance.wait_for_log("^mule 1: RuntimeError: no data")
    wait_until(lambda: helpers_of(call, instance)[0]["done"] >= len(expected) - 1, "its calls are counted")


def test_a_call_of_a_mule_that_dies_fails_at_once_and_the_next_one_is_answered(shop):
    instance = shop("mules = 1")
    instance.expects_alarms = True
    for died in ("mules.call(NAME,'die',timeout=600)", "of_loop(mules.call_async(NAME,'die',timeout=600))"):
        assert instance.get(f"/{died}").text == "MuleDiedError: the mule exited before shop:Model.die answered"
    assert instance.get("/mules.call(NAME,'add',1)").text == "1"


def test_a_call_has_its_time_and_the_answer_of_a_late_one_reaches_no_other_call(shop):
    instance = shop("mules = 1")
    # A mule that is still starting would take the first call too late.
    assert instance.get("/mules.call(NAME,'add',1)").text == "1"
    expected = "CallTimeoutError: shop:Model.wait has not answered within {} s"
    # In this time the mule has to take the call.
    assert instance.get("/mules.call(NAME,'wait',timeout=5)").text == expected.format(5)
    assert instance.get("/of_loop(mules.call_async(NAME,'wait',timeout=0.5))").text == expected.format(0.5)
    (instance.shop / "gate").touch()
    assert instance.get("/mules.call(NAME,'add',7)").text == "7"
    # The second call was given up before a mule took it.
    assert len(instance.notes("waits")) == 1


def test_a_reload_finishes_the_call_in_progress_and_later_calls_wait_for_the_next_mule(shop):
    instance = shop("mules = 1", "processes = 2")
    answers = []
    calls = [
        threading.Thread(target=lambda: answers.append(instance.get("/mules.call(NAME,'wait')").text)),
        threading.Thread(target=lambda: answers.append(instance.get("/mules.call(NAME,'wait'),mules.call(NAME,'who')[1]").text)),
    ]
    calls[0].start()
    (first,) = wait_for_notes(instance, "waits", 1)
    reload_by_command(instance)
    calls[1].start()
    (instance.shop / "gate").touch()
    for thread in calls:
        thread.join()
    assert sorted(answers) == ["'done'", "('done', 0)"]
    assert instance.notes("waits")[1] != first
    # It closes after its answer.
    wait_until(lambda: instance.notes("close") == [first], instance.words)


def test_apps_are_in_as_many_mules_as_they_say(shop):
    instance = shop("mules = 3", "mule-app = shop:Large", "mule-app = shop:Model:2")
    found = {instance.get("/mules.call('shop:Large','go',5)").text for _ in range(5)}
    assert found == {"[1, 'go', 5]"}
    wait_until(lambda: len(instance.notes("init")) == 3, instance.words)


def test_an_app_without_a_mule_or_without_a_class_is_an_error(call, tmp_path):
    for lines, words in {
        "mule-app = shop:Model": "there is no mule that waits for calls",
        "mules = 1\nmule-app = shop": "it is not a class in a module",
        "mules = 1\nmule-app = shop:Model:0": "`0` is not a number of mules",
    }.items():
        (tmp_path / "uwsgi.ini").write_text(f"[uwsgi]\nhttp = :0\nmodule = shop\n{lines}\n")
        status, said = call("check", "uwsgi.ini")
        assert status != 0
        assert words in said
