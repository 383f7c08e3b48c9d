"""`cache2`: a cache that all processes share, over reloads, upgrades and restarts, and over deaths of its writers."""

import os
import re
import signal
import subprocess

from support.expressions import Evaluation, evaluate, value
from support.server import APPS, program
from support.statistics import read_statistics
from support.waiting import wait_until
from support_upgrade import SERVES, upgrade

CONFIGURATION = """
wsgi-file = {apps}/expressions.py
master = true
processes = 2
disable-logging = true
cache2 = name=pages,items=100,blocksize=1000
"""
READY = r"^bolide: ready: "
#: Each kill hits the writer inside the lock with a probability of more than a half.
MAX_KILLS = 60


def test_what_one_process_stores_the_others_read_and_the_application_may_store_while_it_is_loaded(serve, tmp_path):
    (tmp_path / "stores.py").write_text("import uwsgi\nassert uwsgi.cache_set('loaded', 'early')\n")
    server = serve(f"{CONFIGURATION}pythonpath = {tmp_path}\nimport = stores")
    first = Evaluation(server.address(), "os.getpid(), uwsgi.cache_set('key', 'x')", "await_it('read')")
    wait_until(lambda: value(server.address(), "uwsgi.cache_get('key')") == "b'x'", "the other process reads it")
    reader, loaded, _ = evaluate(server.address(), "os.getpid()", "uwsgi.cache_get('loaded')", "there('read')")
    assert first.result()[0] != f"({reader}, True)"
    assert loaded == "b'early'"


def test_a_reload_keeps_a_cache_and_other_settings_begin_an_empty_one(serve):
    server = serve(CONFIGURATION + "cache2 = name=other,items=10")
    assert value(server.address(), "uwsgi.cache_set('key', 'x'), uwsgi.cache_set('key', 'y', 0, 'other')") == "(True, True)"
    # What only changes the behavior of processes, or the order, keeps the memory.
    server.configure(
        CONFIGURATION.replace("items=100", "items=100,purge_lru=1").replace("cache2", "cache2 = name=other,items=20\ncache2")
    )
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(READY, count=2)
    server.wait_for_log(r'^bolide: reload: cache "other": its settings have changed, so it starts empty$')
    read = "uwsgi.cache_get('key', 'pages'), uwsgi.cache_get('key', 'other')"
    # A worker of the old generation may have taken a connection before.
    wait_until(lambda: value(server.address(), read) == "(b'x', None)", "the new generation answers")
    assert 'cache "pages"' not in server.everything()


def test_an_upgrade_hands_a_cache_on(upgradable, tmp_path):
    options = ("--wsgi-file", APPS / "expressions.py", "--cache2", "name=pages,items=100", "--processes", "2")
    instance = upgradable(*options, module=None)
    assert value(instance.address(), "uwsgi.cache_set('key', 'x')") == "True"
    upgrade(tmp_path)
    instance.wait_for_log(SERVES)
    # The old master's workers have exited, and the new one's write to the same memory.
    assert value(instance.address(), "uwsgi.cache_get('key'), uwsgi.cache_update('key', 'y')") == "(b'x', True)"
    assert value(instance.address(), "uwsgi.cache_get('key')") == "b'y'"


def test_writers_that_are_killed_block_no_other_and_tear_no_value(serve):
    server = serve(CONFIGURATION.replace("blocksize=1000", "blocksize=60000"))
    server.expects_alarms = True
    letters = "all(uwsgi.cache_update('key', letter * 60000) for letter in itertools.cycle('ab'))"
    dead = r"^bolide: pid {} died while it changed the cache \"pages\" \(the write that it had begun is dropped\): repaired$"
    pids, died_inside = set(), 0
    while died_inside < 3:
        before = len(pids)
        writer = Evaluation(server.address(), "open('pid', 'w').write(str(os.getpid()) + '.')", letters)
        text = wait_until(lambda: (server.directory / "pid").exists() and (server.directory / "pid").read_text(), "it writes")
        pid = int(text.rstrip("."))
        wait_until(lambda: value(server.address(), "uwsgi.cache_get('key') is not None") == "True", "it has written")
        os.kill(pid, signal.SIGKILL)
        assert writer.result() is None
        (server.directory / "pid").unlink()
        pids.add(pid)
        assert len(pids) == before + 1
        # Another process reads a whole value, and writes, at the same time.
        read = "len(uwsgi.cache_get('key')), len(set(uwsgi.cache_get('key'))), uwsgi.cache_update('other', 'x')"
        assert value(server.address(), read) == "(60000, 1, True)"
        server.wait_for_log(rf"^bolide: worker \d+ \(pid {pid}\) was killed by SIGKILL")
        died_inside += any(re.search(dead.format(pid), line) for line in server.everything().splitlines())
        assert before < MAX_KILLS, "no writer was killed inside the lock"
    assert evaluate(server.address(), "uwsgi.cache_clear()", "uwsgi.cache_keys()") == ["True", "[]"]


