"""Ruby: applications of Rack 2 and 3 get every request, and every answer reaches its client."""

import json
import os
import re
import signal
import threading

import pytest
from plugin_support import RUBY, Applications
from support import uwsgi
from support.client import Closed
from support.files import assert_same, pattern
from support.http2 import Both
from support.tls import context_of
from support.waiting import wait_until

LARGE = pattern(5 << 20)
MIDDLE = pattern(200_000)

#: The pages of the server that tests share. `EVENTS` is what bodies and callbacks note.
PAGES = r"""
require 'json'
require 'timeout'
EVENTS = []
class Noted
  def initialize(name, parts, &block) @name, @parts, @block = name, parts, block end
  def each(&block) @parts.each(&block); @block&.call end
  def close() EVENTS << "closed #{@name}" end
end
class NotedArray < Array
  def close() EVENTS << "closed array" end
end
class NotedFile < Noted
  def to_path() @name end
end
class Buffered < Noted
  def to_ary() raise 'a body that is closed by each and close' end
end
class Called
  def initialize(&block) @block = block end
  def call(stream) @block.call(stream) end
  def close() EVENTS << 'closed called' end
end
page('/events') { |env| text = EVENTS.join("\n"); EVENTS.clear; plain(text) }
page('/env') do |env|
  plain(env.select { |_, value| [String, Integer, true, false, Array].any? { |kind| kind === value } }.to_json)
end
page('/kinds') { |env| plain(%w[rack.input rack.errors rack.hijack].map { |name| env[name].nil? }.inspect) }
page('/keys') { |env| plain(env.keys.all? { |key| key.frozen? && key.encoding == Encoding::UTF_8 } && !env.frozen?) }
page('/echo') { |env| plain(env['rack.input'].read) }
page('/echo-parts') do |env|
  parts = []
  while part = env['rack.input'].read(65536) do parts << part end
  plain(parts.join)
end
page('/echo-lines') { |env| lines = []; env['rack.input'].each { |line| lines << line }; plain(lines.join) }
page('/lines') { |env| input = env['rack.input']; plain([input.gets, input.gets, input.gets, input.gets].to_json) }
raw('/reads') do |env|
  input, buffer = env['rack.input'], +'old'
  values = [input.read(2), input.read(0), input.read(3, buffer).dup, buffer.dup, input.read(nil), input.read, input.read(1)]
  input.read(1, buffer)
  input.rewind
  plain((values << buffer << input.read(100) << input.read.encoding.to_s).to_json)
end
raw('/sizes') do |env|
  input = env['rack.input']
  input.read(1)
  plain([input.size, input.pos, input.eof?, input.external_encoding.to_s, (input.read(-1) rescue $!.class)].to_json)
end
raw('/keep') { |env| $kept = env['rack.input']; plain('kept') }
raw('/late') { |env| plain((($kept.read rescue $!.class.to_s + ': ' + $!.message))) }

page('/each') { |env| [200, PLAIN.dup, Noted.new('each', %w[one two three])] }
page('/empty-each') { |env| [200, PLAIN.dup, Noted.new('empty', [])] }
raw('/plain-array') { |env| plain('Hello from Ruby') }
raw('/array') { |env| [200, PLAIN.dup, NotedArray.new(%w[one two three])] }
raw('/buffered') { |env| [200, PLAIN.dup, Buffered.new('buffered', %w[one two three])] }
raw('/no-parts') { |env| [200, PLAIN.dup, []] }
raw('/file') { |env| [200, PLAIN.dup, NotedFile.new(File.expand_path('large.bin'), [])] }
raw('/file-missing') { |env| [200, PLAIN.dup, NotedFile.new('/does/not/exist', ['its parts'])] }
raw('/file-directory') { |env| [200, PLAIN.dup, NotedFile.new('/', ['its parts'])] }
raw('/called') do |env|
  [200, PLAIN.dup, Called.new { |stream| stream << 'one' << ' '; stream.write('two', ' ', 3); stream.flush; stream.close }]
end
raw('/called-echo') { |env| [200, PLAIN.dup, proc { |stream| stream.write(stream.read); stream.close }] }
raw('/called-closed') do |env|
  [200, PLAIN.dup, proc do |stream|
    stream.close
    EVENTS << stream.closed?.to_s << (stream.write('late') rescue $!.class.to_s)
    $stream = stream
  end]
end
raw('/stream-late') { |env| plain(($stream.write('late') rescue $!.message)) }
raw('/stream-thread') do |env|
  [200, PLAIN.dup, proc do |stream|
    stream.write(Thread.new { stream.write('x') rescue $!.message }.value)
  end]
end
page('/hijack-part') do |env|
  [200, PLAIN.merge('rack.hijack' => proc { |io| io.write('by a partial hijack'); io.flush; io.close }), []]
end
raw('/finished') do |env|
  env['rack.response_finished'] << proc do |same, status, headers, error|
    EVENTS << "1 #{same.equal?(env)} #{status} #{headers} #{error.inspect}"
  end
  env['rack.response_finished'] << proc { EVENTS << '2'; raise 'an error of a callback' }
  env['rack.after_reply'] << proc { EVENTS << 'replied' }
  raise 'failed early' if env['QUERY_STRING'] == 'raise'
  [201, {'x-a' => 'b'}, Noted.new('body', ['text'])]
end
page('/hints') { |env| plain(env['rack.early_hints'].inspect) }
page('/headers') do |env|
  [200, {'Content-Type' => 'text/plain', 'set-cookie' => "a=1\nb=2", 'X-Number' => '5', 'x-LOWER' => 'kept'}, ['x']]
end
raw('/arrays') do |env|
  [200, {'set-cookie' => ['a=1', 'b=2'], 'x-number' => 5, 'x-nil' => nil, 'rack.private' => 'secret', :symbol => :value}, ['x']]
end
raw('/pairs') { |env| [200, [['x-a', '1'], ['x-a', '2']], ['x']] }
page('/length') { |env| [200, PLAIN.merge('content-length' => '3'), Noted.new('length', %w[a b c])] }
raw('/status') { |env| ['201', {}, ['x']] }
page('/204') { |env| [204, {}, Noted.new('204', [])] }
page('/304') { |env| [304, {}, Noted.new('304', [])] }
page('/head') { |env| [200, PLAIN.dup, Noted.new('head', []) { EVENTS << 'each was called' }] }
raw('/many') { |env| [200, PLAIN.dup, ['x' * 65536] * 320] }
page('/breaks') { |env| [200, PLAIN.dup, Noted.new('breaks', ['begun']) { raise 'broken in the middle' }] }
page('/endless') do |env|
  body = Enumerator.new { |parts| loop { parts << 'x' * 65536 } }
  body.define_singleton_method(:close) { EVENTS << 'closed endless' }
  [200, PLAIN.dup, body]
end
raw('/endless-array') { |env| [200, PLAIN.dup, NotedArray.new(['x' * 65536] * 1000)] }
raw('/endless-call') do |env|
  [200, PLAIN.dup, proc do |stream|
    loop { stream.write('x' * 65536) }
  rescue SystemCallError => error
    EVENTS << error.class.to_s
    raise
  end]
end
raw('/close-raises') do |env|
  body = ['closing']
  body.define_singleton_method(:close) { raise 'an error of close' }
  [200, PLAIN.dup, body]
end
page('/errors') do |env|
  env['rack.errors'].puts(['a line', 'two'])
  env['rack.errors'].write("written\n")
  env['rack.errors'].flush
  puts 'by puts'
  $stderr.puts 'by stderr'
  UWSGI.log('by uwsgi')
  plain('')
end
page('/uwsgi') { |env| plain("#{UWSGI.worker_id} #{UWSGI.respond_to?(:rpc)} #{(UWSGI.rpc rescue "#{$!.class} #{$!.message}")}") }
page('/thread') { |env| Thread.new { 3.times { sleep 0.01 }; EVENTS << 'the thread has run' }; plain('') }
AT_LOAD = `echo at load`
page('/at-load') { |env| plain(AT_LOAD) }
page('/pipe') { |env| plain(`yes 2>&1 | head -1`) }
page('/timeout') { |env| plain((Timeout.timeout(0.01) { sleep } rescue $!.class)) }
page('/commands') { |env| plain(`echo by a shell` + system('exit 3').inspect + $?.exitstatus.to_s) }
page('/fork') { |env| pid = fork { exit!(7) }; Process.wait(pid); plain($?.exitstatus) }
page('/fork-block') { |env| pid = fork { puts 'in the child'; exit 3 }; Process.wait(pid); plain($?.exitstatus) }
page('/fork-returns') do |env|
  pid = fork
  next plain("the child") unless pid
  Process.wait(pid)
  plain("the parent of #{$?.exitstatus}")
end
page('/fork-raises') do |env|
  pid = fork
  raise 'in the child' unless pid
  Process.wait(pid)
  plain("the parent")
end
page('/encodings') { |env| plain([Encoding.default_external, __FILE__[/[^\/]*\z/], $0[/[^\/]*\z/]].join(' ')) }
page('/fiber') { |env| [200, PLAIN.dup, Noted.new('fiber', [Fiber.new { Fiber.yield 'in a fiber' }.resume])] }
page('/query') { |env| plain(Rack::Request.new(env).params['a']) }

WRONG = {
  'raises' => proc { raise 'it raises' },
  'cause' => proc { begin raise 'the first' rescue raise 'the second' end },
  'script' => proc { raise NotImplementedError, 'not made' },
  'load' => proc { require 'a/file/that/is/missing' },
  'memory' => proc { raise NoMemoryError, 'no more memory' },
  'interrupt' => proc { raise Interrupt, 'an interrupt' },
  'deep' => proc { def deeper() deeper + 1 end; deeper },
  'throw' => proc { throw :away },
  'message' => proc { raise Class.new(StandardError) { def message() raise 'again' end } },
  'binary' => proc { raise "\xff and ü" },
  'nil' => proc { nil },
  'text' => proc { 'text' },
  'two' => proc { [200, {}] },
  'status' => proc { ['fine', {}, []] },
  'status-nil' => proc { [nil, {}, []] },
  'status-high' => proc { [12345, {}, []] },
  'headers' => proc { [200, 5, []] },
  'headers-nil' => proc { [200, nil, []] },
  'headers-pairs' => proc { [200, ['a'], []] },
  'header-break' => proc { [200, {'x-a' => "a\r\nx-b: b"}, []] },
  'header-name' => proc { [200, {"x a" => 'b'}, []] },
  'body' => proc { [200, {}, 5] },
  'body-nil' => proc { [200, {}, nil] },
  'body-text' => proc { [200, {}, 'a text'] },
  'part' => proc { [200, {}, [5]] },
  'part-each' => proc { [200, {}, Noted.new('part', [5])] },
  'each' => proc { [200, {}, Noted.new('raises', []) { raise 'it raises in each' }] },
  'call' => proc { [200, {}, proc { raise 'it raises in call' }] },
}
WRONG.each { |name, block| raw("/wrong/#{name}", &block) }
"""

