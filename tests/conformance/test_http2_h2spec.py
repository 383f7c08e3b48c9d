"""h2spec's cases, if the program is installed; and the evaluation by ``make h2spec``: failed or missing cases never pass."""

import os
import shutil
from pathlib import Path

import pytest
from h2spec.__main__ import APPLICATIONS, WAYS, run
from h2spec.findings import FAILED, PASSED, SKIPPED, findings, judge, table
from support.http2 import Both

PROGRAM = os.environ.get("H2SPEC") or shutil.which("h2spec")

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="4.1. Frame Format" package="http2/4.1" id="4.1" tests="3" skipped="1" failures="1" errors="0">
    <testcase package="http2/4.1" classname="Sends one" time="0.1"></testcase>
    <testcase package="http2/4.1" classname="Sends another" time="0.1"><failure>It MUST
Expected: this</failure></testcase>
    <testcase package="http2/4.1" classname="Sends a third" time="0.1"><skipped></skipped></testcase>
  </testsuite>
  <testsuite name="6.1. Indexed" package="hpack/6.1" id="6.1" tests="1" skipped="0" failures="0" errors="1">
    <testcase package="hpack/6.1" classname="Sends index 0" time="0.1"><error>timeout</error></testcase>
  </testsuite>
</testsuites>"""


@pytest.mark.skipif(not PROGRAM, reason="there is no h2spec; its cases are in test_http2_violations.py too")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("interface", APPLICATIONS)
@pytest.mark.timeout(300)
def test_every_case_of_h2spec_passes(serve, tmp_path, interface, way):
    configuration, path = APPLICATIONS[interface]
    both = Both(serve, tmp_path, configuration)
    found = run(Path(PROGRAM), both.server, WAYS[way], path, tmp_path / "report.xml")
    assert judge({f"{interface}, {way}": found}) == []


def test_a_report_is_read_as_it_is():
    found = findings(REPORT)
    assert [(one.part, one.case, one.outcome) for one in found] == [
        ("http2", "Sends one", PASSED),
        ("http2", "Sends another", FAILED),
        ("http2", "Sends a third", SKIPPED),
        ("hpack", "Sends index 0", FAILED),
    ]
    assert found[1].detail == "It MUST / Expected: this"


def test_a_case_that_failed_is_a_problem_and_so_is_a_run_that_is_too_small():
    passed = [one for one in findings(REPORT) if one.outcome == PASSED]
    assert judge({"TLS": passed * 140}) == []
    assert len(judge({"TLS": passed * 139})) == 1
    (problem,) = judge({"TLS": passed * 140, "h2c": [*passed * 140, findings(REPORT)[1]]})
    assert problem == "h2c: http2 4.1. Frame Format Sends another: It MUST / Expected: this"


def test_the_table_counts_by_section_and_names_what_did_not_pass():
    lines = table({"TLS": findings(REPORT), "h2c": findings(REPORT)[:1]}, "0.1.0").splitlines()
    assert "| 4.1. Frame Format | 1 failed, 1 passed, 1 skipped | 1 passed |" in lines
    assert "| 6.1. Indexed | 1 failed |  |" in lines
    assert "| 4.1. Frame Format | Sends a third | skipped |  |" in lines
    assert not any("Sends one" in line for line in lines)
