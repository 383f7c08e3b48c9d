"""Locks, the queue, memory areas and metrics give the same values and exceptions as uWSGI's under the same configuration."""

import pytest
from support.expressions import evaluate
from support.real_uwsgi import real_uwsgi

CONFIGURATION = """\
wsgi-file = {apps}/expressions.py
master = true
locks = 2
queue = 8
sharedarea = size=64
sharedarea = 2
py-sharedarea = 100
metric = name=foo,type=counter
metric = name=bar,type=gauge,initial_value=7
metric = name=other,type=alias,alias=foo
disable-logging = true
"""

#: Evaluated in this order: later ones depend on earlier ones.
SAME = """\
uwsgi.lock(), uwsgi.is_locked(), uwsgi.is_locked(1), uwsgi.unlock(), uwsgi.is_locked()
uwsgi.lock(2), uwsgi.unlock(2), uwsgi.unlock(1), uwsgi.lock(True), uwsgi.unlock(True)
uwsgi.lock(3)
uwsgi.lock(-1)
uwsgi.unlock(3)
uwsgi.is_locked(3)
uwsgi.lock('x')
uwsgi.lock(1, 2)
uwsgi.lock(1.0)
uwsgi.queue_size, uwsgi.queue_pull(), uwsgi.queue_last(), uwsgi.queue_slot(), uwsgi.queue_pull_slot()
uwsgi.queue_push(b'one'), uwsgi.queue_push('two'), uwsgi.queue_push(b''), uwsgi.queue_push(b'x' * 8177)
uwsgi.queue_push(b'x' * 8176), len(uwsgi.queue_last()), uwsgi.queue_slot(), uwsgi.queue_pull_slot()
len(uwsgi.queue_pop()), uwsgi.queue_last(), uwsgi.queue_last(2), uwsgi.queue_last(99), uwsgi.queue_last(0)
uwsgi.queue_get(0), uwsgi.queue_get(1), uwsgi.queue_get(7), uwsgi.queue_get(-1), uwsgi.queue_get(100)
uwsgi.queue_pull(), uwsgi.queue_pop(), uwsgi.queue_pull()
uwsgi.queue_set(3, b'three'), uwsgi.queue_get(3), uwsgi.queue_set(8, b'x'), uwsgi.queue_set(-1, b'x'), uwsgi.queue_set(1, b'')
[uwsgi.queue_push(b'%d' % number) for number in range(11)], uwsgi.queue_slot(), uwsgi.queue_pull_slot()
[uwsgi.queue_pull() for number in range(9)]
uwsgi.queue_push(1)
uwsgi.queue_push()
uwsgi.queue_get()
uwsgi.queue_get('x')
uwsgi.sharedarea_write(0, 0, b'hello'), uwsgi.sharedarea_read(0, 0, 5), len(uwsgi.sharedarea_read(0, 0))
uwsgi.sharedarea_write(0, 0, 'text'), uwsgi.sharedarea_read(0, 0, 5), uwsgi.sharedarea_read(0, 4092)
uwsgi.sharedarea_write(0, 4094, b'xyz')
uwsgi.sharedarea_write(0, 4095, b'')
uwsgi.sharedarea_write(0, 4096, b'')
uwsgi.sharedarea_write(0, 0, 5)
uwsgi.sharedarea_read(0, 4096)
uwsgi.sharedarea_read(0, 4092, 5)
uwsgi.sharedarea_read(9, 0)
uwsgi.sharedarea_read('0', 0)
uwsgi.sharedarea_read(0)
uwsgi.sharedarea_write8(0, 8, 200), uwsgi.sharedarea_read8(0, 8), uwsgi.sharedarea_readbyte(0, 8)
uwsgi.sharedarea_write8(0, 8, 256)
uwsgi.sharedarea_write8(0, 8, -1)
uwsgi.sharedarea_write16(0, 8, 40000), uwsgi.sharedarea_read16(0, 8)
uwsgi.sharedarea_write32(0, 8, 2**31), uwsgi.sharedarea_read32(0, 8)
uwsgi.sharedarea_write32(0, 8, 2**32 + 1), uwsgi.sharedarea_read32(0, 8)
uwsgi.sharedarea_write32(0, 8, -2), uwsgi.sharedarea_read32(0, 8), uwsgi.sharedarea_inc32(0, 9, 7), uwsgi.sharedarea_dec32(0, 9)
uwsgi.sharedarea_write64(0, 8, -3), uwsgi.sharedarea_read64(0, 8), uwsgi.sharedarea_readlong(0, 8)
uwsgi.sharedarea_write64(0, 8, 2**63)
uwsgi.sharedarea_write64(0, 4089, 1)
uwsgi.sharedarea_write64(0, 4088, 1), uwsgi.sharedarea_inc64(0, 4088), uwsgi.sharedarea_inclong(0, 4088, -2)
uwsgi.sharedarea_dec64(0, 4088, 5)
uwsgi.sharedarea_read64(0, 4088), uwsgi.sharedarea_read(0, 0, 32)
uwsgi.sharedarea_inc32(0, 0, 2**31)
uwsgi.sharedarea_inc64(0, -1)
uwsgi.sharedarea_inc64(0, 4096)
uwsgi.sharedarea_inc64(0)
uwsgi.sharedarea_rlock(0), uwsgi.sharedarea_unlock(0), uwsgi.sharedarea_wlock(0), uwsgi.sharedarea_unlock(0)
uwsgi.sharedarea_rlock(5)
uwsgi.sharedarea_wlock(0), uwsgi.sharedarea_write(0, 0, b'x'), uwsgi.sharedarea_unlock(0)
type(uwsgi.sharedarea_memoryview(0)), len(uwsgi.sharedarea_memoryview(0)), uwsgi.sharedarea_memoryview(0).readonly
uwsgi.sharedarea_memoryview(0)[0], uwsgi.sharedarea_memoryview(0).format
uwsgi.sharedarea_memoryview(7)
uwsgi.sharedarea_object(7)
uwsgi.metric_get('foo'), uwsgi.metric_inc('foo'), uwsgi.metric_inc('foo', 5), uwsgi.metric_dec('foo'), uwsgi.metric_mul('foo', 3)
uwsgi.metric_div('foo', 2), uwsgi.metric_get('foo'), uwsgi.metric_div('foo', 0), uwsgi.metric_set('foo', -1)
uwsgi.metric_set_max('foo', 5), uwsgi.metric_set_min('foo', 3), uwsgi.metric_get('foo'), uwsgi.metric_get('other')
uwsgi.metric_set_min('bar', 9), uwsgi.metric_set_min('bar', 8), uwsgi.metric_set_min('bar', 6), uwsgi.metric_get('bar')
uwsgi.metric_get('nothing'), uwsgi.metric_inc('nothing'), uwsgi.metric_inc('worker.1.requests'), uwsgi.metric_inc('other')
uwsgi.metric_set('foo'), uwsgi.metric_get('foo')
uwsgi.metric_inc()
uwsgi.metric_inc(b'foo')
uwsgi.metric_inc('foo', 'x')
len(uwsgi.sharedarea_object(2)), len(uwsgi.sharedarea_read(1, 0)), len(uwsgi.sharedarea_read(2, 0))
"""


@pytest.fixture
def real(uwsgi, tmp_path, free_port):
    """Starts uWSGI itself with the same configuration. Returns its address."""
    with real_uwsgi(uwsgi, tmp_path, free_port(), CONFIGURATION) as address:
        yield address


def test_each_call_has_uwsgis_value_or_exception(serve, real):
    expressions = SAME.splitlines()
    theirs = dict(zip(expressions, evaluate(real, *expressions)))
    assert dict(zip(expressions, evaluate(serve(CONFIGURATION).address(), *expressions))) == theirs
