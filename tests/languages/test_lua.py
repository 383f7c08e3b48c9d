"""Lua: applications of WSAPI get every request, and every answer reaches its client."""

import re
import signal
import threading

import pytest
from plugin_support import LUA, Applications, bolide
from support import uwsgi
from support.client import Client, Closed
from support.files import assert_same, fill, pattern
from support.http2 import Both, Http2
from support.waiting import wait_until

LARGE = pattern(20 << 20)
MIDDLE = pattern(200_000)


#: The pages of the server that tests share.
PAGES = r"""
pages["/"] = function(env) return 200, plain, "Hello from Lua" end
pages["/wsapi"] = function(env)
    local function body()
        coroutine.yield("method " .. env.REQUEST_METHOD .. "\n")
        coroutine.yield("query " .. env.QUERY_STRING .. "\n")
    end
    return "202 Accepted", {["Content-Type"] = "text/plain", ["Set-Cookie"] = {"a=1", "b=2"}}, coroutine.wrap(body)
end
pages["/empty"] = function(env) return 204, {} end
pages["/number"] = function(env) return 200.0, {["Content-Length"] = 10 / 2}, parts{"12345"} end
pages["/echo"] = function(env) return 200, plain, env.input:read() end
pages["/echo-parts"] = function(env)
    return 200, plain, function()
        local part = env.input:read(65536)
        if part ~= "" then return part end
    end
end
pages["/reads"] = function(env)
    local input = env.input
    return 200, plain, table.concat({input:read(2), input:read("3"), input:read("*a"), input:read(), input:read(5)}, "|")
end
pages["/type"] = function(env) return 200, plain, "[" .. env.CONTENT_TYPE .. "]" end
pages["/many"] = function(env)
    local count, part = 0, string.rep("x", 65536)
    return 200, plain, function() count = count + 1 if count <= 320 then return part end end
end
pages["/breaks"] = function(env)
    return 200, plain, coroutine.wrap(function() coroutine.yield("begun") error("broken in the middle") end)
end
pages["/print"] = function(env) print("a line", 1, nil, true) env.error:write("an error", " of WSAPI\n") return 200, plain, "" end
pages["/io"] = function(env) io.write("by io.write\n") io.stderr:write("by io.stderr\n") return 200, plain, "" end
local kept
pages["/keep"] = function(env) kept = env.input return 200, plain, "kept" end
pages["/late"] = function(env) return 200, plain, kept:read() end
pages["/twice"] = function(env)
    local outer = coroutine.wrap(function()
        local inner = coroutine.wrap(function() coroutine.yield("in") end)
        coroutine.yield(inner()) coroutine.yield("out")
    end)
    return 200, plain, outer
end
pages["/caught"] = function(env)
    local is_fine, message = pcall(coroutine.wrap(function() error({code = 7}) end))
    local running = coroutine.create(function() coroutine.yield(1, 2) return 3 end)
    local _, one, two = coroutine.resume(running)
    local _, three = coroutine.resume(running)
    local again = coroutine.resume(running)
    return 200, plain, table.concat({tostring(is_fine), message.code, one, two, three, tostring(again)}, " ")
end
local wrong = {
    status = function() return nil, plain, "" end,
    ["status-text"] = function() return "fine", plain, "" end,
    ["status-float"] = function() return 200.5, plain, "" end,
    ["status-high"] = function() return 1e300, plain, "" end,
    ["status-nan"] = function() return 0/0, plain, "" end,
    headers = function() return 200, "text/plain", "" end,
    ["no-headers"] = function() return 200 end,
    ["header-name"] = function() return 200, {"text/plain"}, "" end,
    ["header-value"] = function() return 200, {["X-A"] = false}, "" end,
    ["header-values"] = function() return 200, {["X-A"] = {{}}}, "" end,
    ["header-break"] = function() return 200, {["X-A"] = "a\r\nX-B: b"}, "" end,
    body = function() return 200, plain, true end,
    ["body-number"] = function() return 200, plain, 12 end,
    ["body-table"] = function() return 200, plain, {} end,
    part = function() return 200, plain, parts{12} end,
    iterator = function() return 200, plain, function() error("it raises") end end,
    nothing = function() end,
    raises = function() error("it raises") end,
    ["raises-table"] = function() error({}) end,
    ["raises-nil"] = function() error(nil) end,
    ["raises-own"] = function() error(setmetatable({}, {__tostring = function() return "its own text" end})) end,
    ["raises-worse"] = function() error(setmetatable({}, {__tostring = function() error("again") end})) end,
    deep = function() local function deeper() return 1 + deeper() end return deeper() end,
    read = function(env) return 200, plain, env.input.read() end,
    ["read-format"] = function(env) return 200, plain, env.input:read("*x") end,
    ["read-negative"] = function(env) return 200, plain, env.input:read(-1) end,
    ["traceback"] = function(env) debug.traceback = nil error("it raises") end,
}
for name, page in pairs(wrong) do pages["/wrong/" .. name] = page end
"""


