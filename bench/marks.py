"""The performance targets of Bolide: one table, judged against the results. A missed target never fails a run.

Pure functions on the results; runs in the suite's own process.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import figures, queueing
from .interpreters import is_eager
from .servers import COMPETITORS, NGINX, OURS, REFERENCE

MET, NOT_MET, NOT_MEASURED = "met", "NOT MET", "not measured"
BYTES_IN_KB = 1024
BYTES_IN_MB = 1024 * 1024


@dataclass(frozen=True)
class Verdict:
    """`value` is None if there was nothing to judge; `detail` is for people."""

    value: float | None
    detail: str


@dataclass(frozen=True)
class Mark:
    """`measure` computes a Verdict from a scenario's results; the target is met if the value is at most `most`."""

    scenario: str
    promise: str
    most: float
    measure: Callable


NOTHING = Verdict(None, "")


def _ratio_to(other, label=OURS):
    """Returns Bolide's cost as a multiple of another server's; `python` is the version that both run on, if there are several."""

    def measure(results, python=None):
        theirs = other if other in (REFERENCE, NGINX) else figures.labeled(other, python)
        found = figures.ratio(results, figures.labeled(label, python), theirs)
        return Verdict(found.median, _ratio_text(found)) if found else NOTHING

    return measure


def _worst_way(other):
    """Returns the largest of Bolide's ratios to another server, among the same variants."""

    def measure(results):
        ways = [label.removeprefix(other) for label, found in results.items() if found["server"] == other]
        ratios = {way: figures.ratio(results, OURS + way, other + way) for way in ways}
        ratios = {way: found for way, found in ratios.items() if found}
        if not ratios:
            return NOTHING
        worst = max(ratios, key=lambda way: ratios[way].median)
        return Verdict(ratios[worst].median, f"{_ratio_text(ratios[worst])} in the worst of {len(ratios)} ways, {worst.strip()}")

    return measure


def _asynchronous(measure):
    """Judged on the newest Python with eager tasks (3.12 and later); the value on other versions is in the detail."""

    def judge_newest(results):
        found = {python: measure(results, python) for python in figures.pythons(results)}
        judged = next((python for python in found if is_eager(python) and found[python].value is not None), None)
        if judged is None:
            return NOTHING
        others = "".join(
            f", and {verdict.detail} on {python}" for python, verdict in found.items() if python != judged and verdict.detail
        )
        return Verdict(found[judged].value, f"{found[judged].detail} on Python {judged}{others}")

    return judge_newest


def _ratio_text(found):
    return f"{found.median:.3f} × ({found.low:.3f}–{found.high:.3f} in {found.rounds} rounds)"


def _ratio_to_nearest(results, python=None):
    """Compares only with servers that do everything that belongs to a request: a server that omits part of it is cheaper for that
    reason.
    """
    ours = figures.labeled(OURS, python)
    ratios = {name: figures.ratio(results, ours, figures.labeled(name, python)) for name in COMPETITORS}
    ratios = {name: found for name, found in ratios.items() if found}
    apart = [name for name in ratios if results[figures.labeled(name, python)].get("undone")]
    ratios = {name: found for name, found in ratios.items() if name not in apart}
    if not ratios:
        return NOTHING
    nearest = max(ratios, key=lambda name: ratios[name].median)
    less = f", apart from {' and '.join(apart)} (without close())" if apart else ""
    return Verdict(ratios[nearest].median, f"{_ratio_text(ratios[nearest])}, the nearest is {nearest}{less}")


def _failed_requests(results):
    if OURS not in results:
        return NOTHING
    counts = results[OURS]
    stopped = f"; ab gave up: {counts['stopped']}" if counts["stopped"] else ""
    return Verdict(counts["failed"] + counts["non_2xx"], f"{counts['failed']} failed, {counts['non_2xx']} not 2xx{stopped}")


def _socket_errors(results):
    if OURS not in results:
        return NOTHING
    errors = results[OURS]["errors"]
    return Verdict(sum(errors.values()), ", ".join(f"{kind} {count}" for kind, count in errors.items()))


def _largest_share(results):
    if OURS not in results:
        return NOTHING
    worst = results[OURS]["worst"]
    return Verdict(worst["largest_share"], f"{':'.join(map(str, worst['counts']))} ({worst['how']}, the worst sample)")


