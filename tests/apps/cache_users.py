"""Libraries that keep their caches in the server's: each path is a function that checks one of them and raises what is wrong."""

import traceback
import warnings

import django
from cachelib.uwsgi import UWSGICache
from django.conf import settings

settings.configure(
    SECRET_KEY="x",
    INSTALLED_APPS=["django.contrib.sessions"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={
        "default": {"BACKEND": "bolide.contrib.django.SharedCache", "LOCATION": "pages"},
        "short": {"BACKEND": "bolide.contrib.django.SharedCache", "LOCATION": "pages", "TIMEOUT": 1, "KEY_PREFIX": "short"},
        "small": {"BACKEND": "bolide.contrib.django.SharedCache", "LOCATION": "small"},
        "package": {"BACKEND": "uwsgicache.UWSGICache", "LOCATION": "package"},
    },
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import caches  # noqa: E402


class Unpicklable:
    def __reduce__(self):
        raise ValueError("not this one")


def check_values(cache):
    values = [
        "text",
        b"bytes",
        7,
        -1,
        2**62,
        2**80,
        True,
        None,
        1.5,
        [1, {"a": (2, 3)}],
        "",
        b"",
        "x" * 3,
        b"\0" * 8,
        frozenset("ab"),
    ]
    for value in values:
        cache.set("key", value)
        found = cache.get("key", "absent")
        assert (found, type(found)) == (value, type(value)), (found, value)
    assert cache.get("absent") is None
    assert cache.get("absent", 3) == 3
    cache.set_many({"a": 1, "b": "two"})
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": "two"}
    assert cache.delete("a")
    assert not cache.delete("a")
    cache.delete_many(["b", "key"])
    assert "b" not in cache
    assert not cache.has_key("key")
    assert cache.get_or_set("made", lambda: 5) == 5
    assert cache.get("made") == 5


def check_adding(cache):
    assert cache.add("new", 1) is True
    assert cache.add("new", 2) is False
    assert cache.get("new") == 1
    cache.clear()
    assert cache.get("new") is None


def check_numbers(cache):
    cache.set("n", 40)
    assert (cache.incr("n"), cache.incr("n", 10), cache.decr("n", 9)) == (41, 51, 42)
    assert cache.get("n") == 42
    for missing in (cache.incr, cache.decr):
        try:
            missing("absent")
        except ValueError:
            continue
        raise AssertionError("a number that does not exist was changed")
    cache.set("large", 2**63 - 1)
    assert cache.incr("large") == 2**63
    assert cache.get("large") == 2**63
    cache.set("f", 1.5)
    assert cache.incr("f") == 2.5


def check_times(cache):
    cache.set("past", 1, timeout=0)
    cache.set("negative", 1, timeout=-5)
    assert cache.get("past") is None
    assert cache.get("negative") is None
    cache.set("replaced", 1)
    cache.set("replaced", 2, timeout=0)
    assert cache.get("replaced") is None
    cache.set("kept", 1, timeout=None)
    assert cache.touch("kept", 100)
    assert cache.get("kept") == 1
    assert not cache.touch("absent", 100)
    assert cache.touch("kept", 0) is True
    assert cache.get("kept") is None


def check_versions(cache):
    cache.set("key", 1, version=1)
    cache.set("key", 2, version=2)
    assert (cache.get("key", version=1), cache.get("key", version=2)) == (1, 2)
    assert cache.incr_version("key", version=2) == 3
    assert (cache.get("key", version=2), cache.get("key", version=3)) == (None, 2)
    # What other backends can't have as a key is a warning here too.
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        cache.set("with a space", 1)
    assert warned
    assert cache.get("with a space") == 1


def check_bounds():
    cache = caches["small"]
    cache.set("key", "fits")
    # The old value must not stay instead of the new one.
    cache.set("key", "x" * 1000)
    assert cache.get("key") is None
    try:
        cache.set("key", Unpicklable())
    except ValueError:
        pass
    else:
        raise AssertionError("it was stored")
    for number in range(10):
        cache.set(f"{number}", number)
    assert len([number for number in range(10) if cache.get(f"{number}") == number]) == 3


def check_prefixes():
    caches["default"].set("key", "long")
    caches["short"].set("key", "short")
    assert (caches["default"].get("key"), caches["short"].get("key")) == ("long", "short")


def check_sessions():
    session = SessionStore()
    session["cart"] = [1, 2]
    session.save()
    again = SessionStore(session.session_key)
    assert again["cart"] == [1, 2]
    again.flush()
    assert SessionStore(session.session_key).load() == {}


def check_package():
    cache = caches["package"]
    cache.set("key", {"a": 1})
    assert cache.get("key") == {"a": 1}
    assert cache.add("key", 2) is False
    assert cache.add("other", 3) is True
    cache.delete("key")
    assert cache.get("key", "gone") == "gone"
    cache.clear()
    assert cache.get("other") is None


def check_cachelib():
    cache = UWSGICache(cache="lib")
    assert cache.get("key") is None
    assert not cache.has("key")
    assert cache.set("key", {"a": [1]})
    assert cache.get("key") == {"a": [1]}
    assert cache.has("key")
    assert cache.add("key", 2) is False
    assert cache.add("other", 3) is True
    assert cache.set_many({"x": 1, "y": 2}) == ["x", "y"]
    assert cache.get_many("x", "y", "z") == [1, 2, None]
    assert cache.inc("n") == 1
    assert cache.inc("n", 4) == 5
    assert cache.dec("n") == 4
    assert cache.delete("key")
    assert not cache.delete("key")
    assert cache.clear()
    assert cache.get("other") is None


def application(environ, start_response):
    _, name, *alias = environ["PATH_INFO"].split("/")
    try:
        globals()[f"check_{name}"](*(caches[each] for each in alias))
        said = "right"
    except Exception:
        said = traceback.format_exc()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [said.encode()]


def check_counting(cache):
    for _ in range(500):
        cache.incr("counted")


def check_begin(cache):
    cache.set("counted", 0)


def check_counted(cache):
    assert cache.get("counted") == 2000, cache.get("counted")