#: What the log contains about each page that is wrong.
WRONG = {
    "raises": r"config\.ru:\d+:in .*: it raises \(RuntimeError\)",
    "cause": r"the second \(RuntimeError\)(?:\n    .*)*\ncaused by .*the first \(RuntimeError\)",
    "script": r"not made \(NotImplementedError\)",
    "load": r"cannot load such file -- a/file/that/is/missing \(LoadError\)",
    "memory": r"no more memory \(NoMemoryError\)",
    "interrupt": r"an interrupt \(Interrupt\)",
    "deep": r"stack level too deep \(SystemStackError\)(?:\n    from .*){19}\n    and \d+ more lines",
    "throw": r"uncaught throw :away \(UncaughtThrowError\)",
    "message": r"an error whose message raises another one",
    "binary": r"and ü \(RuntimeError\)",
    "nil": "the application returned a value of NilClass, and must return an array",
    "text": "the application returned a value of String, and must return an array",
    "two": "the application returned a value of Array, and must return an array of status, headers and body",
    "status": 'the status is "fine", and must be a number such as 200',
    "status-nil": "the status is nil, and must be a number such as 200",
    "status-high": "the status is 12345, and must be a number such as 200",
    "headers": "the headers are a value of Integer, and must be a hash",
    "headers-nil": "the headers are a value of NilClass, and must be a hash",
    "headers-pairs": "the headers must be pairs of a name and a value",
    "header-break": 'the header "x-a" is refused',
    "header-name": 'the header "x a" is refused',
    "body": "the body is a value of Integer, and must have the method `each` or `call`",
    "body-nil": "the body is a value of NilClass",
    "body-text": "the body is a value of String",
    "part": "a part of the body is a value of Integer, and must be a string",
    "part-each": "a part of the body is a value of Integer, and must be a string",
    "each": r"it raises in each \(RuntimeError\)",
    "call": r"it raises in call \(RuntimeError\)",
}


