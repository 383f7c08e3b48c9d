"""Pages quote the kept results, charts show the figures of the tables, and what a table does not carry is not claimed."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
PAGE = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")

if sys.version_info < (3, 11):
    pytest.skip("the benchmark suite needs Python 3.11", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import charts, documents, figures, quotations, report, tables  # noqa: E402

KEPT = sorted(file.parent.name for file in RESULTS.glob("*/results.json") if file.parent.name != "latest")
#: Comparisons that leave some servers out: freastal does not support WebSocket or files, and none of the three sends
#: Last-Modified.
ABSENT = {"nginx-uwsgi": ("freastal", "peregrine", "weft"), "static-304": ("freastal", "peregrine", "weft")}
ABSENT |= dict.fromkeys(("websocket-echo", *(f"static-{size}" for size in ("1k", "30k", "100k", "20m", "100m"))), ("freastal",))
#: Rivals that are level with Bolide in some tables: a table without them would claim too much.
YOUNG = ("freastal", "peregrine", "weft")


def results(directory):
    return json.loads((RESULTS / directory / "results.json").read_text(encoding="utf-8"))


def test_pages_quote_what_was_measured():
    quoted = 0
    for page in documents.pages():
        text = page.read_text(encoding="utf-8")
        for match in documents.QUOTE.finditer(text):
            found = quotations.quotes(results(match["directory"]))[match["name"]]
            assert match["text"].strip() == found.strip(), f"{page.name}, {match['name']}: python3 -m bench.documents"
            quoted += 1
    assert quoted >= 30


@pytest.mark.parametrize("directory", KEPT)
def test_kept_pages_and_charts_are_those_of_the_samples(directory):
    kept = results(directory)
    assert (RESULTS / directory / "results.md").read_text(encoding="utf-8") == report.markdown(kept)
    for files in charts.charts(kept["scenarios"]).values():
        for name, drawn in files.items():
            assert (RESULTS / directory / name).read_text(encoding="utf-8") == drawn, name


def test_all_runs_are_of_one_commit_and_the_same_machine():
    kept = [results(directory) for directory in KEPT]
    assert len({run["commit"] for run in kept}) == 1
    assert not any(run["commit"].endswith("+") for run in kept)
    assert len({(run["machine"]["cpu_model"], run["machine"]["cpus"]) for run in kept}) == 1
    assert min(run["effort"]["rounds"] for run in kept) >= 5


def test_charts_show_the_figures_of_the_tables():
    compared = 0
    for directory in KEPT:
        run = results(directory)
        pages = quotations.quotes(run)
        for name, files in charts.charts(run["scenarios"]).items():
            entries = run["scenarios"][name]["results"]
            if run["scenarios"][name]["kind"] != "cpu":
                continue
            (drawn,) = files.values()
            newest = next(iter(figures.pythons(entries)), None)
            for label, entry in entries.items():
                ours = figures.ours_beside(entries, label)
                if label == ours or entry["python"] not in (None, newest):
                    continue
                ratio = tables.median(figures.ratio(entries, label, ours))
                assert f"({ratio} × Bolide)" in drawn, (name, label)
                assert f"| {ratio} (" in pages[name], (name, label)
                compared += 1
    assert compared >= 50


def test_the_young_servers_are_in_each_table_that_they_can_be_in():
    sections = re.findall(r"<!-- measured: \S+ ([\w-]+) -->\n(.*?)<!-- end", PAGE, re.DOTALL)
    shown = {name: text for name, text in sections if "CPU of a" in text}
    assert len(shown) >= 15
    for name, text in shown.items():
        assert [server for server in YOUNG if f"| {server} " not in text] == list(ABSENT.get(name, ())), name


#: The servers that do not call close(), by the kind of answer: Flask's is an iterator, Django's only iterable.
NOT_CLOSED = {"fibonacci": {"freastal"}, "django": {"fastpysgi", "freastal"}}


@pytest.mark.parametrize("name", NOT_CLOSED)
def test_servers_that_do_not_call_close_are_marked(name):
    rows = quotations.quotes(results("2026-11-wsgi"))[name].splitlines()
    marked = {row.split("|")[1].split()[0] for row in rows if "does not call `close()`" in row}
    assert marked == NOT_CLOSED[name]


def run_of(costs):
    """Returns results of one comparison: {server: cost of each round}."""
    entries = {
        server: {
            "server": server,
            "python": None,
            "samples": [{"round": number, "cpu_us_per_request": cost, "problems": []} for number, cost in enumerate(of)],
        }
        for server, of in costs.items()
    }
    scenario = {"kind": "cpu", "title": "hello: a constant answer", "unit": "request", "results": entries}
    run = {"date": "2026-01-01", "commit": "0", "marks": [], "pythons": {}, "tools": {}, "scenarios": {"hello": scenario}}
    run["machine"] = {"cpus": 2, "cpu_model": "a model"}
    return run | {"effort": {"rounds": 3, "seconds": 1}, "load": {"others_cpu_percent": 0}}


def test_each_server_that_is_ahead_is_listed():
    run = run_of({"bolide": [10, 10, 10], "bjoern": [8, 9.2, 8.6], "granian": [9.9, 9.8, 10.2], "cheroot": [11, 12, 13]})
    said = quotations.quotes(run)["not-ahead"].splitlines()
    assert said == [
        "* `hello`, a constant answer, × Bolide's CPU: bjoern with 0.9 (0.8–0.9), granian with 0.99 (0.98–1.02),"
        " level within the rounds."
    ]
    ahead = run_of({"bolide": [10, 10], "cheroot": [11, 12]})
    assert quotations.quotes(ahead)["not-ahead"] == "In no table of this run is another server ahead.\n"


def test_a_missed_target_is_on_the_page():
    run = run_of({"bolide": [10]})
    run["marks"] = [
        {"scenario": "hello", "promise": "at most 1.20 × the limit program", "state": "NOT MET", "detail": "1.3 ×", "value": 1.3},
        {"scenario": "hello", "promise": "at most 0.5 × granian", "state": "met", "detail": "0.4 ×", "value": 0.4},
    ]
    assert quotations.quotes(run)["not-met"].splitlines()[2:] == ["| `hello` | at most 1.20 × the limit program | 1.3 × |"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.281, 1.25, 1.31], "1.28 (1.25–1.31)"),
        ([1.28, 1.2, 1.35], "1.3 (1.2–1.4)"),
        ([7.43, 7.2, 7.9], "7.4 (7.2–7.9)"),
        ([3.6, 2.5, 4.1], "3.6 (2.5–4.1)"),
        ([102, 95, 110], "102 (95–110)"),
        ([12.345], "12.3 (12.3–12.3)"),
    ],
)
def test_a_figure_has_the_decimals_that_its_rounds_agree_on(values, text):
    assert tables.spread(figures.figure(values)) == text
