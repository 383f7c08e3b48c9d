"""The JSON log: one object an event, with a level and the fields that docs/json-logging.md lists."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.client import Client, Closed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json-logging.md"

SHOP = """\
import logging, sys, time
import bolide
logger = logging.getLogger("shop")
logger.addHandler(bolide.LogHandler())
class Odd:
    def __repr__(self):
        raise RuntimeError
def price(item):
    return item["price"]
def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/boom":
        try:
            price({})
        except KeyError as error:
            raise ValueError("first line\\nsecond \\udcff") from error
    if path == "/stuck":
        time.sleep(300)
    if path == "/slow":
        time.sleep(0.02)
    if path == "/record":
        try:
            price({})
        except KeyError:
            logger.exception("no %s", "price", extra={"item": 7, "odd": Odd(), "nan": float("nan")})
    environ["wsgi.errors"].write("said\\n")
    print("printed\\n\\x1e{forged", flush=True)
    start_response("500 Broken" if path == "/500" else "404 Missing" if path == "/404" else "200 OK", [("Content-Length", "0")])
    return []
"""

STALLS = """\
import asyncio, os, time
async def application(scope, receive, send):
    # A function in Python would be the top of the stack.
    while scope["path"] == "/block" and not os.access("go", os.F_OK):
        time.sleep(0.01)
    if scope["path"] == "/boom":
        raise ExceptionGroup("both", [KeyError("x")]) if "ExceptionGroup" in vars(__builtins__) else KeyError("x")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
"""

KINDS = {"text": str, "number": (int, float), "list": list, "object": dict, "boolean": bool}


@pytest.fixture
def serve(start, tmp_path):
    def serve(text, *arguments):
        (tmp_path / "shop.py").write_text(text)
        instance = start("--log-json", "--pythonpath", tmp_path, *arguments, module="shop", logging=True, ready=False)
        instance.wait_for(lambda: '"message":"ready: ' in instance.log, "it is ready")
        instance.json_port = int(re.search(r'"message":"listening on http://127\.0\.0\.1:(\d+)', instance.log)[1])
        return instance

    return serve


def ask(instance, target):
    with Client(("127.0.0.1", instance.json_port)) as client:
        return client.request("GET", target, [("Connection", "close")])


def objects(instance):
    """Returns the objects of the log so far; each line is one."""
    return [json.loads(line) for line in instance.log.splitlines(keepends=True) if line.endswith("\n")]


def wait_for_object(instance, **wanted):
    def found():
        return next((one for one in objects(instance) if all(one.get(name) == value for name, value in wanted.items())), None)

    instance.wait_for(lambda: found() is not None, f"an object with {wanted}")
    return found()


def documented():
    """Returns the rows of the page's table."""
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \| (\w+) \| (always|sometimes) \|", PAGE.read_text(), re.MULTILINE)
    return [(kind, name, KINDS[value], present == "always") for kind, name, value, present in rows]


def check_schema(found):
    rows = documented()
    kinds = {kind for kind, *_ in rows} | {"output"}
    for one in found:
        assert one["type"] in kinds, one
        own = {name: (value, always) for kind, name, value, always in rows if kind in ("all", one["type"])}
        assert set(one) <= set(own), one
        assert all(name in one for name, (_, always) in own.items() if always), one
        assert all(isinstance(one[name], own[name][0]) for name in one), one


def test_an_exception_is_one_object_with_its_stack_its_causes_and_its_request(serve):
    instance = serve(SHOP)
    ask(instance, "/boom?q=1")
    told = wait_for_object(instance, type="exception")
    assert (told["level"], told["worker"]) == ("error", 1)
    identifier = wait_for_object(instance, type="request", uri="/boom?q=1")["request_id"]
    assert told["request"] == {"method": "GET", "target": "/boom?q=1", "id": identifier}
    assert told["message"].startswith("an exception in GET /boom?q=1: ValueError: first line\nsecond ")
    exception = told["exception"]
    assert exception["type"] == "ValueError"
    frame = exception["stack"][-1]
    assert frame["file"].endswith("shop.py")
    assert frame["function"] == "application"
    assert frame["code"].startswith("raise ValueError")
    (cause,) = exception["further"]
    assert (cause["relation"], cause["type"], cause["message"]) == ("cause", "KeyError", "'price'")
    assert [frame["function"] for frame in cause["stack"]] == ["application", "price"]
    assert wait_for_object(instance, type="request", uri="/boom?q=1")["level"] == "error"
    assert not [one for one in objects(instance) if "Traceback" in one["message"]]