@pytest.fixture(scope="module")
def shared(serve_module, ruby_library):
    """A server that tests share which do not change it."""
    ruby = Applications(serve_module, ruby_library, RUBY)
    server = ruby.prepare(PAGES, "post-buffering = 10000\nlimit-post = 50000000\nmaster = true")
    (server.directory / "large.bin").write_bytes(LARGE)
    return server.start()


@pytest.fixture(autouse=True)
def no_old_events(request):
    """What earlier tests have noted is gone."""
    if "shared" in request.fixturenames:
        request.getfixturevalue("shared").get("/events")


def events(server):
    return server.get("/events").text.splitlines()


def test_an_array_is_the_whole_body_and_has_its_length(shared):
    response = shared.get("/plain-array")
    assert (response.status, response.text, response.get("content-length")) == (200, "Hello from Ruby", "15")
    response = shared.get("/array")
    assert (response.text, response.get("content-length")) == ("onetwothree", "11")
    assert shared.get("/no-parts").get("content-length") == "0"


def test_the_environment_has_what_rack_demands(shared):
    env = json.loads(shared.get("/env?a=%20b", headers=[("X-Thing", "value"), ("Content-Type", "text/x")]).text)
    expected = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/env",
        "QUERY_STRING": "a=%20b",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_X_THING": "value",
        "CONTENT_TYPE": "text/x",
        "rack.version": [1, 3],
        "rack.url_scheme": "http",
        "rack.multithread": False,
        "rack.multiprocess": False,
        "rack.run_once": False,
        "rack.hijack?": True,
    }
    assert {name: env.get(name) for name in expected} == expected
    assert env["SERVER_NAME"]
    assert env["SERVER_PORT"].isdigit()
    assert "HTTP_CONTENT_TYPE" not in env
    assert "CONTENT_TYPE" not in json.loads(shared.get("/env").text)
    assert shared.get("/kinds").text == "[false, false, false]"
    assert shared.get("/keys").text == "true"


@pytest.mark.parametrize("path", ["/echo", "/echo-parts", "/echo-lines"])
@pytest.mark.parametrize("body", [b"", b"short", MIDDLE, LARGE], ids=["empty", "short", "200kB", "5MB"])
def test_a_body_of_any_size_comes_and_goes(shared, path, body):
    response = shared.get(path, method="POST", body=body)
    assert response.status == 200
    assert_same(response.body, body)


@pytest.mark.parametrize("size", [0, 20_000], ids=["memory", "file"])
def test_gets_returns_lines_and_nil_at_the_end(shared, size):
    long = "x" * size
    response = shared.get("/lines", method="POST", body=f"{long}one\n\nlast".encode())
    assert json.loads(response.text) == [f"{long}one\n", "\n", "last", None]