@pytest.fixture(scope="module")
def shared(serve_module, library):
    """A server that tests share which do not change it."""
    return Applications(serve_module, library, LUA)(PAGES, "post-buffering = 10000\nlimit-post = 50000000")


WRONG = {
    "status": "the status is a nil value",
    "status-text": 'the status "fine" is refused',
    "status-float": "the status",
    "status-high": "the status is a number value",
    "status-nan": "the status is a number value",
    "headers": "the headers are a string value",
    "no-headers": "the headers are a nil value",
    "header-name": "the name of a header is a number value",
    "header-value": 'the value of the header "X-A" is a boolean value',
    "header-values": 'the value of the header "X-A" is a table value',
    "header-break": 'the header "X-A" is refused',
    "body": "the body is a boolean value",
    "body-number": "the body is a number value",
    "body-table": "attempt to call a table value",
    "part": "a part of the body is a number value",
    "iterator": "it raises",
    "nothing": "the status is a nil value",
    "raises": "it raises",
    "raises-table": "the error is not a text, but a table value",
    "raises-nil": "the error is not a text, but a nil value",
    "raises-own": "its own text",
    "raises-worse": "",
    "deep": "stack overflow",
    "read": "bad argument",
    "read-format": 'a number of bytes or "*a" is expected',
    "read-negative": "a number of bytes is expected",
    "traceback": "it raises",
}


def test_a_text_is_the_whole_body_and_has_its_length(shared):
    response = shared.get("/")
    assert (response.status, response.text, response.get("content-length")) == (200, "Hello from Lua", "14")


def test_a_coroutine_is_a_body_and_a_header_may_have_several_values(shared):
    response = shared.get("/wsapi?a=b")
    assert (response.status, response.reason, response.text) == (202, "Accepted", "method GET\nquery a=b\n")
    assert response.all("set-cookie") == ["a=1", "b=2"]


def test_head_has_the_same_head_and_no_body(shared):
    response = shared.get("/", method="HEAD")
    assert (response.status, response.body, response.get("content-length")) == (200, b"", "14")
    assert shared.get("/many", method="HEAD").body == b""


def test_an_answer_may_have_no_body(shared):
    assert (shared.get("/empty").status, shared.get("/empty").body) == (204, b"")


def test_numbers_are_a_status_and_values_of_headers(shared):
    response = shared.get("/number")
    assert (response.status, response.get("content-length"), response.body) == (200, "5", b"12345")


@pytest.mark.parametrize("path", ["/echo", "/echo-parts"])
@pytest.mark.parametrize("body", [b"", b"short", MIDDLE, LARGE], ids=["empty", "short", "200kB", "20MB"])
def test_a_body_of_any_size_comes_and_goes(shared, path, body):
    response = shared.get(path, method="POST", body=body)
    assert response.status == 200
    assert_same(response.body, body)


def test_a_chunked_upload_is_read_as_any_other(shared):
    client = shared.connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (b"first ", b"second"):
        client.send(b"%x\r\n%s\r\n" % (len(part), part))
    client.send(b"0\r\n\r\n")
    assert client.read_response().body == b"first second"


def test_input_reads_numbers_of_bytes_and_the_rest_and_nothing_at_the_end(shared):
    assert shared.get("/reads", method="POST", body=b"abcdefghij").text == "ab|cde|fghij||"


def test_content_type_is_always_there_as_in_uwsgi(shared):
    assert shared.get("/type").text == "[]"
    assert shared.get("/type", headers=[("Content-Type", "text/x")]).text == "[text/x]"


@pytest.mark.parametrize("name", WRONG)
def test_garbage_is_500_with_a_traceback_in_the_log_and_the_worker_lives(shared, name):
    worker = shared.worker()
    assert shared.get(f"/wrong/{name}").status == 500
    assert re.search(rf"GET /wrong/{name}: .*{re.escape(WRONG[name])}", shared.log_until_now())
    assert shared.worker() == worker
    assert shared.get("/").text == "Hello from Lua"


