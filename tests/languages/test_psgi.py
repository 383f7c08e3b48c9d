"""PSGI: applications in Perl get every request, and every answer reaches its client."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from plugin_support import PERL, Applications
from support import uwsgi
from support.client import Closed
from support.files import assert_same, pattern
from support.http2 import Both, Http2
from support.waiting import wait_until

LARGE = pattern(3 << 20)
MIDDLE = pattern(200_000)
SUITE = Path(__file__).with_name("plack_suite.pl")

#: The pages of the server that tests share.
PAGES = r"""
$pages{'/'} = sub { text('Hello from Perl') };
$pages{'/env'} = sub {
    my $env = shift;
    my $name = $env->{QUERY_STRING};
    my $value = exists $env->{$name} ? $env->{$name} : 'missing';
    return text(ref $value eq 'ARRAY' ? "[@$value]" : ref $value || $value);
};
$pages{'/names'} = sub { my $env = shift; text(join "\n", sort keys %$env) };
$pages{'/change'} = sub {
    my $env = shift;
    $env->{'psgi.url_scheme'} = 'changed';
    $env->{'psgi.streaming'} = 'changed';
    $env->{REQUEST_METHOD} = 'changed';
    push @{$env->{'psgix.cleanup.handlers'}}, sub { };
    text('changed');
};
$pages{'/status'} = sub { [202, [@$plain, 'Set-Cookie' => 'a=1', 'Set-Cookie' => 'b=2'], ["one\n", "two\n"]] };
$pages{'/empty'} = sub { [204, [], []] };
$pages{'/unchanged'} = sub { [304, [], []] };
$pages{'/undefined'} = sub { [200, ['X-Undefined' => undef, @$plain], ['a', undef, 'b']] };
$pages{'/length'} = sub { [200, [@$plain, 'Content-Length' => 5], ['12345']] };
$pages{'/latin'} = sub { my $text = "\xe4\xf6"; utf8::upgrade($text); text($text) };
$pages{'/echo'} = sub {
    my $env = shift;
    my $body = '';
    1 while $env->{'psgi.input'}->read($body, 65536, length $body);
    text($body);
};
$pages{'/read'} = sub {
    my $input = shift->{'psgi.input'};
    my ($first, $more, $rest, $after);
    read $input, $first, 3;
    $more = $first;
    my $count = read $input, $more, 2, 3;
    seek $input, 1, 0;
    $input->read($rest, 1000);
    my $end = read $input, $after, 10;
    text(join '|', $first, $more, $count, $rest, $end, eof $input ? 'eof' : 'more');
};
$pages{'/lines'} = sub {
    my $input = shift->{'psgi.input'};
    my $first = $input->getline;
    my $second = <$input>;
    my @rest = <$input>;
    my $after = $input->getline;
    text(join '|', $first, $second, scalar @rest, defined $after ? 'more' : 'end');
};
$pages{'/close-input'} = sub {
    my $input = shift->{'psgi.input'};
    close $input;
    text(defined readline $input ? 'data' : 'closed');
};
my $kept;
$pages{'/keep'} = sub { $kept = shift->{'psgi.input'}; text('kept') };
$pages{'/late'} = sub { no warnings; my $count = read $kept, my $data, 10; text($count ? "read $data" : 'nothing') };
$pages{'/file'} = sub { open my $file, '<', $0 or die; [200, $plain, $file] };
$pages{'/file-rest'} = sub { open my $file, '<', $0 or die; my $line = <$file>; [200, $plain, $file] };
$pages{'/file-range'} = sub { open my $file, '<', $0 or die; seek $file, 4, 0; [200, [@$plain, 'Content-Length' => 6], $file] };
$pages{'/file-layer'} = sub { open my $file, '<:crlf', "$0.crlf" or die; [200, $plain, $file] };
$pages{'/file-empty'} = sub { open my $file, '<', '/dev/null' or die; [200, $plain, $file] };
$pages{'/memory'} = sub { open my $file, '<', \"in memory" or die; [200, $plain, $file] };
$pages{'/pipe'} = sub { open my $pipe, '-|', 'echo', 'from a pipe' or die; [200, $plain, $pipe] };
my $closed = 0;
{
    package Parts;
    sub new { my ($class, @parts) = @_; bless {parts => \@parts}, $class }
    sub getline { my $part = shift @{$_[0]{parts}}; ref $part ? $part->() : $part }
    sub close { $closed++ }
}
$pages{'/object'} = sub { [200, $plain, Parts->new('a', '', 'b', 'c')] };
$pages{'/closed'} = sub { text($closed) };
$pages{'/separator'} = sub { [200, $plain, Parts->new(sub { ref $/ ? "parts of ${$/}" : "lines" })] };
$pages{'/many'} = sub { my $count = 0; [200, $plain, Parts->new((sub { 'x' x 65536 }) x 320)] };
$pages{'/many-array'} = sub { [200, $plain, [('y' x 65536) x 320]] };
$pages{'/breaks-late'} = sub { [200, $plain, Parts->new((sub { 'x' x 65536 }) x 320, sub { die "broken when resumed\n" })] };
$pages{'/delayed-exit'} = sub { sub { $_[0]->([200, $plain, ['delayed']]); exit } };
$pages{'/breaks'} = sub { [200, $plain, Parts->new('begun', sub { die "broken in the middle\n" })] };
$pages{'/delayed'} = sub { sub { my $respond = shift; $respond->([200, $plain, ['delayed']]) } };
$pages{'/delayed-late'} = sub { sub { $_[0]->([200, $plain, ['delayed']]); die "after the answer\n" } };
$pages{'/stream'} = sub { sub { my $w = $_[0]->([200, $plain]); $w->write($_) for 'a', 'b', undef, '', 'c'; $w->close } };
$pages{'/stream-open'} = sub { sub { my $writer = $_[0]->([200, $plain]); $writer->write('not closed') } };
$pages{'/stream-breaks'} = sub { sub { my $writer = $_[0]->([200, $plain]); $writer->write('begun'); die "broken stream\n" } };
$pages{'/stream-closed'} = sub { sub { my $w = $_[0]->([200, $plain]); $w->write('x'); $w->close; $w->write('y') } };
my ($writer, $responder);
$pages{'/stream-keep'} = sub { sub { $responder = shift; $writer = $responder->([200, $plain]); $writer->write('kept') } };
$pages{'/writer-late'} = sub { eval { $writer->write('late') }; text($@) };
$pages{'/responder-late'} = sub { eval { $responder->([200, $plain, []]) }; text($@) };
$pages{'/errors'} = sub {
    my $errors = shift->{'psgi.errors'};
    print $errors 'a part ', 'of a line';
    $errors->print(" and its end\n");
    printf $errors "%s-%d\n", 'formatted', 7;
    $errors->printf("%s\n", 'by a method');
    print $errors 'without an end';
    warn "a warning\n";
    text('');
};
$pages{'/print'} = sub { print "to standard output\n"; text('') };
$pages{'/logger'} = sub { shift->{'psgix.logger'}->({level => 'warn', message => 'a logged message'}); text('') };
$pages{'/hints'} = sub { shift->{'psgix.informational'}->(103, ['Link' => '</a.css>; rel=preload']); text('after hints') };
my @clean;
$pages{'/cleanup'} = sub {
    my $env = shift;
    push @{$env->{'psgix.cleanup.handlers'}},
        sub { push @clean, "first $_[0]{PATH_INFO}" }, sub { die "unclean\n" }, sub { push @clean, 'last' };
    text('clean');
};
$pages{'/cleaned'} = sub { text(join ',', @clean) };
$pages{'/fork-returns'} = sub {
    my $child = fork // die;
    return text('the child answers') unless $child;
    waitpid $child, 0;
    text("child $?");
};
$pages{'/fork-exits'} = sub { my $child = fork // die; exit 3 unless $child; waitpid $child, 0; text('child ' . ($? >> 8)) };
$pages{'/fork-dies'} = sub {
    my $child = fork // die;
    die "a child dies\n" unless $child;
    waitpid $child, 0;
    text('child ' . ($? >> 8));
};
$pages{'/system'} = sub { text(`echo by a shell`) };
$pages{'/eval'} = sub { eval { die "caught\n" }; text($@) };
$pages{'/uwsgi'} = sub { text(join '|', uwsgi::worker_id(), uwsgi::version(), eval { uwsgi::cache_get('a'); 1 } ? 'fine' : $@) };
$pages{'/log'} = sub { uwsgi::log('by uwsgi::log'); text('') };
$pages{'/alarm'} = sub { local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; eval { select undef, undef, undef, 60 }; text($@) };
my %wrong = (
    undef => sub { },
    text => sub { 'text' },
    hash => sub { {} },
    object => sub { bless {}, 'Thing' },
    short => sub { [200, $plain] },
    status => sub { ['fine', $plain, []] },
    'status-undef' => sub { [undef, $plain, []] },
    'status-low' => sub { [99, $plain, []] },
    'status-high' => sub { [1000, $plain, []] },
    headers => sub { [200, 'text/plain', []] },
    'headers-odd' => sub { [200, ['A'], []] },
    'header-break' => sub { [200, ['X-A' => "a\r\nX-B: b"], []] },
    'header-wide' => sub { [200, ['X-A' => "\x{263a}"], []] },
    body => sub { [200, $plain, 'text'] },
    'body-undef' => sub { [200, $plain, undef] },
    'body-object' => sub { [200, $plain, bless {}, 'Thing'] },
    'body-wide' => sub { [200, $plain, ["\x{263a}"]] },
    'body-reference' => sub { [200, $plain, [[]]] },
    'line-wide' => sub { [200, $plain, Parts->new("\x{263a}")] },
    dies => sub { die "it dies" },
    'dies-wide' => sub { die "it dies \x{263a}\n" },
    'dies-object' => sub { die bless {}, 'Failure' },
    'dies-empty' => sub { die bless({}, 'Empty') },
    'dies-worse' => sub { die bless({}, 'Worse') },
    'delayed-dies' => sub { sub { die "it dies later\n" } },
    'delayed-nothing' => sub { sub { } },
    'delayed-text' => sub { sub { $_[0]->('text') } },
    'delayed-short' => sub { sub { $_[0]->([200]) } },
    'stream-wide' => sub { sub { $_[0]->([200, $plain])->write("\x{263a}") } },
    deep => sub { no warnings; my $call; $call = sub { die "deep\n" if $_[0] > 5000; $call->($_[0] + 1) }; $call->(0) },
);
{ package Failure; use overload '""' => sub { 'its own text' }; }
{ package Empty; use overload '""' => sub { '' }, bool => sub { 0 }; }
{ package Worse; use overload '""' => sub { die 'again' }, bool => sub { die 'again' }; }
$pages{"/wrong/$_"} = $wrong{$_} for keys %wrong;
"""

WRONG = {
    "undef": "the answer is undef, and must be an array reference or a code reference",
    "text": "the answer is a text or a number",
    "hash": "the answer is a reference (HASH)",
    "object": "the answer is a reference (Thing)",
    "short": "the answer is an array of 2 elements",
    "status": 'the status is "fine"',
    "status-undef": "the status is undef",
    "status-low": 'the status is "99"',
    "status-high": 'the status is "1000"',
    "headers": "the headers are a text or a number",
    "headers-odd": "the headers are an array with an odd number of elements",
    "header-break": 'the header "X-A" is refused',
    "header-wide": 'Wide character in the header "X-A"',
    "body": "the body is a text or a number",
    "body-undef": "the body is undef",
    "body-object": "the body is a reference (Thing)",
    "body-wide": "Wide character in the body",
    "body-reference": "the body is a reference (ARRAY)",
    "line-wide": "Wide character in the body",
    "dies": "it dies at ",
    "dies-wide": "it dies \u263a",
    "dies-object": "its own text",
    "dies-empty": "an error without a text, of the class Empty",
    "dies-worse": "an error without a text, of the class Worse",
    "delayed-dies": "it dies later",
    "delayed-nothing": "the application has not called its responder",
    "delayed-text": "the answer is a text or a number",
    "delayed-short": "the answer is an array of 1 elements",
    "stream-wide": "Wide character in the body",
    "deep": "deep",
}

#: What a request for `/env` has, with `?a=b` as the name that is asked for.
VALUES = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "PATH_INFO": "/env",
    "QUERY_STRING": "QUERY_STRING",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "HTTP_X_OWN": "a value",
    "HTTP_CONTENT_TYPE": "missing",
    "HTTP_CONTENT_LENGTH": "missing",
    "psgi.version": "[1 1]",
    "psgi.url_scheme": "http",
    "psgi.input": "GLOB",
    "psgi.errors": "GLOB",
    "psgi.multithread": "0",
    "psgi.multiprocess": "0",
    "psgi.run_once": "0",
    "psgi.nonblocking": "0",
    "psgi.streaming": "1",
    "psgix.input.buffered": "1",
    "psgix.cleanup": "1",
    "psgix.cleanup.handlers": "[]",
    "psgix.harakiri": "1",
    "psgix.logger": "CODE",
    "psgix.informational": "CODE",
    "psgix.io": "missing",
}


@pytest.fixture(scope="module")
def shared(serve_module, perl_library):
    """A server that tests share which do not change it."""
    applications = Applications(serve_module, perl_library, PERL)
    server = applications.prepare(PAGES, "post-buffering = 10000\nlimit-post = 50000000\nprocesses = 1")
    (server.directory / "app.psgi.crlf").write_bytes(b"one\r\ntwo\r\n")
    return server.start()


def source_of(server):
    return (server.directory / "app.psgi").read_text()


# Requests.


@pytest.mark.parametrize("name", VALUES)
def test_the_environment_has_the_keys_of_psgi(shared, name):
    headers = [("X-Own", "a value"), ("Content-Type", "text/x")]
    assert shared.get(f"/env?{name}", headers=headers).text == VALUES[name]


def test_the_type_and_the_length_of_a_body_are_variables(shared):
    headers = [("Content-Type", "text/x")]
    assert shared.get("/env?CONTENT_TYPE", headers=headers, method="POST", body=b"123").text == "text/x"
    assert shared.get("/env?CONTENT_LENGTH", headers=headers, method="POST", body=b"123").text == "3"


def test_multiprocess_tells_of_several_workers(perl):
    server = perl("$pages{'/'} = sub { text(shift->{'psgi.multiprocess'}) };", "processes = 2")
    assert server.get("/").text == "1"


def test_an_environment_that_is_changed_is_fresh_in_the_next_request(shared):
    assert shared.get("/change").text == "changed"
    assert [shared.get(f"/env?psgi.{name}").text for name in ("url_scheme", "streaming")] == ["http", "1"]
    assert shared.get("/env?psgix.cleanup.handlers").text == "[]"
    assert shared.get("/env?REQUEST_METHOD").text == "GET"


def test_names_of_headers_do_not_stay_for_the_next_request(shared):
    many = [(f"X-Name-{number}", "x") for number in range(60)]
    first = shared.get("/names", headers=many).text
    assert all(f"HTTP_X_NAME_{number}\n" in first for number in range(60))
    assert "X_NAME" not in shared.get("/names").text


@pytest.mark.parametrize("body", [b"", b"short", MIDDLE, LARGE], ids=["empty", "short", "200kB", "3MB"])
def test_a_body_of_any_size_comes_and_goes(shared, body):
    response = shared.get("/echo", method="POST", body=body)
    assert response.status == 200
    assert_same(response.body, body)


@pytest.mark.parametrize("size", [10, 20_000], ids=["memory", "file"])
def test_input_reads_parts_seeks_and_ends(shared, size):
    body = b"abcdefghij" * (size // 10)
    expected = f"abc|abcde|2|{body[1:1001].decode()}|{min(10, max(0, size - 1001))}|{'eof' if size < 1000 else 'more'}"
    assert shared.get("/read", method="POST", body=body).text == expected


@pytest.mark.parametrize("count", [5, 10_000], ids=["memory", "file"])
def test_input_has_lines(shared, count):
    body = b"".join(b"line %d\n" % number for number in range(count))
    assert shared.get("/lines", method="POST", body=body).text == f"line 0\n|line 1\n|{count - 2}|end"


def test_a_chunked_upload_is_read_as_any_other(shared):
    client = shared.connect()
    client.send(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (b"first ", b"second"):
        client.send(b"%x\r\n%s\r\n" % (len(part), part))
    client.send(b"0\r\n\r\n")
    assert client.read_response().body == b"first second"


@pytest.mark.parametrize("body", [None, b"abc", MIDDLE], ids=["empty", "memory", "file"])
def test_input_may_be_closed_and_the_next_request_has_its_own(shared, body):
    method = "POST" if body else "GET"
    assert shared.get("/close-input", method=method, body=body).text == "closed"
    assert shared.get("/echo", method="POST", body=b"next").text == "next"
    assert shared.get("/echo").text == ""


@pytest.mark.parametrize("body", [None, b"secret", MIDDLE], ids=["empty", "memory", "file"])
def test_the_input_of_a_request_that_is_over_has_nothing(shared, body):
    assert shared.get("/keep", method="POST" if body else "GET", body=body).text == "kept"
    assert shared.get("/late").text == "nothing"


# Answers.


def test_an_array_is_the_whole_body_and_has_its_length(shared):
    response = shared.get("/")
    assert (response.status, response.text, response.get("content-length")) == (200, "Hello from Perl", "15")


def test_a_header_may_have_several_values_and_a_body_several_parts(shared):
    response = shared.get("/status")
    assert (response.status, response.text, response.get("content-length")) == (202, "one\ntwo\n", "8")
    assert response.all("set-cookie") == ["a=1", "b=2"]


@pytest.mark.parametrize("path", ["/", "/many", "/file", "/delayed", "/stream"])
def test_head_has_no_body(shared, path):
    assert (shared.get(path, method="HEAD").status, shared.get(path, method="HEAD").body) == (200, b"")


@pytest.mark.parametrize(("path", "status"), [("/empty", 204), ("/unchanged", 304)])
def test_an_answer_may_have_no_body(shared, path, status):
    assert (shared.get(path).status, shared.get(path).body) == (status, b"")


def test_undefined_parts_and_values_are_empty(shared):
    response = shared.get("/undefined")
    assert (response.text, response.get("x-undefined")) == ("ab", "")


def test_a_length_of_the_application_is_kept(shared):
    assert shared.get("/length").all("content-length") == ["5"]


def test_characters_below_256_are_bytes(shared):
    assert shared.get("/latin").body == b"\xe4\xf6"


def test_a_file_is_sent_with_its_length(shared):
    response = shared.get("/file")
    assert response.text == source_of(shared)
    assert response.get("content-length") == str(len(source_of(shared).encode()))


def test_a_file_is_sent_from_its_position_on(shared):
    assert shared.get("/file-rest").text == source_of(shared).split("\n", 1)[1]
    assert shared.get("/file-range").text == source_of(shared)[4:10]


def test_the_layers_of_a_file_are_obeyed(shared):
    assert shared.get("/file-layer").text == "one\ntwo\n"


def test_handles_that_are_not_files_are_read(shared):
    assert [shared.get(path).text for path in ("/memory", "/pipe", "/file-empty")] == ["in memory", "from a pipe\n", ""]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_object_is_asked_for_lines_and_closed(shared, method):
    before = int(shared.get("/closed").text)
    assert shared.get("/object", method=method).text == ("abc" if method == "GET" else "")
    assert int(shared.get("/closed").text) == before + 1


def test_getline_is_asked_for_parts_of_a_size(shared):
    assert shared.get("/separator").text == "parts of 65536"


def test_a_delayed_answer_is_an_answer(shared):
    response = shared.get("/delayed")
    assert (response.status, response.text, response.get("content-length")) == (200, "delayed", "7")


def test_an_error_after_a_delayed_answer_is_logged_and_the_answer_stays(shared):
    assert shared.get("/delayed-late").text == "delayed"
    assert "GET /delayed-late: after the answer" in shared.log_until_now()


@pytest.mark.parametrize(("path", "text"), [("/stream", "abc"), ("/stream-open", "not closed")])
def test_a_writer_streams(shared, path, text):
    assert shared.get(path).text == text


def test_a_written_part_arrives_before_the_next_is_made(perl, marks):
    pages = f"""
    $pages{{'/'}} = sub {{ sub {{
        my $writer = $_[0]->([200, $plain]);
        $writer->write('first');
        select undef, undef, undef, 0.01 until -e '{marks}/go';
        $writer->write('second');
    }} }};
    """
    client = perl(pages).connect()
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert client.read_until(b"first")
    (marks / "go").touch()
    assert b"second" in client.read_to_end()


def test_a_stream_whose_client_leaves_ends(perl):
    pages = r"""
    $pages{'/endless'} = sub { sub { my $writer = $_[0]->([200, $plain]); $writer->write('x' x 100000) while 1 } };
    $pages{'/'} = sub { text('fine') };
    """
    server = perl(pages, "processes = 1")
    client = server.connect()
    client.send(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.read_exactly(1000)
    client.reset()
    assert server.get("/").text == "fine"
    assert "GET /endless: " not in server.log_until_now()


def test_a_writer_that_was_closed_or_is_late_dies(shared):
    assert shared.get("/stream-closed").text == "x"
    assert "GET /stream-closed: the writer is closed at " in shared.log_until_now()
    assert shared.get("/stream-keep").text == "kept"
    assert shared.get("/writer-late").text.startswith("the request of the writer is over at ")
    assert shared.get("/responder-late").text.startswith("the request of the responder is over at ")


@pytest.mark.parametrize("path", ["/many", "/many-array"])
def test_a_slow_reader_holds_no_worker_and_gets_all_of_it(shared, path):
    slow = shared.connect(receive_bytes=4096)
    slow.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    for _ in range(3):
        assert shared.get("/").status == 200
    assert slow.read_response().body == (b"x" if path == "/many" else b"y") * 320 * 65536


def test_a_client_that_leaves_frees_its_answer(perl):
    pages = r"""
    my $freed = 0;
    { package Endless; sub getline { 'x' x 100000 } sub close { $freed += 10 } sub DESTROY { $freed++ } }
    $pages{'/endless'} = sub { [200, $plain, bless {}, 'Endless'] };
    $pages{'/freed'} = sub { text($freed) };
    """
    server = perl(pages, "processes = 1")
    for count in range(1, 4):
        client = server.connect(receive_bytes=4096)
        client.send(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.read_exactly(1000)
        assert server.get("/freed").text == str(11 * (count - 1))
        client.reset()
        wait_until(lambda count=count: server.get("/freed").text == str(11 * count), "the body is freed")


# Errors.


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_answer_gets_500_with_the_reason_in_the_log(shared, name):
    worker = shared.worker()
    assert shared.get(f"/wrong/{name}").status == 500
    assert f"GET /wrong/{name}: {WRONG[name]}" in re.sub(r"(?m) \(request [^)]*\): ", ": ", shared.log_until_now())
    assert shared.worker() == worker
    assert shared.get("/").text == "Hello from Perl"


@pytest.mark.parametrize(("path", "text"), [("/breaks", "broken in the middle"), ("/stream-breaks", "broken stream")])
def test_an_error_in_the_middle_of_a_body_breaks_the_answer_off(shared, path, text):
    client = shared.connect()
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    received = client.read_to_end()
    assert b"begun" in received
    assert not received.endswith(b"0\r\n\r\n")
    assert text in shared.log_until_now()


def test_an_error_after_a_suspension_breaks_the_answer_off(shared):
    slow = shared.connect(receive_bytes=4096)
    slow.send(b"GET /breaks-late HTTP/1.1\r\nHost: localhost\r\n\r\n")
    slow.read_exactly(1000)
    assert shared.get("/").text == "Hello from Perl"
    assert not slow.read_to_end().endswith(b"0\r\n\r\n")
    shared.wait_for_text("broken when resumed")
    assert shared.get("/").text == "Hello from Perl"


def test_exit_after_the_answer_leaves_the_answer_whole(perl):
    pages = PAGES[PAGES.index("$pages{'/delayed-exit'}") :].splitlines()[0]
    server = perl(pages, "processes = 1\nmin-worker-lifetime = 0")
    server.expects_alarms = True
    assert server.get("/delayed-exit").text == "delayed"
    server.wait_for_text("the application has called exit")


def test_exit_is_500_and_the_worker_is_replaced(perl):
    pages = "$pages{'/exit'} = sub { eval { exit 0 }; text('survived') }; $pages{'/'} = sub { text($$) };"
    server = perl(pages, "processes = 1\nmin-worker-lifetime = 0")
    server.expects_alarms = True
    before = server.get("/").text
    assert server.get("/exit").status == 500
    server.wait_for_text("GET /exit: the application has called exit")
    wait_until(lambda: server.get("/").text != before, "another worker")


@pytest.mark.parametrize(
    ("path", "text"), [("/fork-returns", "child 0"), ("/fork-exits", "child 3"), ("/fork-dies", "child 255")]
)
def test_a_process_that_the_application_forks_leaves_the_connection_alone(shared, path, text):
    worker = shared.worker()
    client = shared.connect()
    assert client.request("GET", path).text == text
    assert client.request("GET", "/").text == "Hello from Perl"
    assert shared.worker() == worker


def test_commands_and_eval_work_as_without_bolide(shared):
    assert shared.get("/system").text == "by a shell\n"
    assert shared.get("/eval").text == "caught\n"
    assert shared.get("/alarm").text == "alarm\n"


# The log.


def test_what_is_printed_is_lines_of_the_log(shared):
    shared.get("/errors")
    log = shared.log_until_now()
    for line in ("a part of a line and its end", "formatted-7", "by a method", "without an end"):
        assert f"\n{line}\n" in log
    shared.wait_for_text("a warning\n")
    shared.get("/print")
    shared.wait_for_text("to standard output\n")


def test_the_logger_and_uwsgi_log_write_into_the_log(shared):
    shared.get("/logger")
    shared.get("/log")
    assert "warn: a logged message\n" in shared.log_until_now()
    assert "by uwsgi::log\n" in shared.log_until_now()


# Extensions.


def test_an_informational_response_comes_before_the_answer(shared):
    client = shared.connect()
    client.send(b"GET /hints HTTP/1.1\r\nHost: here\r\n\r\n")
    hints = client.read_head()
    assert (hints.status, hints.get("link")) == (103, "</a.css>; rel=preload")
    assert client.read_response().text == "after hints"


def test_cleanup_handlers_run_after_the_answer_and_an_error_stops_none(shared):
    assert shared.get("/cleanup").text == "clean"
    assert shared.get("/cleaned").text == "first /cleanup,last"
    assert "GET /cleanup: unclean" in shared.log_until_now()


def test_the_client_has_its_answer_before_cleanup_runs(perl, marks):
    pages = f"""
    $pages{{'/'}} = sub {{
        push @{{$_[0]{{'psgix.cleanup.handlers'}}}}, sub {{ select undef, undef, undef, 0.01 until -e '{marks}/go' }};
        text('done');
    }};
    """
    server = perl(pages, "processes = 1")
    assert server.get("/").text == "done"
    (marks / "go").touch()
    assert server.get("/").text == "done"


def test_harakiri_commit_replaces_the_worker_after_the_answer(perl):
    pages = "$pages{'/'} = sub { text($$) }; $pages{'/last'} = sub { $_[0]{'psgix.harakiri.commit'} = 1; text($$) };"
    server = perl(pages, "processes = 1\nmin-worker-lifetime = 0")
    before = server.get("/").text
    assert server.get("/last").text == before
    wait_until(lambda: server.get("/").text != before, "another worker")


def test_harakiri_names_the_line_at_which_perl_is_stuck_and_its_callers(perl):
    pages = r"""
sub stuck { my $count = 0;
    $count++ while 1; # stuck here
}
$pages{'/stuck'} = sub { stuck() }; # caller
$pages{'/blocked'} = sub {
    sleep 100 while 1; # blocked here
};
$pages{'/'} = sub { text('fine') };
"""
    server = perl(pages, "harakiri = 1\nprocesses = 1")
    server.expects_alarms = True
    lines = source_of(server).splitlines()
    marks = ("stuck here", "# caller", "blocked here")
    place = {mark: next(number for number, line in enumerate(lines, 1) if mark in line) for mark in marks}
    for count, (path, pattern_) in enumerate(
        [
            ("/stuck", rf"Perl is here: \S*app.psgi:{place['stuck here']}, called by \S*app.psgi:{place['# caller']}"),
            ("/blocked", rf"Perl is here: \S*app.psgi:{place['blocked here']}"),
        ],
        1,
    ):
        with pytest.raises(Closed):
            server.get(path)
        server.wait_for_log(pattern_)
        server.wait_for_log("harakiri: killing worker", count)
        assert server.get("/").text == "fine"


def test_psgix_io_is_the_connection_if_an_option_asks_for_it(perl):
    pages = r"""
    $pages{'/'} = sub { text('fine') };
    $pages{'/raw'} = sub {
        my $socket = shift->{'psgix.io'};
        syswrite $socket, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: upgrade\r\n\r\n";
        sysread $socket, my $word, 100;
        syswrite $socket, "you said $word";
        close $socket;
        return [];
    };
    """
    server = perl(pages, "psgi-enable-psgix-io = true")
    client = server.connect()
    client.send(b"GET /raw HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    assert client.read_head().status == 101
    client.send(b"word")
    assert client.read_to_end() == b"you said word"
    assert server.get("/").text == "fine"


# Processes.


def test_hooks_run_after_the_fork_and_at_the_exit(perl, marks):
    pages = f"""
    my $forked = 0;
    uwsgi::postfork(sub {{ $forked = uwsgi::worker_id() }});
    uwsgi::atexit(sub {{ open my $file, '>', '{marks}/exit' or die; print $file 'left' }});
    END {{ open my $file, '>', '{marks}/end' or die; print $file 'left' }}
    $pages{{'/'}} = sub {{ text("$forked $$") }};
    """
    server = perl(pages, "processes = 1")
    assert server.get("/").text == f"1 {server.worker()}"
    server.stop()
    assert (marks / "exit").read_text() == "left"
    assert (marks / "end").read_text() == "left"


def test_the_package_uwsgi_names_what_it_does_not_have(shared):
    number, version, error = shared.get("/uwsgi").text.split("|")
    assert number == "1"
    assert version.startswith("bolide/")
    assert error.startswith("uwsgi::cache_get is not supported with Perl at ")


def test_the_application_is_loaded_once_and_shared(perl):
    pages = "warn \"loaded\\n\"; my $at = $$; $pages{'/'} = sub { text($at == $$ ? 'own' : 'shared') };"
    server = perl(pages, "processes = 3")
    assert server.get("/").text == "shared"
    assert server.log_until_now().count("loaded\n") == 1


def test_lazy_apps_load_it_in_each_worker(perl):
    server = perl("my $at = $$; $pages{'/'} = sub { text($at == $$ ? 'own' : 'shared') };", "processes = 2\nlazy-apps = true")
    assert server.get("/").text == "own"


def test_random_numbers_differ_between_workers(perl):
    pages = "rand; uwsgi::postfork(sub { warn 'random ' . int(rand 1e9) . \"\\n\" }); $pages{'/'} = sub { text('') };"
    server = perl(pages, "processes = 3")
    server.wait_for_log(r"random \d+", 3)
    assert len(set(re.findall(r"random (\d+)", server.log_until_now()))) == 3


def test_each_mount_has_its_application_and_its_variables(perl):
    server = perl.prepare("our $own = 'main'; $pages{'/'} = sub { text($own) };", "mount = /x=other.psgi\nmanage-script-name = 1")
    other = "our $own = 'other'; $pages{'/y'} = sub { text(join ' ', $own, @{$_[0]}{qw(SCRIPT_NAME PATH_INFO)}) };"
    perl.write(server, other, "other.psgi")
    server.start()
    assert server.get("/").text == "main"
    assert server.get("/x/y").text == "other /x /y"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("my $a = 1;\nsub {\n", r"Missing right curly .*app\.psgi line 2"),
        ("my $a;\ndie 'it dies';\n", r"it dies at \S*app\.psgi line 2"),
        ("1;\nuse Missing::Module;\nsub { }", r"Can't locate Missing/Module.pm .*app\.psgi line 2"),
        ("5;\n", r"app\.psgi must return a code reference \(PSGI\): it returns a text or a number"),
        ("{a => 1};\n", r"app\.psgi must return a code reference \(PSGI\): it returns "),
        ("exit 4;\n", r"the application has called exit\(4\) while it was loaded"),
        ("use threads; threads->create(sub { sleep 9 }); sub { };\n", r"threads, which can't be forked"),
        (None, r"app\.psgi can't be read: No such file"),
    ],
    ids=["syntax", "error", "module", "value", "hash", "exit", "threads", "missing"],
)
def test_a_file_that_can_not_be_loaded_leaves_the_old_code_and_is_named_with_its_line(perl, content, expected):
    server = perl("$pages{'/'} = sub { text('old') };")
    file = server.directory / "app.psgi"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(expected)
    assert server.get("/").text == "old"


@pytest.mark.parametrize(
    "content",
    [
        "package Own; sub to_app { sub { [200, [], ['an application']] } } bless {}, 'Own';\n",
        "package Own; use overload '&{}' => sub { sub { [200, [], ['an application']] } }; bless {}, 'Own';\n",
        "bless sub { [200, [], ['an application']] }, 'Own';\n",
    ],
    ids=["to_app", "overloaded", "blessed"],
)
def test_objects_may_be_applications(perl, content):
    server = perl.prepare("")
    (server.directory / "app.psgi").write_text(content)
    assert server.start().get("/").text == "an application"


# Options.


def test_options_set_arguments_paths_and_run_files(perl, marks):
    configuration = """
perl-arg = one argument
perl-args = two  three
perl-exec = early.pl
perl-exec-post-fork = forked.pl
perl-local-lib = {directory}/local
perl-no-die-catch = true
perl-no-plack = true
"""
    pages = "require Of::Mine; $pages{'/'} = sub { text(join '|', @ARGV, $main::early, $main::forked, Of::Mine::word(), $0) };"
    server = perl.prepare(pages, configuration)
    (server.directory / "early.pl").write_text("$main::early = 'early';\n")
    (server.directory / "forked.pl").write_text("$main::forked = 'forked ' . uwsgi::worker_id();\n")
    module = server.directory / "local" / "lib" / "perl5" / "Of"
    module.mkdir(parents=True)
    (module / "Mine.pm").write_text("package Of::Mine; sub word { 'mine' } 1;\n")
    server.start()
    text = server.get("/").text
    assert text == f"one argument|two|three|early|forked 1|mine|{server.directory}/app.psgi"


def test_an_unknown_option_names_those_that_exist(perl):
    server = perl.prepare("$pages{'/'} = sub { text('') };", "psgi-unknown = 1")
    server.launch()
    server.wait_for_text("its options are psgi, psgi-enable-psgix-io, perl-exec")


def test_setting_the_name_of_the_program_and_handlers_of_signals_is_harmless(perl):
    pages = r"""
    $0 = 'a name of the application that is longer than any other name was before it' x 10;
    my $count = 0;
    $SIG{USR2} = sub { $count++; warn "a signal came\n" };
    $pages{'/'} = sub { text($count) };
    """
    server = perl(pages, "processes = 1")
    assert server.get("/").text == "0"
    worker = server.worker()

    def has_come():
        # A signal that comes just before the worker waits is handled with the next one, or with the next request.
        os.kill(worker, signal.SIGUSR2)
        return "a signal came\n" in server.log_until_now()

    wait_until(has_come, "the handler of the signal")
    assert int(server.get("/").text) >= 1


# Protocols.


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_http2_and_tls_serve_the_same(serve, perl_library, tmp_path, way):
    (tmp_path / "app.psgi").write_text(
        "sub { my $env = shift; read $env->{'psgi.input'}, my $body, 100;"
        " [200, [], [join ' ', $env->{'psgi.url_scheme'}, $env->{SERVER_PROTOCOL}, $body]] };\n"
    )
    both = Both(serve, tmp_path, f"plugin = {perl_library}\npsgi = {tmp_path}/app.psgi")
    connection = both.connect(way)
    assert isinstance(connection, Http2)
    scheme = "https" if way == "tls" else "http"
    assert connection.request("POST", "/", body=b"data").text in (f"{scheme} HTTP/2.0 data", f"{scheme} HTTP/2 data")


def test_a_request_of_the_uwsgi_protocol_is_served(perl):
    server = perl(
        "$pages{'/p'} = sub { my $env = shift; read $env->{'psgi.input'}, my $body, 100; text($env->{REQUEST_METHOD} . $body) };",
        listen=("uwsgi-socket = 127.0.0.1:0",),
    )
    answer = uwsgi.ask(server.address("uwsgi"), "POST", "/p", b"data")
    assert (answer.status, answer.body) == (200, b"POSTdata")


def test_a_plugin_without_an_application_does_not_start(serve, perl_library):
    server = serve.prepare(f"plugin = {perl_library}")
    server.launch()
    server.wait_for_log("psgi")


def test_the_suite_of_plack_passes(serve, perl_library):
    server = serve.prepare(f"plugin = {perl_library}\npsgi = suite.psgi")
    (server.directory / "suite.psgi").write_text("use Plack::Test::Suite; Plack::Test::Suite->test_app_handler;\n")
    server.start()
    command = ["perl", SUITE, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    failed = [line for line in done.stderr.splitlines() if line.startswith("#")]
    assert done.returncode == 0, "\n".join(failed[:60])
    assert int(re.search(r"suite: (\d+)", done.stdout)[1]) >= 36


def test_a_change_of_a_loaded_file_reloads_unless_it_is_ignored(perl):
    pages = "use lib '.'; require Part; require './generated.pl'; $pages{'/'} = sub { text(Part::text()) };"
    server = perl.prepare(pages, "perl-auto-reload = 1\nperl-auto-reload-ignore = {directory}/generated.pl")
    part, generated = server.directory / "Part.pm", server.directory / "generated.pl"
    part.write_text("package Part; sub text { 'one' } 1;")
    generated.write_text("1;")
    server.start()
    assert server.get("/").text == "one"
    generated.write_text("2;")
    part.write_text("package Part; sub text { 'two' } 1;")
    wait_until(lambda: server.get("/").text == "two", "the new code serves")
    assert "Part.pm" in server.log
    assert "generated.pl" not in server.log


def test_the_environment_says_what_frameworks_ask_for(perl):
    server = perl("$pages{'/'} = sub { text(\"$ENV{PLACK_ENV} $ENV{PLACK_SERVER}\") };")
    assert server.get("/").text == "uwsgi uwsgi"
    server = perl("$pages{'/'} = sub { text($ENV{PLACK_ENV}) };", "env = PLACK_ENV=staging")
    assert server.get("/").text == "staging"


def test_a_body_that_consists_of_chunks_is_passed_on_as_such(perl):
    pages = r"""
$pages{'/'} = sub { [200, ['Content-Type' => 'text/plain', 'Transfer-Encoding' => 'chunked'],
    ["3\r\none\r\n", "3\r\ntwo\r\n0\r\n\r\n"]] };
$pages{'/file'} = sub { open(my $file, '<', 'chunks') or die; [200, ['Transfer-Encoding' => 'chunked'], $file] };
"""
    server = perl(pages)
    (server.directory / "chunks").write_bytes(b"4\r\nfile\r\n0\r\n\r\n")
    assert server.get("/").text == "onetwo"
    assert server.get("/file").text == "file"


def test_what_the_first_request_makes_is_shared_by_the_workers(perl):
    pages = "my $count = 0; $pages{'/count'} = sub { text(++$count) }; uwsgi::atexit(sub { uwsgi::log('at exit') });"
    server = perl(pages, "warmup = /count\nprocesses = 2\nmaster = true")
    assert server.get("/count").text == "2"
    assert "at exit" not in server.log


def test_a_generation_that_does_not_pass_its_probe_never_serves(perl):
    pages = "my $sick = -e 'sick'; $pages{'/health'} = sub { die 'sick' if $sick; text('well') };"
    server = perl(pages, "reload-probe = /health\nprocesses = 2\nmaster = true")
    before = set(server.workers())
    (server.directory / "sick").touch()
    server.send_signal(signal.SIGHUP)
    server.wait_for_text("reload-probe: GET /health failed")
    assert server.get("/health").text == "well"
    wait_until(lambda: set(server.workers()) == before, "the workers on trial have exited")
