"""Caches that several instances share on a real redis-server (`cache2` with `engine`)."""

from urllib.parse import quote

import pytest
from support.redis_server import PATIENT
from support.waiting import wait_until

CONFIGURATION = "wsgi-file = {{apps}}/engines.py\ncache2 = name=pages,engine={url},blocksize=1000,keysize=50\n{more}"


def instance_of(serve, url, *more):
    url = url if "answer-ms=" in url else f"{url}?{PATIENT}"
    return serve(CONFIGURATION.format(url=url, more="\n".join(more)))


def told(instance, expression):
    return instance.get("/?" + quote(expression)).text


def test_the_functions_of_uwsgis_cache_work_on_the_items_of_all_machines(serve, redis):
    here, there = (instance_of(serve, redis.url) for _ in range(2))
    assert told(here, "uwsgi.cache_get('k'), uwsgi.cache_exists('k'), uwsgi.cache_num('k')") == "(None, None, 0)"
    assert told(here, r"uwsgi.cache_set('k', b'one\0\xff'), uwsgi.cache_set('k', 'two')") == "(True, None)"
    assert told(there, "uwsgi.cache_get('k'), uwsgi.cache_exists('k', 'pages')") == r"(b'one\x00\xff', True)"
    assert told(there, "uwsgi.cache_update('k', 'two', 1000), uwsgi.cache_get('k')") == "(True, b'two')"
    assert told(here, "uwsgi.cache_inc('n'), uwsgi.cache_inc('n', 10), uwsgi.cache_dec('n', 3)") == "(True, True, True)"
    assert told(there, "uwsgi.cache_mul('n', 6), uwsgi.cache_div('n', 4), uwsgi.cache_num('n')") == "(True, True, 12)"
    assert told(there, "uwsgi.cache_get('n')") == r"b'\x0c\x00\x00\x00\x00\x00\x00\x00'"
    assert told(here, "sorted(uwsgi.cache_keys())") == "[b'k', b'n']"
    assert told(here, "uwsgi.cache_del('k'), uwsgi.cache_del('k')") == "(True, None)"
    assert told(there, "uwsgi.cache_set('short', 'x', 1)") == "True"
    wait_until(lambda: told(here, "uwsgi.cache_exists('short')") == "None", "the end of the item")
    assert told(here, "uwsgi.cache_clear(), uwsgi.cache_keys('pages')") == "(True, [])"


def test_a_cache_on_an_engine_has_the_bounds_of_its_options(serve, redis):
    instance = instance_of(serve, redis.url)
    assert told(instance, "uwsgi.cache_set('k' * 50, 'v' * 1000), uwsgi.cache_set('k' * 51, 'v')") == "(True, None)"
    refused = "uwsgi.cache_set('k', 'v' * 1001), uwsgi.cache_set('', 'v'), uwsgi.cache_set('k', '')"
    assert told(instance, refused) == str((None,) * 3)
    assert told(instance, "uwsgi.cache_set('k', 5)").startswith("TypeError")


def test_caches_on_an_engine_and_in_memory_stand_beside_each_other(serve, redis):
    more = ["cache2 = name=own,items=10", f"cache2 = name=users,engine={redis.url}?{PATIENT},math_initial=5,no_expire=1"]
    instance = instance_of(serve, redis.url, *more)
    assert told(instance, "[uwsgi.cache_set('k', name, 600, name) for name in ('pages', 'own', 'users')]") == str([True] * 3)
    assert told(instance, "uwsgi.cache_get('k'), uwsgi.cache_get('k', 'own'), uwsgi.cache_get('k', 'users')") == (
        "(b'pages', b'own', b'users')"
    )
    assert told(instance, "uwsgi.cache_inc('n', 1, 0, 'users'), uwsgi.cache_num('n', 'users')") == "(True, 6)"
    assert redis.ask("PTTL", "bolide:cache:users:k") == ":-1"
    assert told(instance, "uwsgi.cache_get('k', 'none')") == "None"


def test_a_cache_whose_engine_is_away_has_no_items_and_is_back_with_it(serve, redis):
    instance = instance_of(serve, redis.url)
    assert told(instance, "uwsgi.cache_set('k', 'v')") == "True"
    redis.kill()
    for _ in range(20):
        assert told(instance, "uwsgi.cache_get('k'), uwsgi.cache_set('a', 'v'), uwsgi.cache_keys()") == "(None, None, [])"
        assert told(instance, "uwsgi.cache_inc('n'), uwsgi.cache_num('n'), uwsgi.cache_clear()") == "(None, 0, None)"
    redis.start()
    wait_until(lambda: told(instance, "uwsgi.cache_get('k')") == "b'v'", "the item is back")
    instance.wait_for_log(r"^bolide: engine redis\+unix://\S+ is back after ")
    assert len([line for line in instance.lines if "engine redis" in line]) == 2


def test_a_cache_whose_engine_is_cut_off_holds_no_request_longer_than_the_limit(serve, proxy):
    instance = instance_of(serve, f"{proxy.url}?connect-ms=2000&answer-ms=100")
    wait_until(lambda: told(instance, "uwsgi.cache_update('k', 'v')") == "True", "an item")
    proxy.cut()
    for _ in range(20):
        assert told(instance, "uwsgi.cache_get('k')") == "None"
    proxy.heal()
    wait_until(lambda: told(instance, "uwsgi.cache_get('k')") == "b'v'", "the item is back")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("name=x,engine=redis://", "`cache2`: the engine's address: it has no host"),
        ("name=x,engine=memcached://h", "`cache2`: the engine's address: it is not the address of an engine"),
        ("engine=redis://h", "`cache2` with `engine` has no name"),
        ("name=pages,items=5", "there are two caches with the name `pages`"),
    ],
)
def test_a_wrong_cache_on_an_engine_is_an_error_with_its_place(tmp_path, call, words, what):
    lines = ["[uwsgi]", "http = 127.0.0.1:0", "module = x", "cache2 = name=pages,engine=redis://h", f"cache2 = {words}"]
    (tmp_path / "uwsgi.ini").write_text("\n".join(lines) + "\n")
    status, said = call("check", "uwsgi.ini")
    assert status != 0
    assert f"uwsgi.ini:5: error: {what}" in said
