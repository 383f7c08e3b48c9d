"""Computes figures from samples: medians of per-round ratios, with their spread.

Pure functions on the results; runs in the suite's own process.
"""

import statistics
from dataclasses import dataclass

from .interpreters import parts
from .servers import OURS


@dataclass(frozen=True)
class Figure:
    """A median and the spread of the rounds."""

    median: float
    low: float
    high: float
    rounds: int


def figure(values):
    """Returns the Figure of some values, or None if there are none."""
    values = list(values)
    return Figure(statistics.median(values), min(values), max(values), len(values)) if values else None


def sound_samples(entry):
    """Returns {round: sample} of the samples without an error."""
    return {sample["round"]: sample for sample in entry["samples"] if not sample["problems"]}


def labeled(server, python=None):
    """Returns a server's label in a table, with its Python version if servers on several versions are compared."""
    return f"{server} {python}" if python else server


def pythons(entries):
    """Returns the Python versions that servers ran on, newest first; none if all ran on the suite's own."""
    return sorted({entry["python"] for entry in entries.values() if entry.get("python")}, key=parts, reverse=True)


def ours_beside(entries, label):
    """Returns the label of Bolide on the same Python version; on the newest for entries without a version. If Bolide was only
    measured in several variants, returns the same variant.
    """
    ours = labeled(OURS, entries[label].get("python") or next(iter(pythons(entries)), None))
    return ours if ours in entries else OURS + label.removeprefix(entries[label]["server"])


def cost(entry):
    """Returns the Figure of CPU microseconds per request (or message)."""
    return figure(sample["cpu_us_per_request"] for sample in sound_samples(entry).values())


def ratio(entries, label, to):
    """Returns the Figure of CPU per request of `label` as a multiple of `to`, over the rounds that have both; None if no round
    has.
    """
    if label not in entries or to not in entries:
        return None
    ours, theirs = sound_samples(entries[label]), sound_samples(entries[to])
    both = sorted(ours.keys() & theirs.keys())
    return figure(ours[number]["cpu_us_per_request"] / theirs[number]["cpu_us_per_request"] for number in both)


def median_of(entry, *keys):
    """Returns the median of one value of the samples, looked up by nested keys."""
    values = []
    for sample in entry["samples"]:
        for key in keys:
            sample = sample[key]
        values.append(sample)
    return statistics.median(values)


def beyond_import(application, name):
    """Returns the Figure of the seconds to the first answer minus the import, over the repetitions; None if there are none."""
    pairs = zip(application["servers"].get(name, []), application["import"], strict=False)
    return figure(first - imported for first, imported in pairs)


def noise(scenarios):
    """Returns {scenario: largest cost of the limit program in a round / its smallest}: the machine's own noise."""
    spreads = {}
    for name, scenario in scenarios.items():
        if scenario["kind"] == "cpu" and "limit" in scenario["results"]:
            spread = cost(scenario["results"]["limit"])
            if spread:
                spreads[name] = spread.high / spread.low
    return spreads
