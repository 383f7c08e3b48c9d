"""What applications of each language that is a plugin have in common."""

import signal
import threading

from support import uwsgi
from support.nginx import PARAMETERS, Nginx
from support.waiting import wait_until


def test_a_reload_takes_the_changed_file_and_loses_no_request(applications):
    say = applications.language.saying
    server = applications(say("old"), "processes = 2\nmaster = true")
    bodies, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            bodies.append(server.get("/said").text)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        wait_until(lambda: len(bodies) > 5, "requests")
        applications.write(server, say("new"))
        server.send_signal(signal.SIGHUP)
        wait_until(lambda: bodies[-1] == "new", "the new code")
    finally:
        stop.set()
        thread.join()
    assert set(bodies) == {"old", "new"}


def test_a_change_of_the_file_reloads_it_with_develop(applications):
    server = applications(applications.language.saying("old"), "develop = true")
    assert server.get("/said").text == "old"
    applications.write(server, applications.language.saying("new"))
    wait_until(lambda: server.get("/said").text == "new", "the new code serves")


def test_a_packet_with_the_number_of_the_language_is_served_and_others_are_not(applications):
    language = applications.language
    sockets = ["http-socket = 127.0.0.1:0", "socket = 127.0.0.1:0", f"http-socket-modifier1 = {language.modifier}"]
    server = applications(language.saying("served"), listen=sockets)
    assert server.get("/said").text == "served"
    for number, is_served in [(0, True), (language.modifier, True), (9, False)]:
        client = server.connect(server.address("uwsgi"))
        client.send(uwsgi.packet(uwsgi.request_variables(target="/said"), modifier1=number))
        answer = uwsgi.Answer(client.read_to_end())
        assert (answer.body == b"served") == is_served, number


def test_nginx_in_front_passes_requests_by_the_uwsgi_protocol(applications, tmp_path):
    language = applications.language
    server = applications(language.saying("through nginx"), listen=("socket = 127.0.0.1:0",))
    host, port = server.address("uwsgi")
    parameters = tmp_path / "parameters"
    parameters.write_text(PARAMETERS)
    location = f"location / {{ include {parameters}; uwsgi_modifier1 {language.modifier}; uwsgi_pass {host}:{port}; }}"
    nginx = Nginx(tmp_path, f"server {{ listen 127.0.0.1:{{port}}; {location} }}")
    try:
        with nginx.connect() as client:
            assert [client.request("GET", "/said").text for _ in range(3)] == ["through nginx"] * 3
    finally:
        nginx.finish()