def test_every_object_has_the_fields_of_the_page_and_no_other(serve):
    instance = serve(SHOP, "--harakiri", "5", "--threads", "2", "--log-slow", "10")
    for target in ("/slow", "/404", "/500", "/record", "/boom"):
        ask(instance, target)
    with pytest.raises(Closed):
        ask(instance, "/stuck")
    stack = wait_for_object(instance, type="stack")
    assert (stack["level"], stack["worker"]) == ("error", 1)
    assert "serves GET /stuck" in stack["message"]
    assert stack["stack"][0]["function"] == "application"
    assert stack["stack"][0]["file"].endswith("shop.py")
    wait_for_object(instance, type="message", level="error")
    instance.finish()
    found = objects(instance)
    check_schema(found)
    assert {one["type"] for one in found} == {"message", "output", "log", "request", "exception", "stack"}
    levels = {one["uri"]: one["level"] for one in found if one["type"] == "request"}
    assert [levels[target] for target in ("/slow", "/500", "/boom")] == ["warning", "error", "error"]
    assert levels["/404"] in ("info", "warning")
    (record,) = [one for one in found if one["type"] == "log"]
    assert (record["level"], record["message"], record["logger"]) == ("error", "no price", "shop")
    assert record["fields"] == {"item": 7, "odd": "<Odd>", "nan": "nan"}
    assert record["exception"]["type"] == "KeyError"
    said = [one for one in found if one["message"] == "said"]
    assert {(one["type"], one["worker"]) for one in said} == {("output", 1)}
    assert [one for one in found if one["message"] == "\x1e{forged" and one["type"] == "output"]


def test_a_blocked_event_loop_is_one_object_with_its_stack_and_one_with_its_tasks(serve, tmp_path):
    instance = serve(STALLS, "--loop-stall", "0.1", "--threads", "1")

    def stack_of_the_application():
        # On a busy machine the loop may be late elsewhere too.
        stacks = [one for one in objects(instance) if one["type"] == "stack" and one["stack"]]
        return next((one for one in stacks if one["stack"][0]["function"] == "application"), None)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, instance, "/block")
        try:
            stack = instance.wait_for(stack_of_the_application, "the stack of the application")
        finally:
            (tmp_path / "go").touch()
        assert asking.result().status == 200
    assert "the event loop has been blocked for" in stack["message"]
    assert (stack["level"], stack["worker"]) == ("warning", 1)
    instance.wait_for(lambda: "the event loop runs again" in instance.log, "the loop turns")
    ask(instance, "/boom")
    told = wait_for_object(instance, type="exception")
    identifier = wait_for_object(instance, type="request", uri="/boom")["request_id"]
    assert told["request"] == {"method": "GET", "target": "/boom", "id": identifier}
    tasks = [one for one in objects(instance) if "tasks wait for the event loop" in one["message"]]
    assert any("File" in "".join(one["lines"]) for one in tasks), tasks
    check_schema(objects(instance))


def test_lines_of_a_worker_have_the_time_of_its_masters_lines_and_tracebacks_one_in_their_first_line(start):
    instance = start()
    instance.get("/exception")
    instance.wait_for_log(r"^worker 1: \w+Error")
    text = instance.raw_log
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d bolide: worker 1: an exception in GET /exception$", text, re.MULTILINE), (
        text
    )
    assert re.search(r"^worker 1: Traceback", text, re.MULTILINE), text
