"""The evaluation of the Autobahn suite's findings by `make conformance`: failed or missing cases never pass."""

import pytest
from autobahn.table import GROUPS, Agent, Suite, judge, table

VERSIONS = {"autobahntestsuite": "1.0", "autobahn": "0.1", "Python": "2.7.18"}


def suite_of(*cases):
    subcategories = {"1.1": "Text", "7.1": "Data - offers (1) / server accept (2)"}
    return Suite(VERSIONS, list(cases), {"1": "Framing", "7": "Closing"}, subcategories)


def agent_of(loop="asyncio", **results):
    found = {
        case.replace("_", ".")[1:]: dict(zip(("behavior", "behaviorClose"), words, strict=True))
        for case, words in results.items()
    }
    return Agent(loop, {"Python": "3.13.0", "bolide": "0.1.0", "uvloop": "0.22"}, found)


def test_ok_non_strict_and_informational_results_pass():
    suite = suite_of("1.1.1", "1.1.2", "7.1.6")
    agent = agent_of(_1_1_1=("OK", "OK"), _1_1_2=("NON-STRICT", "OK"), _7_1_6=("INFORMATIONAL", "INFORMATIONAL"))
    assert judge(suite, [agent], everything=False) == []


@pytest.mark.parametrize(
    "words",
    [
        ("FAILED", "OK"),
        ("OK", "FAILED"),
        ("OK", "WRONG CODE"),
        ("OK", "UNCLEAN"),
        ("UNIMPLEMENTED", "OK"),
        ("UNIMPLEMENTED", "UNIMPLEMENTED"),
        ("OK", "FAILED BY CLIENT"),
        ("WHATEVER ELSE", "OK"),
    ],
)
def test_all_else_is_a_problem_of_its_case_and_worker(words):
    suite = suite_of("1.1.1", "1.1.2")
    good = agent_of(_1_1_1=("OK", "OK"), _1_1_2=("OK", "OK"))
    bad = agent_of("uvloop", _1_1_1=("OK", "OK"), _1_1_2=words)
    (problem,) = judge(suite, [good, bad], everything=False)
    assert problem.startswith("case 1.1.2 (Python 3.13, uvloop): ")


def test_a_case_that_was_not_run_is_a_problem():
    suite = suite_of("1.1.1", "1.1.2")
    assert judge(suite, [agent_of(_1_1_1=("OK", "OK"))], everything=False) == ["case 1.1.2 (Python 3.13, asyncio): MISSING"]
    assert len(judge(suite, [agent_of()], everything=False)) == 2


def test_a_suite_without_one_of_its_groups_is_a_problem():
    agent = agent_of(_1_1_1=("OK", "OK"))
    assert len(judge(suite_of("1.1.1"), [agent], everything=True)) == len(GROUPS) - 1


def test_the_table_counts_by_group_and_names_results_other_than_ok():
    suite = suite_of("1.1.1", "1.1.2", "7.1.6")
    one = agent_of(_1_1_1=("OK", "OK"), _1_1_2=("NON-STRICT", "OK"), _7_1_6=("INFORMATIONAL", "OK"))
    other = agent_of("uvloop", _1_1_1=("OK", "OK"), _1_1_2=("OK", "OK"), _7_1_6=("OK", "INFORMATIONAL"))
    lines = table(suite, [one, other]).splitlines()
    assert "| 1.1 | Framing: Text | 2 | 1 OK, 1 non-strict | 2 OK |" in lines
    assert "| 7.1 | Closing: offers (1) | 1 | 1 informational | 1 informational |" in lines
    assert "| 1.1.2 | non-strict | OK |" in lines
    assert "| 7.1.6 | informational | informational |" in lines
    assert not any(line.startswith("| 1.1.1 |") for line in lines)
    assert "* 3 cases against 2 workers: 3 OK, 1 non-strict, 2 informational, 0 failed" in lines
