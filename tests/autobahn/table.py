"""Judges the findings of the Autobahn suite and renders them as a table. It runs nothing."""

from collections import Counter
from dataclasses import dataclass, field

#: Numbers of the suite's groups. (8 and 11 have never had cases.)
GROUPS = ("1", "2", "3", "4", "5", "6", "7", "9", "10", "12", "13")

#: Outcomes of a case, in the suite's words -> the table's words. All other outcomes have failed.
GOOD = {"OK": "OK", "NON-STRICT": "non-strict", "INFORMATIONAL": "informational"}

MISSING = "MISSING"


@dataclass
class Suite:
    """The suite's cases, in its order."""

    versions: dict
    cases: list
    categories: dict
    subcategories: dict


@dataclass
class Agent:
    """A worker and its findings: the suite's ``index.json``."""

    loop: str
    versions: dict
    results: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"Python {'.'.join(self.versions['Python'].split('.')[:2])}, {self.loop}"

    def behavior(self, case):
        """Returns the worse of the outcomes of the messages and of the close."""
        result = self.results.get(case)
        if result is None:
            return MISSING
        found = (result["behavior"], result["behaviorClose"])
        bad = [word for word in found if word not in GOOD]
        return bad[0] if bad else max(found, key=list(GOOD).index)


def judge(suite, agents, everything):
    """Returns the problems, a line each: cases that failed or are missing, and groups that the suite should contain and
    does not.
    """
    problems = [f"the suite has no case of group {group}" for group in missing_groups(suite)] if everything else []
    for agent in agents:
        for case in suite.cases:
            behavior = agent.behavior(case)
            if behavior not in GOOD:
                problems.append(f"case {case} ({agent.name}): {behavior}")
    return problems


def missing_groups(suite):
    present = {case.split(".")[0] for case in suite.cases}
    return [group for group in GROUPS if group not in present]


def table(suite, agents):
    """Returns the page of ``docs``."""
    lines = ["# WebSocket: the Autobahn suite", "", *introduction(suite, agents), "", "## Groups", ""]
    lines += rows(
        ["Group", "", "Cases", *(agent.name for agent in agents)],
        [
            [group, group_name(suite, group), str(len(cases)), *(summary(agent, cases) for agent in agents)]
            for group, cases in grouped(suite.cases).items()
        ],
        numbers=(2,),
    )
    lines += ["", "## Cases that are not simply OK", "", *remarks(suite, agents)]
    return "\n".join(lines) + "\n"


def introduction(suite, agents):
    bolide = ", ".join(sorted({agent.versions["bolide"] for agent in agents}))
    servers = sorted({agent.versions["Python"] for agent in agents}, key=lambda text: [int(part) for part in text.split(".")])
    uvloops = ", ".join(sorted({agent.versions["uvloop"] for agent in agents if agent.loop == "uvloop"}))
    loops = " and ".join(f"uvloop {uvloops}" if loop == "uvloop" else loop for loop in sorted({agent.loop for agent in agents}))
    tools = suite.versions
    counts = Counter(agent.behavior(case) for agent in agents for case in suite.cases)
    total = ", ".join(f"{counts[word]} {name}" for word, name in GOOD.items() if counts[word])
    failed = sum(count for word, count in counts.items() if word not in GOOD)
    return [
        "`make conformance` writes this page. The suite's fuzzing client talks to a Bolide worker that runs an echo application",
        "(`tests/apps/asgi_socket_echo.py`), with compression.",
        "",
        f"* Bolide {bolide} on Python {' and '.join(servers)}; loops: {loops}",
        f"* autobahntestsuite {tools['autobahntestsuite']} with autobahn {tools['autobahn']} on Python {tools['Python']}",
        f"* {len(suite.cases)} cases against {len(agents)} worker{'s' if len(agents) > 1 else ''}: {total}, {failed} failed",
        "",
        "The suite rates the messages of a case and the end of its connection. The table contains the worse rating.",
        "*Informational* cases have no right or wrong answer, so the suite reports the behavior. *Non-strict* behavior is",
        "allowed by the specification, which recommends a stricter one.",
    ]


def grouped(cases):
    """Returns ``{subgroup or group: cases}``: ``1.1.3`` belongs to ``1.1``, ``2.3`` to ``2``."""
    groups = {}
    for case in cases:
        groups.setdefault(case.rpartition(".")[0], []).append(case)
    return groups


def group_name(suite, group):
    """Returns the suite's own description. The part about its own server is left out: only the client takes part."""
    outer = suite.categories.get(group.split(".")[0], "")
    inner = suite.subcategories.get(group, "") if "." in group else ""
    inner = inner.partition(" / server accept")[0].rpartition(" - ")[2]
    return f"{outer}: {inner}" if inner else outer


def summary(agent, cases):
    counts = Counter(agent.behavior(case) for case in cases)
    return ", ".join(f"{counts[word]} {GOOD.get(word, word)}" for word in [*GOOD, *counts.keys() - GOOD.keys()] if counts[word])


def remarks(suite, agents):
    found = [
        [case, *(GOOD.get(agent.behavior(case), agent.behavior(case)) for agent in agents)]
        for case in suite.cases
        if any(agent.behavior(case) != "OK" for agent in agents)
    ]
    return rows(["Case", *(agent.name for agent in agents)], found) if found else ["None."]


def rows(heads, lines, numbers=()):
    """Returns a Markdown table; columns whose positions are in ``numbers`` are right-aligned."""
    rule = ["---:" if place in numbers else "---" for place in range(len(heads))]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines)]