def test_read_returns_parts_and_the_rest_and_nil_at_the_end(shared):
    values = json.loads(shared.get("/reads", method="POST", body=b"abcdefghij").text)
    assert values == ["ab", "", "cde", "cde", "fghij", "", None, "", "abcdefghij", "ASCII-8BIT"]


def test_the_input_has_its_size_and_position(shared):
    assert json.loads(shared.get("/sizes", method="POST", body=b"abc").text) == [3, 1, False, "ASCII-8BIT", "ArgumentError"]


def test_the_input_of_a_request_that_is_over_is_an_error(shared):
    assert shared.get("/keep", method="POST", body=b"secret").text == "kept"
    assert shared.get("/late").text == "IOError: the request is over, so its input can't be read any more"


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("/each", "onetwothree", "each"),
        ("/empty-each", "", "empty"),
        ("/array", "onetwothree", "array"),
        ("/buffered", "onetwothree", "buffered"),
        ("/file-missing", "its parts", "/does/not/exist"),
        ("/file-directory", "its parts", "/"),
        ("/called", "one two 3", "called"),
        ("/length", "abc", "length"),
    ],
)
def test_each_kind_of_body_arrives_and_is_closed_once(shared, path, text, name):
    response = shared.get(path)
    assert (response.status, response.text) == (200, text)
    assert events(shared) == [f"closed {name}"]


def test_a_body_with_a_path_is_sent_as_a_file_and_closed_once(shared):
    response = shared.get("/file")
    assert_same(response.body, LARGE)
    assert response.get("content-length") == str(len(LARGE))
    assert events(shared) == [f"closed {shared.directory}/large.bin"]


def test_a_called_body_reads_the_input_and_writes(shared):
    assert shared.get("/called-echo", method="POST", body=b"data").text == "data"


def test_a_stream_that_is_closed_or_over_refuses_more(shared):
    assert shared.get("/called-closed").status == 200
    assert events(shared) == ["true", "IOError"]
    assert shared.get("/stream-late").text == "the request is over"


def test_a_stream_belongs_to_the_thread_of_its_request(shared):
    assert shared.get("/stream-thread").text == "only the thread of the request may do this"


def test_the_parts_of_a_body_are_sent_when_they_are_made(ruby):
    pages = r"""
GATE = Queue.new
page('/') { |env| [200, PLAIN.dup, Enumerator.new { |parts| parts << 'first'; GATE.pop; parts << 'second' }] }
page('/open') { |env| GATE << 1; plain('') }
"""
    server = ruby(pages, "threads = 2")
    client = server.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_until(b"first")
    server.get("/open")
    client.read_until(b"second")


def test_head_and_statuses_without_a_body_close_it_without_sending(shared):
    response = shared.get("/plain-array", method="HEAD")
    assert (response.status, response.body, response.get("content-length")) == (200, b"", "15")
    assert shared.get("/head", method="HEAD").body == b""
    assert shared.get("/204").status == 204
    assert shared.get("/304").status == 304
    assert events(shared) == ["closed head", "closed 204", "closed 304"]


def test_headers_may_have_several_values_and_any_case(shared):
    response = shared.get("/headers")
    assert response.all("set-cookie") == ["a=1", "b=2"]
    assert (response.get("x-number"), response.get("x-lower")) == ("5", "kept")
    response = shared.get("/arrays")
    assert response.all("set-cookie") == ["a=1", "b=2"]
    assert (response.get("x-number"), response.get("symbol"), response.get("x-nil")) == ("5", "value", None)
    assert response.get("rack.private") is None
    assert shared.get("/pairs").all("x-a") == ["1", "2"]


def test_a_status_may_be_a_text(shared):
    assert shared.get("/status").status == 201


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_gets_500_with_a_reason_in_the_log_and_the_worker_lives(shared, name):
    worker = shared.worker()
    path = f"/wrong/{name}"
    if name in ("each", "part-each", "call"):
        shared.get(path)
    else:
        assert shared.get(path).status == 500
    shared.wait_for_log(rf"GET {path}[^\n]*: .*{WRONG[name]}")
    assert shared.worker() == worker
    assert shared.get("/").text == "Hello from Ruby"


