"""Waiting: the schedule of requests, the ideal queue that serves it, and what a server adds to that.

Pure functions, in the suite's own process; nothing here knows how a server is started or asked.
"""

import heapq
import random
from dataclasses import dataclass

from .figures import figure

# What is told of each distribution of times.
PARTS = {"p95": 0.95, "p99": 0.99}
KEPT_CONNECTIONS = 64
# Where workers x threads are compared, and what one of both is varied from.
VIEW_MS, LOAD = 100, 80


@dataclass(frozen=True)
class Point:
    """Where waiting is measured: views of `view_ms` on the average, `load` percent of what workers x threads can do."""

    workers: int
    threads: int
    view_ms: int
    load: int
    kept: bool

    @property
    def servers(self):
        return self.workers * self.threads

    @property
    def rate(self):
        """Requests a second."""
        return self.load / 100 * self.servers * 1000 / self.view_ms

    @property
    def shape(self):
        return f"{self.workers}x{self.threads}"

    @property
    def connections(self):
        return "kept" if self.kept else "fresh"

    @property
    def name(self):
        return f"{self.shape} {self.connections} {self.view_ms} ms {self.load} %"


def schedule(point, count, seed):
    """[(arrival, service)] in microseconds: arrivals of a Poisson process, service times of an exponential distribution.

    The seed alone makes the difference: servers, and fresh and kept connections, get the same requests, and other loads and
    other views the same stretched by a factor, so neighbours on a chart have the same luck.
    """
    chance = random.Random(f"waiting {seed}")
    arrival, requests = 0.0, []
    for _ in range(count):
        arrival += chance.expovariate(1.0) * 1e6 / point.rate
        requests.append((int(arrival), int(chance.expovariate(1.0) * 1000 * point.view_ms)))
    return requests


def ideal(requests, servers):
    """The time of each request, in microseconds, where one queue stands before so many servers, first come first served."""
    free_at = [0] * servers
    took = []
    for arrival, service in requests:
        began = max(arrival, heapq.heappop(free_at))
        heapq.heappush(free_at, began + service)
        took.append(began + service - arrival)
    return took


def figures_of(requests, took):
    """{"response": {"mean", "p95", "p99"}, "waiting": {…}} in milliseconds, of the requests that were answered."""
    answered = [(time, time - service) for time, (_, service) in zip(took, requests, strict=True) if time >= 0]
    columns = zip(*answered, strict=True) if answered else ([], [])
    return {name: _distribution(values) for name, values in zip(("response", "waiting"), columns, strict=True)}


def _distribution(values):
    ordered = sorted(values)
    if not ordered:
        return {"mean": None, **dict.fromkeys(PARTS)}
    at = {name: ordered[min(int(part * len(ordered)), len(ordered) - 1)] / 1000 for name, part in PARTS.items()}
    return {"mean": sum(ordered) / len(ordered) / 1000, **at}


def ratio(entry, of, which):
    """Figure over the rounds of what was measured as a multiple of the ideal: `of` is response or waiting, `which` of its parts.

    None where nothing was answered, or nobody would have to wait.
    """
    pairs = [(one["measured"][of][which], one["ideal"][of][which]) for one in entry["rounds"]]
    return figure(measured / best for measured, best in pairs if measured is not None and best)


def waits(entry, which):
    """Milliseconds that a request waits for a worker: the ideal's, of all rounds, times the ratio. None where there is none."""
    found = ratio(entry, "waiting", which)
    return found and found.median * entry["ideal"]["waiting"][which]
