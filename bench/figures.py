"""From samples to figures: medians of per-round ratios, with their spread.

Pure functions on the results; runs in the suite's own process.
"""

import statistics
from dataclasses import dataclass

from .interpreters import parts
from .servers import OURS


@dataclass(frozen=True)
class Figure:
    """A median and how far the rounds lie apart."""

    median: float
    low: float
    high: float
    rounds: int


def figure(values):
    """The Figure of some values, or None when there are none."""
    values = list(values)
    return Figure(statistics.median(values), min(values), max(values), len(values)) if values else None


def sound_samples(entry):
    """{round: sample} of those samples that nothing was wrong with."""
    return {sample["round"]: sample for sample in entry["samples"] if not sample["problems"]}


def labelled(server, python=None):
    """What a server is called in a table: with its Python where servers on several are compared."""
    return f"{server} {python}" if python else server


def pythons(entries):
    """The versions of Python that servers ran on, the newest first; none where all ran on the suite's own."""
    return sorted({entry["python"] for entry in entries.values() if entry.get("python")}, key=parts, reverse=True)


def ours_beside(entries, label):
    """The label of Bolide on the same Python, of the newest for what runs on none; where Bolide is there in several ways only,
    the one that goes the same way.
    """
    ours = labelled(OURS, entries[label].get("python") or next(iter(pythons(entries)), None))
    return ours if ours in entries else OURS + label.removeprefix(entries[label]["server"])


def cost(entry):
    """Figure of the CPU microseconds a request (or a message)."""
    return figure(sample["cpu_us_per_request"] for sample in sound_samples(entry).values())


def ratio(entries, label, to):
    """Figure of CPU per request, `label` as a multiple of `to`, over the rounds that have both; None when none has."""
    if label not in entries or to not in entries:
        return None
    ours, theirs = sound_samples(entries[label]), sound_samples(entries[to])
    both = sorted(ours.keys() & theirs.keys())
    return figure(ours[number]["cpu_us_per_request"] / theirs[number]["cpu_us_per_request"] for number in both)


def median_of(entry, *keys):
    """The median of one value of the samples, found by keys one within the other."""
    values = []
    for sample in entry["samples"]:
        for key in keys:
            sample = sample[key]
        values.append(sample)
    return statistics.median(values)


def beyond_import(application, name):
    """Figure of the seconds to the first answer beyond the import, over the repeats; None when there are none."""
    pairs = zip(application["servers"].get(name, []), application["import"], strict=False)
    return figure(first - imported for first, imported in pairs)


def noise(scenarios):
    """{scenario: largest cost of the limit program in a round / its smallest}: what the machine alone does to the figures."""
    spreads = {}
    for name, scenario in scenarios.items():
        if scenario["kind"] == "cpu" and "limit" in scenario["results"]:
            spread = cost(scenario["results"]["limit"])
            if spread:
                spreads[name] = spread.high / spread.low
    return spreads