def test_a_writer_that_harakiri_kills_blocks_no_other_and_tears_no_value(serve):
    server = serve(CONFIGURATION.replace("blocksize=1000", "blocksize=60000") + "harakiri = 1")
    server.expects_alarms = True
    letters = "all(uwsgi.cache_update('key', letter * 60000) for letter in itertools.cycle('ab'))"
    writer = Evaluation(server.address(), letters)
    assert writer.result() is None
    server.wait_for_log(r"harakiri: killing worker")
    read = "len(uwsgi.cache_get('key')), len(set(uwsgi.cache_get('key'))), uwsgi.cache_update('key', 'x')"
    assert value(server.address(), read) == "(60000, 1, True)"


def test_a_full_cache_is_said_once_and_stores_nothing_new(serve):
    server = serve(CONFIGURATION.replace("items=100", "items=3"))
    stored = "[uwsgi.cache_set(str(number), 'x') for number in range(6)], len(uwsgi.cache_keys())"
    assert value(server.address(), stored) == "([True, True, True, None, None, None], 3)"
    full = r'^bolide: WARNING: the cache "pages" is full \(3 items\): new items are not stored; '
    server.wait_for_log(full)
    assert value(server.address(), "uwsgi.cache_set('more', 'x'), uwsgi.cache_del('0'), uwsgi.cache_set('more', 'x')")
    assert len(re.findall(full, server.everything(), re.MULTILINE)) == 1


def stored(tmp_path, more=""):
    file = tmp_path / "pages.cache"
    return file, f"{CONFIGURATION.strip()},store={file}{more}\n"


def test_a_cache_with_a_file_survives_a_restart_and_the_death_of_all_processes(serve, tmp_path):
    file, configuration = stored(tmp_path, ",store_sync=1")
    server = serve(configuration)
    assert value(server.address(), "uwsgi.cache_set('key', 'x'), uwsgi.cache_set('timed', 'y', 1000)") == "(True, True)"
    assert os.stat(file).st_mode & 0o777 == 0o600
    # A sparse file takes the room of its items.
    assert os.stat(file).st_blocks * 512 < os.stat(file).st_size
    server.stop()
    second = serve(configuration)
    second.wait_for_log(r'^bolide: cache "pages": its file contains 2 items$')
    assert value(second.address(), "uwsgi.cache_get('key'), uwsgi.cache_get('timed')") == "(b'x', b'y')"
    assert value(second.address(), "uwsgi.cache_update('key', 'z'), uwsgi.cache_del('timed')") == "(True, True)"
    second.expects_alarms = True
    os.kill(second.process.pid, signal.SIGKILL)
    wait_until(lambda: not second.processes(), "all of its processes have exited")
    third = serve(configuration)
    third.wait_for_log(r'^bolide: cache "pages": its file contains 1 item$')
    assert value(third.address(), "uwsgi.cache_get('key'), uwsgi.cache_keys()") == "(b'z', [b'key'])"


#: A file system of 2 MiB, for a program and its children only.
SMALL_DISK = 'mkdir "$0" && mount -t tmpfs -o size=2m none "$0" && exec "$@"'


def test_a_full_disk_refuses_new_values_and_kills_no_process(serve, tmp_path):
    disk = tmp_path / "disk"
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    _, configuration = stored(disk)
    configuration = configuration.replace("blocksize=1000", "blocksize=100000")
    server = serve(configuration, command=[*unshare, "sh", "-c", SMALL_DISK, disk, *program()])
    update = "uwsgi.cache_update(str(number), str(number % 10) * 100000)"
    results = value(server.address(), f"''.join(str({update})[0] for number in range(30))")
    assert re.fullmatch("'T{5,20}N+'", results)
    # Stored values can be replaced, and the room of a removed one is used again.
    assert value(server.address(), "uwsgi.cache_get('29'), len(set(uwsgi.cache_get('0')))") == "(None, 1)"
    for _ in range(10):
        assert value(server.address(), "uwsgi.cache_update('0', 'y' * 100000)") == "True"
        assert value(server.address(), "uwsgi.cache_del('1'), uwsgi.cache_set('1', 'z' * 100000)") == "(True, True)"


def test_a_file_of_another_sort_is_said_and_not_destroyed(serve, tmp_path):
    file, configuration = stored(tmp_path)
    file.write_text("a letter to a friend")
    server = serve(configuration)
    server.wait_for_log(r'^bolide: cache "pages": .*pages.cache is renamed to .*pages.cache.broken, because it has 20 bytes, not')
    assert value(server.address(), "uwsgi.cache_set('key', 'x')") == "True"
    server.stop()
    assert (tmp_path / "pages.cache.broken").read_text() == "a letter to a friend"
    # The second one is refused, because there is no other name for it.
    file.write_text("another letter")
    refused = serve.prepare(configuration).launch()
    assert refused.wait_for_exit() != 0
    assert "pages.cache.broken exists: remove one of them" in refused.everything()
    deleting = serve(configuration.replace("store=", "store_delete=1,store="))
    deleting.wait_for_log(r"pages.cache is removed \(store_delete\)")
    assert value(deleting.address(), "uwsgi.cache_keys()") == "[]"


