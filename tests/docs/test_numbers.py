"""The page of the numbers agrees with the results that are kept, and the charts with the page."""

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

from bench import charts, figures  # noqa: E402

#: Tables of CPU per request: the heading, the directory of the run, its Python in labels, and the scenario of each column with
#: its factor (the page contains milliseconds for large files).
TABLES = {
    "WSGI": ("2026-11", "", ["hello", "fibonacci", "django", "nginx-uwsgi"], [1, 1, 1, 1]),
    "ASGI": (
        "2026-11-asgi",
        " 3.13",
        ["asgi-hello", "asgi-starlette", "asgi-fastapi", "asgi-post", "websocket-echo"],
        [1, 1, 1, 1, 1],
    ),
    "Static files": (
        "2026-11-static-nginx",
        "",
        ["static-1k", "static-30k", "static-100k", "static-20m", "static-100m"],
        [1, 1, 1, 1000, 1000],
    ),
}
#: The first words of a row, and the server in the results.
ROWS = {
    "kernel alone": "limit",
    "Bolide": "bolide",
    "bjoern": "bjoern",
    "fastpysgi": "fastpysgi",
    "granian": "granian",
    "uWSGI 2.0.31, `http-socket`": "uwsgi-http-socket",
    "uWSGI 2.0.31, `http11-socket`": "uwsgi",
    "gunicorn": "gunicorn",
    "uvicorn": "uvicorn",
    "hypercorn": "hypercorn",
    "nginx": "nginx",
}


def results(directory):
    return json.loads((RESULTS / directory / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("heading", TABLES)
def test_each_figure_of_a_table_is_the_median_of_its_run_which_is_named(heading):
    directory, python, columns, factors = TABLES[heading]
    run = results(directory)
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    assert f"](../bench/results/{directory}/results.md)" in section
    assert run["date"].split()[0] in section
    compared = 0
    for row in re.findall(r"^\|(.+)\|$", section, re.MULTILINE)[2:]:
        name, *cells = [cell.strip().strip("*") for cell in row.split("|")]
        label = next(label for begin, label in ROWS.items() if name.startswith(begin))
        for cell, scenario, factor in zip(cells, columns, factors, strict=False):
            if not cell:
                continue
            entries = run["scenarios"][scenario]["results"]
            cost = figures.cost(entries[label if label == "limit" else label + python]).median / factor
            digits = len(cell.partition(".")[2])
            assert abs(cost - float(cell)) <= 0.5 * 10**-digits + 0.001, (name, scenario, cost)
            compared += 1
    assert compared >= 2 * len(columns)


@pytest.mark.parametrize("directory", sorted({directory for directory, *_ in TABLES.values()}))
def test_the_ratios_in_a_chart_are_those_of_the_figures_beside_them(directory):
    for files in charts.charts(results(directory)["scenarios"]).values():
        for name, drawn in files.items():
            assert (RESULTS / directory / name).read_text(encoding="utf-8") == drawn, name
            text = re.sub(r"<[^>]*>", " ", drawn)
            shown = [(float(cost), float(ratio)) for cost, ratio in re.findall(r"([\d.]+)  \(([\d.]+) × limit\)", text)]
            for (first, ratio_of_first), (cost, ratio) in zip(shown, shown[1:], strict=False):
                assert cost / first == pytest.approx(ratio / ratio_of_first, rel=0.03), name
