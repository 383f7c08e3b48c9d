"""Checks of the channel layer that run in a worker: what the specification of channel layers promises."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

from bolide.contrib.channels import ChannelLayer
from bolide.contrib.socketio import BolideManager
from channels.exceptions import ChannelFull, MessageTooLarge


def layer(**options):
    # Each check has its own groups.
    return ChannelLayer(prefix=f"check-{random.SystemRandom().getrandbits(40)}", **options)


async def nothing_comes(one, channel):
    waiting = asyncio.ensure_future(one.receive(channel))
    for _ in range(20):
        await asyncio.sleep(0)
    # The loop has polled the inbox.
    await asyncio.sleep(0.01)
    assert not waiting.done(), waiting.result()
    waiting.cancel()
    await asyncio.wait([waiting])


async def raises(kind, awaited):
    try:
        await awaited
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


async def a_message_is_received_as_it_was_sent_and_is_a_copy():
    one = layer()
    sent = {"type": "a.b", "text": "ü", "bytes": b"\0\xff", "number": -(2**62), "float": 0.5, "list": [1, None, {"x": True}]}
    await one.send("plain-channel", sent)
    sent["list"].append("later")
    received = await one.receive("plain-channel")
    assert received == {**sent, "list": [1, None, {"x": True}]}
    assert "__asgi_channel__" not in received


async def messages_of_a_channel_keep_their_order():
    one = layer()
    channel = await one.new_channel()
    for number in range(50):
        await one.send(channel, {"type": "m", "number": number})
    assert [(await one.receive(channel))["number"] for _ in range(50)] == list(range(50))


async def a_full_channel_refuses_and_capacities_have_patterns():
    one = layer(capacity=3, channel_capacity={"small.*": 1})
    for _ in range(3):
        await one.send("c", {"type": "m"})
    await raises(ChannelFull, one.send("c", {"type": "m"}))
    await one.send("small.x", {"type": "m"})
    await raises(ChannelFull, one.send("small.x", {"type": "m"}))
    await one.receive("c")
    await one.send("c", {"type": "m"})
    assert "too many" in await raises(MessageTooLarge, one.group_send("g", {"type": "m", "data": b"x" * (17 << 20)}))


async def groups_reach_their_members_only():
    one = layer()
    channels = [await one.new_channel() for _ in range(3)] + [await one.new_channel(prefix="other")]
    for channel in channels:
        await one.group_add("g", channel)
    await one.group_discard("g", channels[1])
    await one.group_discard("g", channels[1])
    await one.group_discard("never", channels[1])
    await one.group_send("g", {"type": "m"})
    await one.group_send("unknown", {"type": "n"})
    for channel in (channels[0], channels[2], channels[3]):
        assert await one.receive(channel) == {"type": "m"}
    await nothing_comes(one, channels[1])


async def joining_and_leaving_are_in_the_order_of_the_messages():
    one = layer()
    early, late = await one.new_channel(), await one.new_channel()
    await one.group_add("g", early)
    await one.group_send("g", {"type": "first"})
    await one.group_add("g", late)
    await one.group_discard("g", early)
    await one.group_send("g", {"type": "second"})
    await one.send(late, {"type": "third"})
    assert (await one.receive(early))["type"] == "first"
    assert [(await one.receive(late))["type"] for _ in range(2)] == ["second", "third"]
    await nothing_comes(one, early)


async def a_group_with_a_full_channel_reaches_the_others():
    one = layer(capacity=2)
    full, free = await one.new_channel(), await one.new_channel()
    await one.group_add("g", full)
    for _ in range(2):
        await one.group_send("g", {"type": "before"})
    await one.group_add("g", free)
    await one.group_send("g", {"type": "m"})
    assert (await one.receive(free))["type"] == "m"


async def expired_messages_are_dropped_and_their_channel_leaves_its_groups():
    one = layer(expiry=0.01)
    channel = await one.new_channel()
    await one.group_add("g", channel)
    await one.send(channel, {"type": "old"})
    await one.send("other", {"type": "old"})
    await asyncio.sleep(0.02)
    await nothing_comes(one, channel)
    await one.group_send("g", {"type": "not a member any more"})
    await nothing_comes(one, channel)
    assert one.local.queues == {}, one.local.queues
    assert one.local.groups == {}, one.local.groups


async def members_of_a_group_expire():
    one = layer(group_expiry=0)
    channel = await one.new_channel()
    await one.group_add("g", channel)
    await asyncio.sleep(0.01)
    await one.group_send("g", {"type": "m"})
    await nothing_comes(one, channel)


async def a_flush_drops_messages_and_groups():
    one = layer()
    channel = await one.new_channel()
    await one.group_add("g", channel)
    await one.send(channel, {"type": "m"})
    await one.group_send("g", {"type": "m"})
    await one.flush()
    await one.group_send("g", {"type": "m"})
    await nothing_comes(one, channel)
    await one.group_add("g", channel)
    await one.group_send("g", {"type": "again"})
    assert (await one.receive(channel))["type"] == "again"
    await one.close()


async def bad_names_and_messages_are_refused():
    one = layer()
    for name in ("", "ü", "a b", "x" * 101, 7):
        await raises(TypeError, one.send(name, {"type": "m"}))
        await raises(TypeError, one.receive(name))
        await raises(TypeError, one.group_add(name, "c"))
        await raises(TypeError, one.group_add("g", name))
        await raises(TypeError, one.group_send(name, {"type": "m"}))
    await raises(AssertionError, one.send("c", "text"))
    assert "consists of" in await raises(TypeError, one.send("c", {"type": object()}))
    await raises(TypeError, one.group_send("g", {"type": object()}))


async def a_receiver_that_is_cancelled_leaves_its_message_to_the_next():
    one = layer()
    first, second = (asyncio.ensure_future(one.receive("c")) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await one.send("c", {"type": "m"})
    # It was chosen for the message, and does not take it.
    first.cancel()
    assert await second == {"type": "m"}
    assert first.cancelled()


async def new_channels_do_not_repeat_when_the_random_seed_does():
    one = layer()
    random.seed(1)
    first = await one.new_channel()
    random.seed(1)
    assert first != await one.new_channel()
    one.require_valid_channel_name(first)


async def a_manager_of_threads_hears_what_another_one_sends():
    # As a server has it in a thread of its own.
    hears, sends = BolideManager(channel="threads"), BolideManager(channel="threads", write_only=True)
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(next, hears._listen())
        while not heard.done():
            sends.emit("said", {"bytes": b"\0"}, room="room")
            await asyncio.sleep(0.001)
    told = heard.result()
    assert (told["method"], told["event"], told["room"], told["host_id"]) == ("emit", "said", "room", sends.host_id), told


async def loops_of_other_threads_can_use_the_same_layer():
    # As `async_to_sync` does in a synchronous view, which has a loop of its own for each call.
    one = layer()
    here, there = await one.new_channel(), await one.new_channel()
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(one.receive(here))
    with ThreadPoolExecutor(2) as pool:

        def call(awaited):
            return loop.run_in_executor(pool, asyncio.run, awaited)

        await call(one.group_add("g", here))
        await call(one.group_add("g", there))
        received = call(one.receive(there))
        for number in range(3):
            await call(one.group_send("g", {"type": "m", "number": number}))
        assert await waiting == {"type": "m", "number": 0}
        assert await received == {"type": "m", "number": 0}
        assert [(await call(one.receive(channel)))["number"] for channel in (here, there, here, there)] == [1, 1, 2, 2]
        await call(one.close())