def test_a_file_with_other_settings_begins_empty_also_in_a_reload(serve, tmp_path):
    _, configuration = stored(tmp_path)
    server = serve(configuration)
    assert value(server.address(), "uwsgi.cache_set('key', 'x')") == "True"
    held = Evaluation(
        server.address(), "there('in')", "await_it('go')", "uwsgi.cache_update('old', 'y')", "uwsgi.cache_get('key')"
    )
    wait_until((server.directory / "in").exists, "an old worker has a request")
    old = set(server.workers())
    server.configure(configuration.replace("items=100", "items=200"))
    server.send_signal(signal.SIGHUP)
    server.wait_for_log(READY, count=2)
    server.wait_for_log(
        r'^bolide: reload: cache "pages": .* is not used, because it has \d+ bytes, not \d+: the cache starts empty$'
    )
    wait_until(lambda: value(server.address(), "uwsgi.cache_keys()") == "[]", "the new generation answers")
    # Until its end, the other one may take a connection.
    wait_until(lambda: len(old & set(server.workers())) == 1, "the end of the old worker without a request")
    assert value(server.address(), "uwsgi.cache_set('key', 'new')") == "True"
    # The old worker still has its cache, in the file without a name.
    (server.directory / "go").touch()
    assert held.result()[2:] == ["True", "b'x'"]
    assert value(server.address(), "uwsgi.cache_keys()") == "[b'key']"


def test_two_instances_do_not_share_a_file(serve, tmp_path):
    _, configuration = stored(tmp_path)
    serve(configuration)
    second = serve.prepare(configuration).launch()
    assert second.wait_for_exit() != 0
    assert "pages.cache: another instance uses it: give each instance its own file" in second.everything()


def test_the_cache_of_the_option_cache_is_the_first_one(serve, tmp_path):
    server = serve(
        f"""
        wsgi-file = {{apps}}/expressions.py
        master = true
        cache2 = name=other,items=10
        cache = 3
        cache-blocksize = 10
        cache-store = {tmp_path}/default.cache
        cache-store-sync = 1
        cache-no-expire = true
        cache-use-last-modified = true
        cache-expire-freq = 10
        cache-report-freed-items = true
        """
    )
    calls = ["uwsgi.cache_set('key', 'x' * 10)", "uwsgi.cache_set('more', 'x' * 11)", "uwsgi.cache_get('key', 'default')"]
    assert evaluate(server.address(), *calls, "uwsgi.cache_get('key', 'other')") == ["True", "None", f"b'{'x' * 10}'", "None"]
    # Nothing expires.
    assert value(server.address(), "uwsgi.cache_set('timed', 'x', -1), uwsgi.cache_get('timed')") == "(True, b'x')"
    assert (tmp_path / "default.cache").exists()


def test_an_item_is_not_returned_after_its_time(serve):
    server = serve(CONFIGURATION)
    assert value(server.address(), "uwsgi.cache_set('key', 'x', 1), uwsgi.cache_set('kept', 'y', 1000)") == "(True, True)"
    read = "uwsgi.cache_get('key'), uwsgi.cache_exists('key'), uwsgi.cache_keys(), uwsgi.cache_get('kept')"
    wait_until(lambda: value(server.address(), read) == "(None, None, [b'kept'], b'y')", "it has expired")
    assert value(server.address(), "uwsgi.cache_set('key', 'again'), uwsgi.cache_get('key')") == "(True, b'again')"


def test_statistics_and_status_have_the_numbers_of_each_cache(serve):
    server = serve(CONFIGURATION + "cache2 = name=other,items=1,blocksize=10,lastmod=1\nstats = {directory}/stats.sock")
    calls = ["uwsgi.cache_set('key', 'x')", "uwsgi.cache_get('key')", "uwsgi.cache_get('absent'), uwsgi.cache_get('key')"]
    evaluate(server.address(), *calls, "uwsgi.cache_set('a', 'x' * 11, 0, 'other'), uwsgi.cache_set('a', 'x', 0, 'other')")
    assert value(server.address(), "uwsgi.cache_set('b', 'x', 0, 'other')") == "None"
    pages, other = read_statistics(str(server.directory / "stats.sock"))["caches"]
    assert (pages["name"], pages["items"], pages["max_items"], pages["hits"], pages["miss"]) == ("pages", 1, 100, 2, 1)
    assert (pages["blocksize"], pages["keysize"], pages["blocks"], pages["last_modified_at"]) == (1000, 2048, 100, 0)
    assert (other["items"], other["full"], other["refused"]) == (1, 1, 1)
    assert other["last_modified_at"] > 1_700_000_000
    said = subprocess.run([*program(), "status", str(server.process.pid)], capture_output=True, text=True, check=True).stdout
    assert "cache pages: 1 of 100 items, 2 hits, 1 miss\n" in said
    assert "cache other: 1 of 1 items, 0 hits, 0 misses, full once\n" in said