def test_an_error_in_the_middle_of_a_body_breaks_the_answer_off_and_closes_it_once(shared):
    client = shared.connect()
    client.send(b"GET /breaks HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = client.read_to_end()
    assert b"begun" in received
    assert not received.endswith(b"0\r\n\r\n")
    shared.wait_for_log(r"GET /breaks[^\n]*: .*config.ru:\d+:in .*: broken in the middle \(RuntimeError\)")
    assert events(shared) == ["closed breaks"]


def test_an_error_of_close_is_logged_after_the_answer(shared):
    assert shared.get("/close-raises").text == "closing"
    shared.wait_for_log(r"GET /close-raises[^\n]*: .*an error of close \(RuntimeError\)")


@pytest.mark.parametrize("path", ["/endless", "/endless-array", "/endless-call"])
def test_a_client_that_leaves_closes_the_body_once(shared, path):
    client = shared.connect(receive_bytes=4096)
    client.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    client.read_exactly(1000)
    client.reset()
    seen = []
    wait_until(lambda: seen.extend(events(shared)) or seen, "the body is closed")
    expected = {"/endless": "closed endless", "/endless-array": "closed array", "/endless-call": "Errno::EPIPE"}
    assert seen == [expected[path]]
    assert events(shared) == []
    assert f"GET {path}: " not in shared.log_until_now()
    assert "Content-Length" not in shared.log_until_now()


def test_a_slow_reader_of_an_array_holds_no_thread_and_gets_all_of_it(shared):
    slow = shared.connect(receive_bytes=4096)
    slow.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    slow.read_exactly(1)
    for _ in range(3):
        assert shared.get("/").status == 200
    slow.close()
    fast = shared.connect(receive_bytes=65536)
    fast.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert shared.get("/").status == 200
    assert fast.read_response().body == b"x" * 320 * 65536


def test_a_suspended_answer_survives_collections(ruby):
    pages = r"""
raw('/many') { |env| [200, PLAIN.dup, (1..400).map { |number| number.to_s * 20000 }] }
page('/collect') { |env| GC.start; Array.new(10000) { |number| number.to_s * 3 }; plain('') }
"""
    pages += "page('/stress') { |env| GC.stress = env['QUERY_STRING'] == 'on'; GC.compact; plain('') }"
    server = ruby(pages)
    slow = server.connect(receive_bytes=65536)
    slow.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for _ in range(3):
        assert server.get("/collect").status == 200
    assert_same(slow.read_response().body, b"".join(str(number).encode() * 20000 for number in range(1, 401)))
    for query in ("on", "on", "off"):
        assert server.get(f"/stress?{query}").status == 200


def test_a_slow_reader_of_another_body_holds_one_thread_only(ruby):
    body = "Enumerator.new { |parts| 320.times { parts << 'x' * 65536 } }"
    server = ruby(f"page('/many') {{ |env| [200, PLAIN.dup, {body}] }}", "threads = 2")
    slow = server.connect(receive_bytes=4096)
    slow.send(b"GET /many HTTP/1.1\r\nHost: localhost\r\n\r\n")
    slow.read_exactly(1000)
    for _ in range(3):
        assert server.get("/").status == 200
    slow.close()


def test_a_hijacked_connection_is_a_socket_of_the_application(ruby):
    pages = r"""
page('/hijack') do |env|
  io = env['rack.hijack'].call
  io.write("HTTP/1.1 299 Hijacked\r\n\r\n#{io.class}|#{env['rack.hijack_io'].class}|")
  Thread.new { while line = io.gets do io.write("echo #{line}") end; io.close }
  body = []
  body.define_singleton_method(:close) { puts 'closed it' }
  [200, {'content-type' => 'text/plain'}, body]
end
raw('/twice') do |env|
  io = env['rack.hijack'].call
  io.write([env['rack.hijack_io'].equal?(io), env['rack.hijack'].call.equal?(io)].inspect)
  io.close
  [-1, {}, []]
end
"""
    server = ruby(pages, "threads = 2")
    client = server.connect()
    client.send(b"GET /hijack HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"HTTP/1.1 299 Hijacked" in client.read_until(b"TCPSocket|Rack::Lint::HijackWrapper|")
    client.send(b"one\n")
    client.read_until(b"echo one\n")
    assert server.get("/").status == 200
    client.send(b"two\n")
    client.read_until(b"echo two\n")
    client.close()
    server.wait_for_text("closed it\n")
    client = server.connect()
    client.send(b"GET /twice HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.read_to_end() == b"[true, true]"
    assert "LintError" not in server.log_until_now()


def test_a_partial_hijack_gets_the_stream_after_the_head(shared):
    response = shared.get("/hijack-part")
    assert (response.text, response.get("rack.hijack")) == ("by a partial hijack", None)


def test_callbacks_run_after_the_answer(shared):
    assert shared.get("/finished").status == 201
    seen = []
    wait_until(lambda: seen.extend(events(shared)) or "replied" in seen, "the callbacks")
    assert seen == ["closed body", "2", '1 true 201 {"x-a"=>"b"} nil', "replied"]
    shared.wait_for_text("an error of a callback (RuntimeError)")


def test_callbacks_get_the_error_of_a_request_that_failed(shared):
    assert shared.get("/finished?raise").status == 500
    seen = []
    wait_until(lambda: seen.extend(events(shared)) or "replied" in seen, "the callbacks")
    assert seen == ["2", "1 true   #<RuntimeError: failed early>", "replied"]


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_early_hints_come_before_an_answer_of_http2(serve, ruby_library, tmp_path, way):
    (tmp_path / "config.ru").write_text(
        "run lambda { |env| env['rack.early_hints'].call('link' => ['</a.css>; rel=preload', '</b.js>; rel=preload'])\n"
        "[200, {}, ['after the hints']] }\n"
    )
    both = Both(serve, tmp_path, f"plugin = {ruby_library}\nrack = {tmp_path}/config.ru")
    answer = both.connect(way).request("GET", "/")
    assert answer.text == "after the hints"
    links = [("link", "</a.css>; rel=preload"), ("link", "</b.js>; rel=preload")]
    assert [(status, sorted(fields)) for status, fields in answer.interim] == [(103, links)]


def test_clients_of_http1_do_not_get_early_hints(shared):
    # Many of them take the first response for the answer (RFC 8297 section 3).
    assert shared.get("/hints").text == "nil"


def test_what_the_application_prints_is_in_the_log(shared):
    shared.get("/errors")
    for line in ("a line\n", "two\n", "written\n", "by puts\n", "by stderr\n", "by uwsgi\n"):
        shared.wait_for_text(line)


def test_the_module_uwsgi_names_what_it_lacks(shared):
    assert shared.get("/uwsgi").text == "1 false NoMethodError UWSGI.rpc is not supported with Ruby"


def test_threads_of_the_application_go_on_while_the_worker_waits(ruby, tmp_path):
    server = ruby(f"page('/t') {{ |env| Thread.new {{ sleep 0.01; File.write('{tmp_path}/mark', '1') }}; plain('') }}")
    assert server.get("/t").status == 200
    wait_until((tmp_path / "mark").exists, "the thread has run")


def test_commands_run_and_their_status_is_known(shared):
    assert shared.get("/commands").text == "by a shell\nfalse3"
    assert shared.get("/at-load").text == "at load\n"
    # SIGPIPE kills a command as in a shell, so that it does not complain.
    assert shared.get("/pipe").text == "y\n"


def test_a_timeout_of_the_application_interrupts_its_wait(shared):
    assert shared.get("/timeout").text == "Timeout::Error"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/fork", "7"),
        ("/fork-block", "3"),
        ("/fork-returns", "the parent of 0"),
        ("/fork-raises", "the parent"),
    ],
)
def test_a_fork_of_the_application_does_not_answer(shared, path, text):
    client = shared.connect()
    for _ in range(2):
        assert client.request("GET", path).text == text
    assert client.request("GET", "/").text == "Hello from Ruby"


def test_exit_of_the_application_gets_500_and_replaces_the_worker(ruby):
    server = ruby("raw('/exit') { |env| exit }\nraw('/kill') { |env| Thread.current.kill }", "master = true\nprocesses = 1")
    server.expects_alarms = True
    for number, path in enumerate(["/exit", "/kill"], 1):
        before = server.workers()
        assert server.get(path).status == 500
        server.wait_for_log("the application called exit", number)
        wait_until(lambda before=before: not set(before) & set(server.workers()), "the worker has exited")
        assert server.get("/").text == "Hello from Ruby"


@pytest.mark.parametrize("path", ["/exit", "/kill"])
def test_the_end_of_one_of_several_threads_replaces_the_worker(ruby, path):
    # One thread is busy until the other one ends.
    pages = """
BEGUN, GATE = Queue.new, Queue.new
page('/busy') { |env| BEGUN << 1; GATE.pop; plain('busy') }
page('/begun') { |env| plain(BEGUN.pop) }
raw('/exit') { |env| GATE << 1; exit }
raw('/kill') { |env| GATE << 1; Thread.current.kill }
"""
    server = ruby(pages, "master = true\nthreads = 2")
    server.expects_alarms = True
    before = server.workers()
    busy = server.connect()
    busy.send(b"GET /busy HTTP/1.1\r\nHost: localhost\r\n\r\n")
    server.get("/begun")
    assert server.get(path).status == 500
    assert busy.read_response().text == "busy"
    wait_until(lambda: not set(before) & set(server.workers()), "the worker has exited")
    assert server.get("/").text == "Hello from Ruby"


def test_an_error_that_a_thread_raises_in_an_idle_worker_is_logged(ruby, tmp_path):
    pages = f"MARK = '{tmp_path}/mark'\n"
    pages += """
page('/pid') { |env| plain($$) }
page('/stray') do |env|
  Thread.new { sleep 0.005 until File.exist?(MARK); Thread.main.raise 'a stray error' }
  plain($$)
end
"""
    server = ruby(pages)
    worker = server.get("/stray").text
    (tmp_path / "mark").touch()
    server.wait_for_text("a stray error (RuntimeError)")
    assert server.get("/pid").text == worker


def test_a_hijacked_connection_of_tls_is_a_socket_too(serve, ruby_library, tmp_path):
    (tmp_path / "config.ru").write_text(
        "run lambda { |env| io = env['rack.hijack'].call; io.write(io.class.to_s); io.close; [-1, {}, []] }\n"
    )
    both = Both(serve, tmp_path, f"plugin = {ruby_library}\nrack = {tmp_path}/config.ru\nthreads = 2")
    client = both.server.connect(both.server.address("https"))
    client.socket = context_of(both.authority).wrap_socket(client.socket, server_hostname="localhost")
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.read_to_end() == b"UNIXSocket"


def test_two_threads_run_two_requests_that_wait_for_each_other(ruby):
    pages = r"""
LEFT, RIGHT = Queue.new, Queue.new
page('/left') { |env| LEFT << 'from the left'; plain(RIGHT.pop) }
page('/right') { |env| RIGHT << 'from the right'; plain(LEFT.pop) }
page('/is') { |env| plain(env['rack.multithread']) }
"""
    server = ruby(pages, "threads = 2")
    texts = {}
    threads = [threading.Thread(target=lambda p=p: texts.update({p: server.get(p).text})) for p in ("/left", "/right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {"/left": "from the right", "/right": "from the left"}
    assert server.get("/is").text == "true"


def test_at_exit_runs_in_a_worker_that_stops_and_postfork_in_one_that_starts(ruby):
    pages = r"""
at_exit { puts "at exit of #{UWSGI.worker_id}" }
UWSGI.atexit { puts 'by uwsgi' }
require 'uwsgidsl'
UWSGI.postfork { $forked = "forked #{UWSGI.worker_id}" }
postfork { $forked += ", by uwsgidsl" }
def UWSGI.post_fork_hook() $forked += ", by its hook" end
page('/forked') { |env| plain($forked) }
"""
    server = ruby(pages, "master = true\nthreads = 2")
    assert server.get("/forked").text == "forked 1, by uwsgidsl, by its hook"
    server.stop()
    assert "at exit of 1\n" in server.whole_log()
    assert "by uwsgi\n" in server.whole_log()


def test_an_error_of_postfork_is_named(ruby):
    server = ruby.prepare("UWSGI.postfork { raise 'not this time' }", "master = true\nneed-app = true")
    server.expects_alarms = True
    server.launch()
    server.wait_for_log(r"worker 1 can't be set up: .*config\.ru:\d+: not this time \(RuntimeError\)")


def test_gc_freq_collects_after_requests(ruby):
    def collections(configuration):
        server = ruby("page('/count') { |env| plain(GC.stat(:major_gc_count)) }", configuration)
        counts = [int(server.get("/count").text) for _ in range(12)]
        return counts[-1] - counts[0]

    assert collections("rb-gc-freq = 1") >= 11
    assert collections("rb-gc-freq = 4") in range(2, 8)
    assert collections("") < 2


def test_require_and_lib_come_before_the_application(ruby):
    server = ruby.prepare(
        "page('/set') { |env| plain(\"#{SET} #{FROM_LIB}\") }",
        "rb-lib = lib\nrb-require = from_lib\nshared-rb-require = settings.rb",
    )
    (server.directory / "lib").mkdir()
    (server.directory / "lib" / "from_lib.rb").write_text("FROM_LIB = 'lib'\n")
    (server.directory / "settings.rb").write_text('SET = "set with #{FROM_LIB}"\n')
    server.start()
    assert server.get("/set").text == "set with lib lib"


def test_an_unknown_option_is_refused(ruby):
    server = ruby.prepare("", "rack-color = red")
    server.launch()
    server.wait_for_log("its options are rack, rb-require, rb-lib and rb-gc-freq")


def test_trap_runs_in_a_worker_that_waits(ruby, tmp_path):
    trap = f"Signal.trap('USR2') {{ File.write('{tmp_path}/mark', Process.pid.to_s) }}\n"
    server = ruby(trap + "page('/pid') { |env| plain($$) }")
    worker = int(server.get("/pid").text)
    os.kill(worker, signal.SIGUSR2)
    wait_until(lambda: (tmp_path / "mark").exists() and (tmp_path / "mark").read_text(), "the block of the signal")
    assert (tmp_path / "mark").read_text() == str(worker)
    assert server.get("/pid").text == str(worker)


def test_each_mount_has_its_application(ruby):
    server = ruby.prepare("", "mount = /x=other.ru\nmanage-script-name = 1")
    (server.directory / "other.ru").write_text(
        "require 'rack/lint'\nuse Rack::Lint\n"
        "run lambda { |env| [200, {'content-type' => 'text/plain'}, [env['SCRIPT_NAME'] + '|' + env['PATH_INFO']]] }\n"
    )
    server.start()
    assert server.get("/").text == "Hello from Ruby"
    assert server.get("/x/y").text == "/x|/y"


def test_a_file_of_ruby_defines_the_constant_of_its_name(ruby):
    server = ruby.prepare("", "mount = /x=my_app.rb\nmanage-script-name = 1")
    (server.directory / "my_app.rb").write_text("MyApp = lambda { |env| [200, {}, ['a constant']] }\n")
    server.start()
    assert server.get("/x").text == "a constant"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("run lambda {\n  |env| ) }\n", r"config\.ru:2: syntax error"),
        ("a = 1\nb = nil\nb.missing\n", r"config\.ru:3: undefined method `missing' for nil:NilClass \(NoMethodError\)"),
        ("require 'missing/file'\n", r"config\.ru:1: cannot load such file -- missing/file \(LoadError\)"),
        ("x = 1\n", r"missing run or map statement"),
        ("run 5\n", r"config\.ru must run an object with the method `call`, and runs a value of Integer"),
        ("exit 1\n", r"the application called exit"),
    ],
    ids=["syntax", "error", "require", "nothing", "value", "exit"],
)
def test_a_file_that_can_not_be_loaded_leaves_the_old_code_and_is_named_with_its_line(ruby, content, expected):
    server = ruby("", "master = true")
    (server.directory / "config.ru").write_text(content)
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(rf"can't be loaded: [^\n]*{expected}")
    assert server.get("/").text == "Hello from Ruby"


def test_a_file_that_is_missing_is_named(ruby):
    server = ruby.prepare("")
    (server.directory / "config.ru").unlink()
    server.launch()
    server.wait_for_log(r"can't be loaded: the file .*config\.ru does not exist")


def test_lazy_workers_load_the_application_themselves(ruby):
    pages = "LOADED = Process.pid\nUWSGI.postfork { $number = UWSGI.worker_id }\n"
    pages += "page('/own') { |env| plain(\"#{LOADED == $$} #{$number} #{env['rack.multiprocess']}\") }"
    server = ruby(pages, "lazy-apps = true\nprocesses = 2\nmaster = true")
    assert {server.get("/own").text for _ in range(8)} <= {"true 1 true", "true 2 true"}


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_http2_and_tls_serve_the_same(serve, ruby_library, tmp_path, way):
    (tmp_path / "config.ru").write_text(
        "require 'rack/lint'\nuse Rack::Lint\n"
        "run lambda { |env| [200, {'content-type' => 'text/plain'}, "
        "[[env['rack.url_scheme'], env['SERVER_PROTOCOL'], env['rack.input'].read].join(' ')]] }\n"
    )
    both = Both(serve, tmp_path, f"plugin = {ruby_library}\nrack = {tmp_path}/config.ru")
    answer = both.connect(way).request("POST", "/", body=b"data")
    scheme = "https" if way == "tls" else "http"
    assert answer.text in (f"{scheme} HTTP/2.0 data", f"{scheme} HTTP/2 data")


def test_the_uwsgi_protocol_serves_the_same(ruby):
    server = ruby("page('/echo') { |env| plain(env['rack.input'].read) }", listen=("socket = 127.0.0.1:0",))
    answer = uwsgi.ask(server.address("uwsgi"), "POST", "/echo", body=b"data")
    assert answer.body == b"data"


def test_harakiri_names_the_line_at_which_ruby_is_stuck(ruby):
    pages = r"""
def slow
  sleep # stuck asleep
end
raw('/asleep') { |env| slow }
raw('/busy') { |env| loop { 1 } } # stuck busy
"""
    server = ruby(pages, "harakiri = 1\nprocesses = 1\nmaster = true")
    server.expects_alarms = True
    text = (server.directory / "config.ru").read_text().splitlines()
    for count, (path, mark) in enumerate([("/asleep", "stuck asleep"), ("/busy", "stuck busy")], 1):
        line = next(number for number, content in enumerate(text, 1) if mark in content)
        with pytest.raises(Closed):
            server.get(path)
        server.wait_for_log(rf"Ruby is here: (?:.*\n)*?.*config\.ru:{line}:in ")
        server.wait_for_log("harakiri: killing worker", count)
        assert server.get("/").text == "Hello from Ruby"


def test_many_threads_and_processes_stream_at_the_same_time(ruby):
    pages = r"""
raw('/many') { |env| [200, PLAIN.dup, (1..500).map { |number| number.to_s * 1000 }] }
page('/each') { |env| [200, PLAIN.dup, Enumerator.new { |parts| (1..500).each { |number| parts << number.to_s * 1000 } }] }
"""
    server = ruby(pages, "processes = 2\nthreads = 3\nmaster = true")
    expected = b"".join(str(number).encode() * 1000 for number in range(1, 501))
    wrong = []

    def stream():
        for path in ["/many", "/each"] * 3:
            if server.get(path).body != expected or server.get("/").text != "Hello from Ruby":
                wrong.append(path)

    threads = [threading.Thread(target=stream) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not re.search(r"\[BUG\]|a bug of the plugin", server.log_until_now())


def test_rack_3_sends_one_value_for_a_text(ruby):
    # The rules of Rack 3 apply if its release does.
    pages = "raw('/lines') { |env| [200, {'x-a' => \"a\\nb\"}, []] }\nraw('/two') { |env| [200, {'x-a' => %w[a b]}, []] }"
    server = ruby.prepare(pages, "rb-require = pretend.rb")
    (server.directory / "pretend.rb").write_text("require 'rack'\ndef Rack.release() '3.1.0' end\n")
    server.start()
    assert server.get("/lines").status == 500
    server.wait_for_log('the header "x-a" is refused')
    assert server.get("/two").all("x-a") == ["a", "b"]


def test_a_change_of_a_required_file_reloads_the_application_with_develop(ruby):
    pages = "require_relative 'part'\npage('/part') { |env| plain(PART) }"
    server = ruby.prepare(pages, "develop = true")
    (server.directory / "part.rb").write_text("PART = 'old'\n")
    server.start()
    assert server.get("/part").text == "old"
    (server.directory / "part.rb").write_text("PART = 'new'\n")
    wait_until(lambda: server.get("/part").text == "new", "the new code")


@pytest.mark.parametrize("threads", [1, 3])
def test_what_the_first_request_makes_is_shared_by_the_workers(ruby, threads):
    pages = "COUNTS = [0]\npage('/count') { |env| plain(COUNTS[0] += 1) }\nat_exit { puts \"at exit of #{UWSGI.worker_id}\" }"
    server = ruby(pages, f"warmup = /count\nprocesses = 2\nthreads = {threads}\nmaster = true")
    assert server.get("/count").text == "2"
    assert "at exit of" not in server.log
    server.stop()
    assert "at exit of 1\n" in server.whole_log()


def test_a_generation_that_does_not_pass_its_probe_never_serves(ruby):
    pages = "page('/health') { |env| [File.exist?('sick') ? 503 : 200, PLAIN.dup, []] }\nSTARTED = File.exist?('sick')\n"
    pages += "page('/started') { |env| plain(STARTED) }"
    server = ruby(pages, "reload-probe = /health\nthreads = 2\nprocesses = 2\nmaster = true")
    (server.directory / "sick").touch()
    server.send_signal(signal.SIGHUP)
    server.wait_for_text("reload-probe: GET /health answered 503")
    assert server.get("/started").text == "false"
    (server.directory / "sick").unlink()
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(r"^bolide: ready: .* of generation 3 in")