def _idle_bytes(results, python=None):
    """Only if the server still held every connection that it was asked to hold."""
    ours = figures.labeled(OURS, python)
    if ours not in results:
        return NOTHING
    found = results[ours]
    if found["still_open"] < found["wanted"]:
        held = f"it held {found['still_open']} of {found['wanted']} connections"
        return Verdict(float("inf"), f"{held} ({found['problem'] or 'the others were closed'})")
    return Verdict(found["bytes_per_connection"] / BYTES_IN_KB, f"{found['bytes_per_connection']:.0f} bytes each")


def _idle_answer(results, python=None):
    ours = figures.labeled(OURS, python)
    if ours not in results:
        return NOTHING
    worst = 0.0
    for which in ("new_connection", "old_connection"):
        probe = results[ours][which]
        if probe is None or probe["problem"]:
            return Verdict(float("inf"), f"{which.replace('_', ' ')}: {probe['problem'] if probe else 'none was open'}")
        worst = max(worst, probe["milliseconds"])
    return Verdict(worst, f"{worst:.1f} ms, the slower of a new and an old connection")


def _failed_transfers(results):
    if OURS not in results:
        return NOTHING
    found = results[OURS]
    failed = sum(run["failed"] for run in found.values())
    details = [
        f"{name}: {run['failed']} of {run['wanted']} failed, memory of its own at most {run['own_mb']:.0f} MB"
        for name, run in found.items()
    ]
    return Verdict(failed, "; ".join(details))


def _idle_bytes_beside(other):
    """Returns the cost of an idle connection as a multiple of another server's, if both still hold all connections."""

    def measure(results, python=None):
        ours, theirs = (results.get(figures.labeled(name, python)) for name in (OURS, other))
        if not (ours and theirs) or theirs["still_open"] < theirs["wanted"]:
            return NOTHING
        if ours["still_open"] < ours["wanted"]:
            return Verdict(float("inf"), f"it held {ours['still_open']} of {ours['wanted']} connections")
        value = ours["bytes_per_connection"] / theirs["bytes_per_connection"]
        return Verdict(value, f"{value:.3f} ×, {ours['bytes_per_connection']:.0f} bytes each")

    return measure


def _events_missing(results, python=None):
    found = results.get(figures.labeled(OURS, python))
    if found is None:
        return NOTHING
    problem = f" ({found['problem']})" if found["problem"] else ""
    return Verdict(found["expected"] - found["delivered"], f"{found['delivered']:,} of {found['expected']:,}{problem}")


def _growth_of_streams(results, python=None):
    found = results.get(figures.labeled(OURS, python))
    if found is None or found["delivered"] < found["expected"]:
        return NOTHING
    grown = (found["bytes_at_end"] - found["bytes_at_start"]) / BYTES_IN_KB
    return Verdict(grown, f"{grown:.0f} KB in {found['events_between']:,} events")


def _memory(workers):
    def measure(results):
        if OURS not in results:
            return NOTHING
        used = figures.figure(value / BYTES_IN_MB for value in results[OURS][str(workers)]["pss"])
        return Verdict(used.median, f"{used.median:.1f} MB")

    return measure


def _waiting(shape, which, *, kept):
    """Returns Bolide's response time as a multiple of the ideal's, at the point that is common to all shapes."""
    workers, threads = map(int, shape.split("x"))

    def measure(results):
        point = queueing.Point(workers, threads, queueing.VIEW_MS, queueing.LOAD, kept)
        entry = results.get(point.name, {}).get("servers", {}).get(OURS)
        if entry is None:
            return NOTHING
        if entry["failed"]:
            return Verdict(float("inf"), f"{entry['failed']} of {entry['requests']} requests failed")
        found = queueing.ratio(entry, "response", which)
        return Verdict(found.median, _ratio_text(found)) if found else NOTHING

    return measure


def _startup(results):
    found = figures.beyond_import(results["django_view"], OURS) if "django_view" in results else None
    if found is None:
        return NOTHING
    text = f"{found.median * 1000:.0f} ms ({found.low * 1000:.0f}–{found.high * 1000:.0f})"
    return Verdict(found.median * 1000, text)