def test_an_error_in_the_middle_of_a_body_breaks_the_answer_off(shared):
    client = shared.connect()
    client.send(b"GET /breaks HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = client.read_to_end()
    assert b"begun" in received
    assert not received.endswith(b"0\r\n\r\n")
    assert re.search(r"GET /breaks: app.lua:\d+: broken in the middle\nstack traceback:", shared.log_until_now())


def test_print_and_error_write_lines_into_the_log(shared):
    shared.get("/print")
    log = shared.log_until_now()
    assert "a line\t1\tnil\ttrue\n" in log
    assert "an error of WSAPI\n" in log


def test_what_io_writes_reaches_the_log_too(shared):
    shared.get("/io")
    shared.wait_for_text("by io.write\n")
    shared.wait_for_text("by io.stderr\n")


def test_the_input_of_a_request_that_is_over_is_an_error(shared):
    assert shared.get("/keep", method="POST", body=b"secret").text == "kept"
    assert shared.get("/late").status == 500
    assert "the request is over, so its input can't be read any more" in shared.log_until_now()


def test_coroutines_work_as_without_bolide(shared):
    assert shared.get("/twice").text == "inout"
    assert shared.get("/caught").text == "false 7 1 2 3 false"


def test_a_slow_reader_holds_no_thread(shared):
    slow = shared.connect(receive_bytes=4096)
    slow.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\n\r\n")
    slow.read_exactly(1000)
    for _ in range(3):
        assert shared.get("/").status == 200
    slow.close()


def test_a_slow_reader_gets_all_of_it(shared):
    slow = shared.connect(receive_bytes=4096)
    slow.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert shared.get("/").status == 200
    assert slow.read_response().body == b"x" * 320 * 65536


def test_threads_stream_and_answer_at_the_same_time(lua):
    pages = r"""
pages["/"] = function(env) return 200, plain, "fine" end
pages["/many"] = function(env)
    local count = 0
    return 200, plain, function() count = count + 1 if count <= 1000 then return string.rep(tostring(count), 1000) end end
end
"""
    server = lua(pages, "processes = 2\nthreads = 2")
    expected = b"".join(str(number).encode() * 1000 for number in range(1, 1001))
    wrong = []

    def stream():
        # Blocks the sender many times. Of a smaller buffer the kernel's probes of a closed window would determine the speed.
        with Client(server.address(), receive_bytes=65536) as client:
            for _ in range(5):
                if client.request("GET", "/many").body != expected or client.request("GET", "/").text != "fine":
                    wrong.append(1)

    threads = [threading.Thread(target=stream) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(server.workers()) == 2


def test_a_client_that_leaves_frees_its_answer(lua):
    # The iterator of an answer that was given up is garbage, which the next collection finds.
    pages = r"""
local freed = 0
local function noted()
    if newproxy then local proxy = newproxy(true) getmetatable(proxy).__gc = function() freed = freed + 1 end return proxy end
    return setmetatable({}, {__gc = function() freed = freed + 1 end})
end
pages["/endless"] = function(env)
    local held, part = noted(), string.rep("x", 100000)
    return 200, plain, function() return held and part end
end
pages["/freed"] = function(env) collectgarbage() collectgarbage() return 200, plain, tostring(freed) end
"""
    server = lua(pages)
    for count in range(1, 4):
        client = server.connect(receive_bytes=4096)
        client.send(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.read_exactly(1000)
        assert server.get("/freed").text == str(count - 1)
        client.reset()
        wait_until(lambda count=count: server.get("/freed").text == str(count), "the iterator is freed")


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_http2_and_tls_serve_the_same(serve, library, tmp_path, way):
    (tmp_path / "app.lua").write_text(
        "return function(env)\n"
        "    local body = env.input:read()\n"
        '    return 200, {["Content-Type"] = "text/plain"}, env.REQUEST_SCHEME .. " " .. env.SERVER_PROTOCOL .. " " .. body\n'
        "end\n"
    )
    both = Both(serve, tmp_path, f"plugin = {library}\nlua = {tmp_path}/app.lua")
    connection = both.connect(way)
    assert isinstance(connection, Http2)
    scheme = "https" if way == "tls" else "http"
    answer = connection.request("POST", "/", body=b"data")
    assert answer.text == f"{scheme} HTTP/2.0 data" or answer.text == f"{scheme} HTTP/2 data"


def test_files_and_routes_work_beside_it(lua, tmp_path):
    fill(tmp_path, {"files/a.txt": b"a file"})
    configuration = f"static-map = /files={tmp_path}/files\nroute = ^/gone$ return:410\nroute = ^/old$ rewrite:/new"
    server = lua('pages["/new"] = function(env) return 200, plain, env.PATH_INFO end', configuration)
    assert server.get("/files/a.txt").text == "a file"
    assert server.get("/gone").status == 410
    assert server.get("/old").text == "/new"


def test_each_mount_has_its_application(lua):
    server = lua.prepare(
        'pages["/"] = function(env) return 200, plain, "main" end', "mount = /x=other.lua\nmanage-script-name = 1"
    )
    other = 'return {run = function(env) return 200, {}, "other [" .. env.SCRIPT_NAME .. "] [" .. env.PATH_INFO .. "]" end}\n'
    (server.directory / "other.lua").write_text(other)
    server.start()
    assert server.get("/").text == "main"
    assert server.get("/x/y").text == "other [/x] [/y]"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("local a = 1\nreturn function( do\n", r"app\.lua:2: "),
        ("local a\nlocal b\nreturn a.b.c\n", r"app\.lua:3: attempt to index"),
        ("return 5\n", r"app\.lua must return a function.* it returns a number value"),
    ],
    ids=["syntax", "error", "value"],
)
def test_a_file_that_can_not_be_loaded_leaves_the_old_code_and_is_named_with_its_line(lua, content, expected):
    server = lua('pages["/"] = function(env) return 200, plain, "old" end')
    (server.directory / "app.lua").write_text(content)
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(expected)
    assert server.get("/").text == "old"


def test_a_worker_that_replaces_another_has_the_code_of_its_generation(lua):
    # All threads run what the prototype has loaded, also if the file has changed since.
    server = lua(
        'pages["/"] = function(env) return 200, plain, "old" end',
        "threads = 2\nmax-requests = 5\nmin-worker-lifetime = 0\nmaster = 1",
    )
    lua.write(server, 'pages["/"] = function(env) return 200, plain, "new" end')
    before = server.workers()
    while set(before) & set(server.workers()):
        assert server.get("/").text == "old"
    assert {server.get("/").text for _ in range(4)} == {"old"}


def test_harakiri_names_the_line_at_which_lua_is_stuck(lua):
    pages = r"""
pages["/stuck"] = function(env)
    local count = 0
    while true do count = count + 1 end -- stuck here
end
pages["/stuck-in-a-coroutine"] = function(env)
    return 200, plain, coroutine.wrap(function()
        coroutine.yield("begun")
        while true do local nothing = 1 end -- stuck in a coroutine
    end)
end
pages["/"] = function(env) return 200, plain, "fine" end
"""
    server = lua(pages, "harakiri = 1\nprocesses = 1\nmaster = 1")
    server.expects_alarms = True
    text = (server.directory / "app.lua").read_text().splitlines()
    for count, (path, mark) in enumerate([("/stuck", "stuck here"), ("/stuck-in-a-coroutine", "stuck in a coroutine")], 1):
        line = next(number for number, content in enumerate(text, 1) if mark in content)
        with pytest.raises(Closed):
            server.get(path)
        server.wait_for_log(rf"Lua is here:\nstack traceback:\n(?:.*\n)*?\tapp\.lua:{line}: ")
        server.wait_for_log("harakiri: killing worker", count)
        assert server.get("/").text == "fine"


def test_a_file_of_lua_load_runs_before_the_application(lua):
    server = lua.prepare(
        'local early = setting pages["/"] = function(env) return 200, plain, early end', "lua-load = settings.lua"
    )
    (server.directory / "settings.lua").write_text('setting = "set before"\n')
    server.start()
    assert server.get("/").text == "set before"


def test_a_full_collection_after_each_request_frees_what_it_has_used(lua):
    pages = r"""
local freed = 0
pages["/"] = function(env)
    setmetatable({}, {__gc = function() freed = freed + 1 end})
    return 200, plain, tostring(freed)
end
"""
    server = lua(pages, "lua-gc-freq = 1")
    client = server.connect()
    assert [client.request("GET", "/").text for _ in range(4)] == ["0", "1", "2", "3"]


def test_a_request_of_the_uwsgi_protocol_is_served(lua):
    server = lua(
        'pages["/p"] = function(env) return 200, plain, env.REQUEST_METHOD .. env.input:read() end',
        listen=("uwsgi-socket = 127.0.0.1:0",),
    )
    answer = uwsgi.ask(server.address("uwsgi"), "POST", "/p", b"data")
    assert (answer.status, answer.body) == (200, b"POSTdata")


def test_check_and_status_know_it(lua):
    server = lua('pages["/"] = function(env) return 200, plain, "fine" end', "stats = {directory}/stats")
    assert bolide("check", server.ini, cwd=server.directory).returncode == 0
    server.get("/")
    status = bolide("status", server.ini, cwd=server.directory)
    assert status.returncode == 0, status.stderr
    assert "1 worker" in status.stdout or "worker 1" in status.stdout, status.stdout


def test_the_prototype_makes_a_state_for_each_thread_of_a_worker(lua):
    server = lua('print("a state is made") pages["/"] = function(env) return 200, plain, "" end', "threads = 3\nprocesses = 2")
    assert server.log.count("a state is made\n") == 3
