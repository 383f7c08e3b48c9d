"""Words that people know from nginx, gunicorn, uvicorn and elsewhere: `explain`, `help` and `options` find what replaces them."""

import os
import subprocess

import pytest
from support.server import program
from support.waiting import TIMEOUT_SECONDS

#: Words of nginx, of other servers, and general ones, most of which are not options.
WORDS = """
client_max_body_size client_body_timeout client_header_buffer_size proxy_read_timeout proxy_pass proxy_set_header
keepalive_timeout gzip gzip_types gzip_static limit_conn limit_req upstream server_name real_ip set_real_ip_from access_log
error_log worker_processes worker_connections worker_rlimit_nofile sendfile ssl_certificate ssl_certificate_key ssl_protocols
try_files root location rewrite auth_basic add_header expires timeout keepalive keep-alive accesslog access-logfile error-log
errorlog log-level loglevel max_requests max_requests_jitter preload preload_app bind daemon user group graceful_timeout
worker_class reuse_port proxy_protocol forwarded_allow_ips raw_env timeout-keep-alive limit_concurrency ws uds fd app-dir
workers_lifetime workers-max-rss blocking-threads backlog compression ssl x-forwarded-for cors static memory syslog websocket
healthcheck health prometheus statsd debug ratelimit uvloop dotenv letsencrypt http3 systemd docker celery cron_job logrotate
hsts redirect_to_https autoreload
"""

#: The option that a word leads to.
LEADS_TO = {
    "client_max_body_size": "limit-post",
    "gzip": "compress",
    "--bind": "http",
    "group": "gid",
    "backlog": "listen",
    "healthcheck": "metrics",
}


@pytest.fixture
def bolide(tmp_path):
    """Runs a command to its end. Returns its status and its output."""

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BOLIDE_", "UWSGI_"))}
        done = subprocess.run(
            [*map(str, program()), *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_words_that_people_know_are_explained_without_a_guess(bolide):
    words = WORDS.split()
    assert len(words) >= 84
    status, said = bolide("explain", *words)
    assert "is not an option" not in said
    assert "did you mean" not in said
    assert status == 0


def test_a_word_is_followed_by_the_option_that_replaces_it(bolide):
    for word, option in LEADS_TO.items():
        status, said = bolide("explain", word)
        sentence, _, explanation = said.partition("\n\n")
        assert status == 0
        assert f"`{option}" in " ".join(sentence.split()), said
        assert explanation.splitlines()[0].split(" ")[0] == option, said
    assert bolide("explain", "--timeout")[1].startswith("gunicorn's `--timeout` is `harakiri`")
    assert bolide("help", "--timeout") == bolide("explain", "--timeout")
    assert bolide("help", "rate", "limit")[1].startswith("`rate-limit` has no option: ")
    assert bolide("explain", "HTTP_TIMEOUT")[1].startswith("http-timeout\n")


def test_a_search_finds_words_that_are_no_options(bolide):
    for words, option in {
        ("keep-alive",): "http-keepalive",
        ("real ip",): "trusted-proxies",
        ("rate", "limit"): "limit-concurrency",
        ("access log",): "req-logger",
    }.items():
        status, said = bolide("options", *words)
        assert status == 0
        assert option in said.partition("\n\n")[0], said
    assert bolide("options", "nothing-of-this-name")[0] == 1


def test_a_word_of_another_server_in_a_configuration_gets_its_replacement(bolide, tmp_path):
    (tmp_path / "shop.ini").write_text(
        "[uwsgi]\nhttp = 127.0.0.1:8000\nmodule = app\nclient_max_body_size = 10m\npreload = true\n"
    )
    _, said = bolide("check", "shop.ini")
    assert "`client_max_body_size` of nginx is `limit-post`" in said
    assert "gunicorn's `--preload` is `master = true`" in said
    assert "did you mean `reload`?" not in said


def test_completions_offer_the_flags_of_other_servers_that_are_taken(bolide):
    script = bolide("completions", "bash")[1]
    for flag in ("--timeout", "--access-logfile", "--preload", "--bind", "--log-level"):
        assert f"{flag} " in script
    assert "--no-log " not in script
