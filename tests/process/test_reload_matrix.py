"""Reloads under all kinds of load: kept and new connections, pipelined pairs, uploads, long responses, WebSockets. No request
fails, and no resources are left behind. `make soak RELOADS=50` does the same fifty times in each cell.
"""

import pytest
from support.cells import CELLS

#: Number of reloads of each cell.
RELOADS = 4


@pytest.mark.parametrize("name", CELLS)
def test_reloads_under_everything_at_once_lose_no_request_and_leave_nothing_behind(name, tmp_path):
    problems, _ = CELLS[name].run(tmp_path, RELOADS)
    assert problems == []
