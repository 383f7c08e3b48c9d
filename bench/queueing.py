"""Queueing model: the schedule of requests, the ideal queue that serves it, and the waiting that a server adds to it.

Pure functions, in the suite's own process; they do not know how a server is started or asked.
"""

import heapq
import random
from dataclasses import dataclass

from .figures import figure

# The reported statistics of each distribution of times.
PARTS = {"p95": 0.95, "p99": 0.99}
KEPT_CONNECTIONS = 64
# The point at which workers x threads are compared, and from which one of both is varied.
VIEW_MS, LOAD = 100, 80


@dataclass(frozen=True)
class Point:
    """A measuring point: views of `view_ms` on average, at `load` percent of the capacity of workers x threads."""

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
        """Requests per second."""
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
    """Returns [(arrival, service)] in microseconds: arrivals of a Poisson process, service times of an exponential distribution.

    It depends on the seed only: all servers, and new and keep-alive connections, get the same requests. Other loads and other
    views get the same sequence scaled by a factor, so that neighbors on a chart have the same random variation.
    """
    chance = random.Random(f"waiting {seed}")
    arrival, requests = 0.0, []
    for _ in range(count):
        arrival += chance.expovariate(1.0) * 1e6 / point.rate
        requests.append((int(arrival), int(chance.expovariate(1.0) * 1000 * point.view_ms)))
    return requests


def ideal(requests, servers):
    """Returns the time of each request, in microseconds, with one first-come-first-served queue in front of `servers` servers."""
    free_at = [0] * servers
    took = []
    for arrival, service in requests:
        began = max(arrival, heapq.heappop(free_at))
        heapq.heappush(free_at, began + service)
        took.append(began + service - arrival)
    return took


def figures_of(requests, took):
    """Returns {"response": {"mean", "p95", "p99"}, "waiting": {…}} in milliseconds, of the answered requests."""
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
    """Returns the Figure over the rounds of a measured value as a multiple of the ideal: `of` is response or waiting, `which` its
    statistic.

    None if nothing was answered, or if no request would have to wait.
    """
    pairs = [(one["measured"][of][which], one["ideal"][of][which]) for one in entry["rounds"]]
    return figure(measured / best for measured, best in pairs if measured is not None and best)


def waits(entry, which):
    """Returns the milliseconds that a request waits for a worker: the ideal's, over all rounds, times the ratio; None if there is
    none.
    """
    found = ratio(entry, "waiting", which)
    return found and found.median * entry["ideal"]["waiting"][which]
