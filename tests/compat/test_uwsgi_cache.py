"""`uwsgi.cache_get` and the related functions: signatures, results and errors, compared with those of uWSGI itself."""

import json

from support.client import Client
from support.real_uwsgi import real_uwsgi

CONFIGURATION = """\
wsgi-file = {apps}/uwsgi_module.py
master = true
disable-logging = true
cache2 = name=pages,items=100,blocksize=1000,keysize=20
cache2 = name=numbers,max_items=10,math_initial=40
cache2 = name=blocks,maxitems=8,blocksize=100,blocks=8,bitmap=1
cache2 = name=small,items={items},ignore_full=1
cache2 = name=emptied,items={items},clear_on_full=1,ignore_full=1
"""

#: Calls one after the other in one process. Whatever one of them stores, the next ones find.
CALLS = [
    # The first cache is the default one.
    "uwsgi.cache_get('key'), uwsgi.cache_exists('key'), uwsgi.cache_del('key'), uwsgi.cache_num('key')",
    "uwsgi.cache_set('key', 'value'), uwsgi.cache_get('key'), uwsgi.cache_get(b'key'), uwsgi.cache_exists('key')",
    "uwsgi.cache_set('key', 'other'), uwsgi.cache_get('key')",
    "uwsgi.cache_update('key', b'longer than before'), uwsgi.cache_get('key', 'pages'), uwsgi.cache_get('key', '')",
    "uwsgi.cache_update('new', 'by update'), uwsgi.cache_get('new')",
    "uwsgi.cache_update('key', 'x'), uwsgi.cache_get('key')",
    "uwsgi.cache_set('ü', 'ö'), uwsgi.cache_get('ü'), uwsgi.cache_get('ü'.encode())",
    "uwsgi.cache_set('zero', b'a\\0b\\0'), uwsgi.cache_get('zero')",
    "uwsgi.cache_set('a\\0b', 'x'), uwsgi.cache_get('a\\0b'), uwsgi.cache_get('a')",
    "sorted(uwsgi.cache_keys()), sorted(uwsgi.cache_keys('pages')), uwsgi.cache_keys('numbers')",
    "uwsgi.cache_del('key'), uwsgi.cache_get('key'), uwsgi.cache_exists('key', 'pages')",
    # Bounds.
    "uwsgi.cache_set('', 'x'), uwsgi.cache_set('empty', ''), uwsgi.cache_update('empty', ''), uwsgi.cache_exists('empty')",
    "uwsgi.cache_set('k' * 20, 'x'), uwsgi.cache_set('k' * 21, 'x'), uwsgi.cache_get('k' * 21)",
    "uwsgi.cache_set('most', 'v' * 1000), uwsgi.cache_set('more', 'v' * 1001), uwsgi.cache_get('more')",
    "uwsgi.cache_update('most', 'v' * 1001), len(uwsgi.cache_get('most'))",
    # Expiry.
    "uwsgi.cache_set('timed', 'x', 1000), uwsgi.cache_get('timed')",
    "uwsgi.cache_update('timed', 'y', 0, 'pages'), uwsgi.cache_get('timed')",
    "uwsgi.cache_set('timed', 'z', 10, 'numbers'), uwsgi.cache_get('timed', 'numbers')",
    # Numbers.
    "uwsgi.cache_inc('n'), uwsgi.cache_num('n'), len(uwsgi.cache_get('n'))",
    "uwsgi.cache_inc('n', 5), uwsgi.cache_num('n'), uwsgi.cache_dec('n', 2), uwsgi.cache_num('n')",
    "uwsgi.cache_mul('n', -10), uwsgi.cache_num('n'), uwsgi.cache_div('n', 3), uwsgi.cache_num('n')",
    "uwsgi.cache_mul('n'), uwsgi.cache_num('n'), uwsgi.cache_div('n'), uwsgi.cache_num('n'), uwsgi.cache_dec('n')",
    "uwsgi.cache_div('n', 0), uwsgi.cache_num('n')",
    "uwsgi.cache_inc('n', 2, 0, 'numbers'), uwsgi.cache_num('n', 'numbers'), uwsgi.cache_get('n', 'numbers')",
    "uwsgi.cache_mul('m', 2, 100, 'numbers'), uwsgi.cache_num('m', 'numbers'), uwsgi.cache_exists('m')",
    "uwsgi.cache_inc('big', 2**63 - 1), uwsgi.cache_inc('big'), uwsgi.cache_num('big')",
    "uwsgi.cache_set('text', 'abc'), uwsgi.cache_num('text'), uwsgi.cache_num('absent'), uwsgi.cache_num('absent', 'nope')",
    "uwsgi.cache_set('eight', (513).to_bytes(8, 'little')), uwsgi.cache_num('eight')",
    # Caches that do not exist.
    "uwsgi.cache_get('key', 'nope'), uwsgi.cache_set('key', 'x', 0, 'nope'), uwsgi.cache_exists('key', 'nope')",
    "uwsgi.cache_inc('key', 1, 0, 'nope'), uwsgi.cache_del('key', 'nope'), uwsgi.cache_clear('nope')",
    "uwsgi.cache_keys('nope')",
    # Wrong types and numbers of arguments.
    "uwsgi.cache_get()",
    "uwsgi.cache_get(1)",
    "uwsgi.cache_get(None)",
    "uwsgi.cache_get('key', None)",
    "uwsgi.cache_get('key', b'pages')",
    "uwsgi.cache_get('key', 'pages', 3)",
    "uwsgi.cache_set('key')",
    "uwsgi.cache_set('key', 1)",
    "uwsgi.cache_set('key', None)",
    "uwsgi.cache_set('key', True)",
    "uwsgi.cache_set('key', ['x'])",
    "uwsgi.cache_set('key', 'x', 'soon')",
    "uwsgi.cache_set('key', 'x', 1.5)",
    "uwsgi.cache_set('key', 'x', None)",
    "uwsgi.cache_set('key', 'x', 2**64)",
    "uwsgi.cache_update('key', 'x', 0, 7)",
    "uwsgi.cache_inc('key', 'one')",
    "uwsgi.cache_keys(7)",
    "uwsgi.cache_clear(7)",
    "uwsgi.cache_set(key='key', value='x')",
    "uwsgi.cache_exists('key')",
    # Full caches.
    "[uwsgi.cache_set(str(number), 'x', 0, 'small') for number in range(5)]",
    "uwsgi.cache_update('0', 'y', 0, 'small'), uwsgi.cache_update('7', 'y', 0, 'small'), len(uwsgi.cache_keys('small'))",
    "uwsgi.cache_del('1', 'small'), uwsgi.cache_set('7', 'z', 0, 'small'), uwsgi.cache_get('7', 'small')",
    "[uwsgi.cache_set(str(number), 'x', 0, 'emptied') for number in range(5)], sorted(uwsgi.cache_keys('emptied'))",
    # Values of several blocks.
    "uwsgi.cache_set('a', 'a' * 250, 0, 'blocks'), uwsgi.cache_set('b', 'b' * 300, 0, 'blocks')",
    "uwsgi.cache_set('c', 'c' * 300, 0, 'blocks'), uwsgi.cache_del('a', 'blocks'), uwsgi.cache_set('c', 'c' * 300, 0, 'blocks')",
    "uwsgi.cache_get('b', 'blocks') == b'b' * 300, uwsgi.cache_get('c', 'blocks') == b'c' * 300",
    "uwsgi.cache_set('d', 'd' * 801, 0, 'blocks')",
    # The end of all items.
    "uwsgi.cache_clear('pages'), uwsgi.cache_keys(), uwsgi.cache_get('new'), len(uwsgi.cache_keys('numbers'))",
    "uwsgi.cache_clear(), uwsgi.cache_clear('small'), uwsgi.cache_keys('small'), uwsgi.cache_set('0', 'again', 0, 'small')",
]


