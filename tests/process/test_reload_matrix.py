"""Reloads under everything at once: kept and fresh connections, pairs, uploads, long answers, WebSockets. No request fails, and
nothing is left behind. `make soak RELOADS=50` does the same fifty times in each cell.
"""

import pytest
from support.cells import CELLS

#: How often each cell reloads.
RELOADS = 4


@pytest.mark.parametrize("name", CELLS)
def test_reloads_under_everything_at_once_lose_no_request_and_leave_nothing_behind(name, tmp_path):
    problems, _ = CELLS[name].run(tmp_path, RELOADS)
    assert problems == []