MARKS = [
    Mark("hello", "at most 1.20 × the limit program", 1.20, _ratio_to(REFERENCE)),
    Mark("hello", "at most 0.90 × the nearest competitor", 0.90, _ratio_to_nearest),
    Mark("hello", "at most 0.88 × fastpysgi", 0.88, _ratio_to("fastpysgi")),
    Mark("hello", "at most 0.82 × bjoern", 0.82, _ratio_to("bjoern")),
    Mark("hello", "at most 0.55 × granian", 0.55, _ratio_to("granian")),
    Mark("hello", "at most 0.25 × uWSGI (http11-socket)", 0.25, _ratio_to("uwsgi")),
    Mark("logging", "request logging costs at most 5 % more", 1.05, _ratio_to(OURS, f"{OURS} + log")),
    Mark("fibonacci", "at most 0.95 × the nearest competitor", 0.95, _ratio_to_nearest),
    Mark("django", "at most 0.97 × the nearest competitor", 0.97, _ratio_to_nearest),
    Mark("nginx-uwsgi", "at most 0.8 × uWSGI's own CPU", 0.8, _ratio_to("uwsgi")),
    Mark("nginx-django", "by no way more than uWSGI's own CPU", 1.0, _worst_way("uwsgi")),
    Mark("threads", "four threads cost at most 10 % more than one", 1.10, _ratio_to(OURS, f"{OURS} 4 threads")),
    Mark("threads-django", "four threads cost at most 5 % more than one", 1.05, _ratio_to(OURS, f"{OURS} 4 threads")),
    Mark("threads-flask", "four threads cost at most 5 % more than one", 1.05, _ratio_to(OURS, f"{OURS} 4 threads")),
    Mark("fresh-ways", "by no way more than 0.95 × uWSGI's CPU", 0.95, _worst_way("uwsgi")),
    Mark("cached", "an answer from the cache costs at most 0.85 × hello", 0.85, _ratio_to(f"{OURS} hello")),
    Mark("static-1k", "at most 0.85 × nginx", 0.85, _ratio_to(NGINX)),
    Mark("static-30k", "at most 0.85 × nginx", 0.85, _ratio_to(NGINX)),
    Mark("static-100k", "at most 0.85 × nginx", 0.85, _ratio_to(NGINX)),
    Mark("static-20m", "at most 1.05 × nginx", 1.05, _ratio_to(NGINX)),
    Mark("static-100m", "at most 1.05 × nginx", 1.05, _ratio_to(NGINX)),
    Mark("static-304", "at the cost of hello world", 1.05, _ratio_to(f"{OURS} hello")),
    Mark("static-transfers", "no failed transfer, and every byte right", 0, _failed_transfers),
    Mark("waiting", "4x1, new connection per request: mean at most 1.05 × ideal", 1.05, _waiting("4x1", "mean", kept=False)),
    Mark("waiting", "4x1, new connection per request: p99 at most 1.05 × ideal", 1.05, _waiting("4x1", "p99", kept=False)),
    Mark("waiting", "4x1, keep-alive connections: mean at most 1.08 × ideal", 1.08, _waiting("4x1", "mean", kept=True)),
    Mark("waiting", "4x1, keep-alive connections: p99 at most 1.12 × ideal", 1.12, _waiting("4x1", "p99", kept=True)),
    Mark("waiting", "2x4, new connection per request: mean at most 1.05 × ideal", 1.05, _waiting("2x4", "mean", kept=False)),
    Mark("waiting", "2x4, new connection per request: p99 at most 1.10 × ideal", 1.10, _waiting("2x4", "p99", kept=False)),
    Mark("waiting", "1x8, new connection per request: mean at most 1.03 × ideal", 1.03, _waiting("1x8", "mean", kept=False)),
    Mark("waiting", "1x8, keep-alive connections: mean at most 1.03 × ideal", 1.03, _waiting("1x8", "mean", kept=True)),
    Mark("ab", "no failed request", 0, _failed_requests),
    Mark("wrk-1000", "no socket error", 0, _socket_errors),
    Mark("balance", "never further apart than 60:40", 0.60, _largest_share),
    Mark("idle-connections", "at most 6 KB for each connection", 6.0, _idle_bytes),
    Mark("idle-connections", "a new request is served at once (within 50 ms)", 50.0, _idle_answer),
    Mark("memory", "1 worker: at most 42 MB", 42.0, _memory(1)),
    Mark("memory", "5 workers: at most 52 MB", 52.0, _memory(5)),
    Mark("memory", "10 workers: at most 64 MB", 64.0, _memory(10)),
    Mark("startup", "first answer at most 80 ms later than the application's import alone", 80.0, _startup),
    Mark("asgi-hello", "at most 1.35 × the limit program", 1.35, _asynchronous(_ratio_to(REFERENCE))),
    Mark("asgi-hello", "at most 0.88 × the nearest competitor", 0.88, _asynchronous(_ratio_to_nearest)),
    Mark("asgi-hello", "at most 0.5 × uvicorn", 0.5, _asynchronous(_ratio_to("uvicorn"))),
    Mark("asgi-hello", "at most 0.5 × granian", 0.5, _asynchronous(_ratio_to("granian"))),
    Mark("asgi-hello", "at most 0.55 × fastpysgi", 0.55, _asynchronous(_ratio_to("fastpysgi"))),
    Mark("asgi-sleep", "at most 0.7 × uvicorn", 0.7, _asynchronous(_ratio_to("uvicorn"))),
    Mark("asgi-starlette", "not behind any competitor", 1.0, _asynchronous(_ratio_to_nearest)),
    Mark("asgi-fastapi", "not behind any competitor", 1.0, _asynchronous(_ratio_to_nearest)),
    Mark("asgi-post", "at most 0.6 × uvicorn", 0.6, _asynchronous(_ratio_to("uvicorn"))),
    Mark("websocket-echo", "at most 0.6 × uvicorn's CPU of a message", 0.6, _asynchronous(_ratio_to("uvicorn"))),
    Mark("event-streams", "no event is lost", 0, _asynchronous(_events_missing)),
    Mark("event-streams", "memory is flat: at most 1 MB more at the end", 1024, _asynchronous(_growth_of_streams)),
    Mark("idle-websockets", "a few KB for each socket: at most 8", 8.0, _asynchronous(_idle_bytes)),
    Mark("tls-hello", "at most 1.25 × nginx, which answers out of its memory", 1.25, _ratio_to(NGINX)),
    Mark("tls-hello", "ahead of every competitor", 1.0, _ratio_to_nearest),
    Mark("tls-asgi-hello", "ahead of every competitor", 1.0, _asynchronous(_ratio_to_nearest)),
    # 0.9 × the bytes and the handshakes a second of the same CPU.
    Mark("tls-file", "at most 1.11 × nginx", 1 / 0.9, _ratio_to(NGINX)),
    Mark("tls-handshakes", "at most 1.11 × nginx", 1 / 0.9, _ratio_to(NGINX)),
    Mark("tls-resumptions", "at most 1.11 × nginx", 1 / 0.9, _ratio_to(NGINX)),
    Mark("tls-idle", "no more bytes for each connection than granian", 1.0, _asynchronous(_idle_bytes_beside("granian"))),
    Mark("h2-hello-tls", "at most 0.6 × granian", 0.6, _ratio_to("granian")),
    Mark("h2-hello-tls", "at most hypercorn", 1.0, _ratio_to("hypercorn-wsgi")),
    Mark("h2-hello-h2c", "at most 0.6 × granian", 0.6, _ratio_to("granian")),
    Mark("h2-hello-h2c", "at most hypercorn", 1.0, _ratio_to("hypercorn-wsgi")),
    Mark("h2-asgi-hello-tls", "at most 0.6 × granian", 0.6, _asynchronous(_ratio_to("granian"))),
    Mark("h2-asgi-hello-tls", "at most hypercorn", 1.0, _asynchronous(_ratio_to("hypercorn"))),
    Mark("h2-asgi-hello-h2c", "at most 0.6 × granian", 0.6, _asynchronous(_ratio_to("granian"))),
    Mark("h2-asgi-hello-h2c", "at most hypercorn", 1.0, _asynchronous(_ratio_to("hypercorn"))),
    Mark(
        "idle-websockets",
        "a message on a new one or an old one is echoed at once (within 50 ms)",
        50.0,
        _asynchronous(_idle_answer),
    ),
]


def judge(scenarios):
    """Returns a dict for each target: scenario, promise, most, value, detail, state."""
    verdicts = []
    for mark in MARKS:
        verdict = mark.measure(scenarios[mark.scenario]["results"]) if mark.scenario in scenarios else NOTHING
        state = NOT_MEASURED if verdict.value is None else MET if verdict.value <= mark.most else NOT_MET
        verdicts.append(
            {
                "scenario": mark.scenario,
                "promise": mark.promise,
                "most": mark.most,
                # JSON has no infinity; the detail says what happened.
                "value": None if verdict.value in (None, float("inf")) else verdict.value,
                "detail": verdict.detail,
                "state": state,
            }
        )
    return verdicts