def call(address, expressions):
    with Client(address) as client:
        answer = client.request("POST", "/", [("Connection", "close")], json.dumps(expressions).encode())
    assert answer.status == 200, answer
    return json.loads(answer.text)["called"]


def test_each_call_has_uwsgis_result(serve, uwsgi, tmp_path, free_port):
    ours = call(serve(CONFIGURATION.format(apps="{apps}", items=3)).address(), CALLS)
    # uWSGI stores one item less than it is told.
    with real_uwsgi(uwsgi, tmp_path / "real", free_port(), CONFIGURATION.format(apps="{apps}", items=4)) as address:
        theirs = call(address, CALLS)
    different = {text: (us, them) for text, us, them in zip(CALLS, ours, theirs, strict=True) if us != them}
    assert different == {}


def test_without_a_cache_nothing_is_stored_and_nothing_fails(serve, uwsgi, tmp_path, free_port):
    calls = [
        "uwsgi.cache_set('key', 'x'), uwsgi.cache_get('key'), uwsgi.cache_exists('key'), uwsgi.cache_del('key')",
        "uwsgi.cache_update('key', 'x'), uwsgi.cache_inc('key'), uwsgi.cache_num('key'), uwsgi.cache_clear()",
        "uwsgi.cache_keys()",
        "uwsgi.cache_set('key', 7)",
    ]
    configuration = CONFIGURATION.partition("cache2")[0]
    ours = call(serve(configuration).address(), calls)
    with real_uwsgi(uwsgi, tmp_path / "real", free_port(), configuration) as address:
        assert ours == call(address, calls)
