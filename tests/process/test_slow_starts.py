"""A slow start: after a while the log says which process is waited for, and shows its stack."""

#: Shortens the half minute until then.
SOON = {"BOLIDE_TEST_NOTICE_MS": "300"}

HANGING = """
import time
def wait_for_the_database():
    time.sleep(300)
wait_for_the_database()
"""

LIFESPAN = """
import asyncio
async def wait_for_the_database():
    await asyncio.sleep(300)
async def application(scope, receive, send):
    await receive()
    await wait_for_the_database()
"""


def test_a_worker_that_does_not_come_to_serve_is_named_with_its_stack(start, tmp_path):
    (tmp_path / "shop.py").write_text(HANGING)
    instance = start("--lazy-apps", "--processes", "2", module="shop", ready=False, environment=SOON)
    for number in (1, 2):
        instance.wait_for_log(rf"^bolide: worker {number} \(pid \d+\) does not serve yet; its Python stack:$")
    instance.wait_for_log("in wait_for_the_database$", count=2)
    assert instance.stop() == 0


def test_a_lifespan_that_does_not_start_is_named_with_its_stack(start, tmp_path):
    (tmp_path / "shop.py").write_text(LIFESPAN)
    instance = start("--asgi", "shop", module=None, ready=False, environment=SOON)
    instance.wait_for_log(
        r"^worker 1: the application's lifespan has not reported for 0.3 s that its startup is complete; it is waiting here:$"
    )
    instance.wait_for_log("^worker 1: .* in wait_for_the_database$")
    assert instance.stop() == 0
