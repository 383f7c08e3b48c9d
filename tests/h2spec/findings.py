"""Judges the findings of h2spec and renders them as a table. It runs nothing."""

import xml.etree.ElementTree
from collections import Counter
from dataclasses import dataclass

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

#: The parts of h2spec, and their subjects.
PARTS = {"generic": "Generic", "http2": "HTTP/2 (RFC 7540)", "hpack": "HPACK (RFC 7541)"}

#: Minimum number of cases of h2spec: with fewer, something is wrong with the run.
MIN_CASES = 140


@dataclass(frozen=True)
class Finding:
    """One case: its part and section, its description, and its outcome."""

    part: str
    section: str
    case: str
    outcome: str
    detail: str = ""


def findings(report):
    """Returns all cases of a report, which is JUnit XML as h2spec writes it."""
    found = []
    for suite in xml.etree.ElementTree.fromstring(report).iter("testsuite"):
        part = suite.get("package").partition("/")[0]
        for case in suite.iter("testcase"):
            outcome, detail = PASSED, ""
            for child in case:
                outcome = {"failure": FAILED, "error": FAILED, "skipped": SKIPPED}.get(child.tag, outcome)
                detail = " / ".join((child.text or "").split("\n"))
            found.append(Finding(part, suite.get("name"), case.get("classname"), outcome, detail))
    return found


def judge(runs):
    """Returns the problems, a line each. ``runs`` is ``{connection type: findings}``."""
    problems = []
    for name, found in runs.items():
        if len(found) < MIN_CASES:
            problems.append(f"{name}: there are {len(found)} cases, and not {MIN_CASES}")
        problems += [
            f"{name}: {one.part} {one.section} {one.case}: {one.detail or one.outcome}" for one in found if one.outcome == FAILED
        ]
    return problems


def table(runs, bolide):
    """Returns the page of ``docs``."""
    lines = ["# HTTP/2: h2spec", "", *introduction(runs, bolide)]
    for part, title in PARTS.items():
        sections = list(dict.fromkeys(one.section for found in runs.values() for one in found if one.part == part))
        lines += ["", f"## {title}", ""]
        lines += rows(
            ["Section", *runs],
            [[section, *(summary(found, part, section) for found in runs.values())] for section in sections],
        )
    lines += ["", "## Cases that did not pass", "", *remarks(runs)]
    return "\n".join(lines) + "\n"


def introduction(runs, bolide):
    counts = {name: Counter(one.outcome for one in found) for name, found in runs.items()}
    said = [f"* {name}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts[name].items()))}" for name in runs]
    return [
        "`make h2spec` writes this page. The suite talks to a Bolide worker with TLS and without it, for an ASGI application",
        "and a WSGI one. It was written for RFC 7540; where RFC 9113 changed a rule, its cases accept both behaviors.",
        "",
        f"* Bolide {bolide}",
        *said,
        "",
        "The suite *skips* a case that does not apply to the server.",
    ]


def summary(found, part, section):
    counts = Counter(one.outcome for one in found if (one.part, one.section) == (part, section))
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))


def remarks(runs):
    outcomes = {}
    for name, found in runs.items():
        for one in found:
            if one.outcome != PASSED:
                outcomes.setdefault((one.section, one.case), {})[name] = one.outcome
    lines = [[section, case, *(by_run.get(name, "") for name in runs)] for (section, case), by_run in outcomes.items()]
    return rows(["Section", "Case", *runs], lines) if lines else ["None."]


def rows(heads, lines):
    """Returns a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines)]
