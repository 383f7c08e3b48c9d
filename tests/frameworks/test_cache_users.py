"""Libraries that keep their caches in the server's: Django by our backend, django-uwsgi-cache, cachelib."""

import threading

import pytest

CONFIGURATION = """
wsgi-file = {apps}/cache_users.py
master = true
processes = 2
disable-logging = true
cache2 = name=pages,items=1000
cache2 = name=small,items=3,blocksize=200,ignore_full=1
cache2 = name=package,items=100
cache2 = name=lib,items=100
"""


@pytest.fixture(scope="module")
def server(serve_module):
    return serve_module(CONFIGURATION)


@pytest.mark.parametrize("what", ["values", "adding", "numbers", "times", "versions"])
def test_djangos_interface_is_that_of_its_other_backends(server, what):
    assert server.get(f"/{what}/default").text == "right"


@pytest.mark.parametrize("what", ["bounds", "prefixes", "sessions"])
def test_django_on_a_cache_of_the_server(server, what):
    assert server.get(f"/{what}").text == "right"


def test_processes_count_together_without_losing_one(server):
    assert server.get("/begin/default").text == "right"
    said = []
    counters = [threading.Thread(target=lambda: said.append(server.get("/counting/default").text)) for _ in range(4)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join()
    assert said == ["right"] * 4
    assert server.get("/counted/default").text == "right"


def test_django_uwsgi_cache_runs_unmodified(server):
    assert server.get("/package").text == "right"


def test_cachelib_runs_unmodified(server):
    assert server.get("/cachelib").text == "right"


def test_outside_of_the_server_nothing_is_stored_and_a_warning_says_so():
    from bolide.contrib.django import SharedCache

    with pytest.warns(RuntimeWarning, match="outside of the server"):
        cache = SharedCache("pages", {})
    cache.set("key", 1)
    assert cache.get("key", "absent") == "absent"
    assert not cache.add("key", 1)
    assert not cache.delete("key")
    assert "key" not in cache
    cache.clear()
