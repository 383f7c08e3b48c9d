"""Messages between the processes of an instance: ``bolide.publish`` and ``bolide.subscribe``.

A channel is a name, and exists while a process listens to it. Each process that listens has an inbox, which the native module
fills and empties (``_native.Inbox``). Must not know requests. Processes that have the application loaded use it.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import NamedTuple

from bolide import _native, log
from bolide.publishing.hub import Hub
from bolide.publishing.mailbox import MAX_MESSAGES, Mailbox

__all__ = ["Message", "Missed", "Subscription", "publish", "subscribe"]


class Message(NamedTuple):
    """A message of a channel. ``data`` is bytes or str, as it was published."""

    channel: str
    data: bytes | str


class Missed(Exception):
    """Messages of a subscription were dropped, because it was too slow, or its process was.

    ``count`` is their number since the last time. If it is 0, the process was without its connection to the server of
    ``publish``, and other machines may have sent messages in the meantime. The subscription goes on, with the
    oldest message that is left.
    """

    def __init__(self, count: int) -> None:
        slow = f"{count} messages were missed: the listener was too slow"
        super().__init__(slow if count else "messages of other machines may be missing: the connection was interrupted")
        self.count = count


class Subscription:
    """The messages of channels from the moment of :func:`subscribe` on, for one task, greenlet or thread at a time.

    ``async for`` waits in a task, and ``for`` in a thread or a greenlet. Both raise :class:`Missed` where messages are missing.
    The end of a ``with`` block, :meth:`close`, and the last reference to the subscription end it.
    """

    __slots__ = ("__weakref__", "_box", "_hub", "_timeout")

    def __init__(self, hub: Hub, channels: tuple[str, ...], timeout: float | None, most: int) -> None:
        self._hub = hub
        self._timeout = timeout
        self._box = Mailbox(most)
        hub.open(self._box, channels)

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(self._box.channels)

    @property
    def missed(self) -> int:
        """How many messages this subscription has missed in all, those that it was not told yet included."""
        return self._box.missed_in_all

    def add(self, *channels: str) -> None:
        """Listen to more channels."""
        self._hub.add(self._box, channels)

    def discard(self, *channels: str) -> None:
        """Listen to these channels no longer. Messages that have arrived stay."""
        self._hub.discard(self._box, channels)

    def stay(self) -> None:
        """Have a ``for`` loop go on while its worker drains: it serves the connections that are left."""
        self._box.stays = True

    def close(self) -> None:
        """End the subscription: a task or a thread that waits for a message leaves its loop."""
        self._hub.close(self._box)

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Message | None:
        found = self._hub.wait(self._box, self._timeout)
        if found is Mailbox.ENDED:
            raise StopIteration
        return self._message(found)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message | None:
        found = await self._hub.wait_in_loop(self._box, self._timeout)
        if found is Mailbox.ENDED:
            raise StopAsyncIteration
        return self._message(found)

    def _message(self, found: Message | int | None) -> Message | None:
        if isinstance(found, int):
            raise Missed(found)
        return found

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # It may run anywhere, in the middle of the hub's own code too.
        self._hub.close_later(self._box)

    def __repr__(self) -> str:
        state = " closed" if self._box.is_closed else ""
        return f"<Subscription to {', '.join(sorted(self._box.channels)) or 'no channel'}{state}>"


def publish(channel: str, data: bytes | str) -> int:
    """Send a message to every process that listens to a channel, this one included. Never waits.

    With ``publish = engine=…`` it also goes to the instances of other machines, by way of a queue of this process. Return the
    number of processes of this instance that get it. `channel` has up to 255 bytes, and `data` up to 16 MiB.

    RuntimeError: the option ``publish`` is not set, or there is no server.
    """
    if isinstance(data, memoryview):
        data = data.tobytes()
    reached, own_is_full = _native.publish_message(channel, data, False)
    if own_is_full:
        # This thread may be the one that would empty it.
        hub.empty()
        reached += _native.publish_message(channel, data, True)[0]
    return reached


def subscribe(*channels: str, timeout: float | None = None, most: int = MAX_MESSAGES) -> Subscription:
    """Listen to channels. Iterate over the result with ``async for`` in a task, and with ``for`` in a thread or a greenlet.

    With `timeout` the iteration yields None each time that as many seconds pass without a message. At most `most` messages wait
    for the subscription. Beyond that the oldest are dropped, and :class:`Missed` is raised.

    RuntimeError: the option ``publish`` is not set, there is no server, or the application is being loaded.
    """
    if most < 1:
        raise ValueError(f"most = {most}: a subscription keeps at least 1 message")
    if "bolide.application_process" in sys.modules and sys.modules["bolide.application_process"].is_one and not log.is_forked():
        raise RuntimeError(
            "bolide.subscribe() was called while the application was being loaded, before its workers were forked: call it in a "
            "request, a task, or a function of uwsgidecorators.postfork"
        )
    return Subscription(hub, channels, timeout, most)


#: Of this process.
hub = Hub(_native, Message)


def begin_in_child() -> None:
    """A child that the application has forked has no inbox, and its copies of subscriptions are closed."""
    global hub
    hub.abandon()
    hub = Hub(_native, Message)


os.register_at_fork(after_in_child=begin_in_child)
# Messages for other machines that still wait.
atexit.register(_native.finish_publishing)
