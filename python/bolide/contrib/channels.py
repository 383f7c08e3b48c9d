"""A channel layer of Django Channels between the processes of an instance, with the option ``publish``.

``CHANNEL_LAYERS = {"default": {"BACKEND": "bolide.contrib.channels.ChannelLayer"}}``

Each process keeps the messages of its own channels, and knows which of them are in which group. A message to a group goes to each
process that has a channel in it, and a message to a channel of another process goes to that one. A channel without an owner (a
name without ``!``) is one of the process that uses it.

Must not know consumers. Runs in processes that have the application loaded. A layer that was made before the fork has its own
state in each process.
"""

import asyncio
import marshal
import secrets
import time
from collections import deque
from functools import partial

try:
    from channels.exceptions import ChannelFull, MessageTooLarge
    from channels.layers import BaseChannelLayer
except ImportError as error:
    raise ImportError(f"bolide.contrib.channels needs Django Channels 4 (pip install channels): {error}") from error

import bolide
from bolide import log, publishing
from bolide.publishing.loops import wake_future
from bolide.publishing.mailbox import Mailbox

#: The format of ``marshal`` that every supported version of Python reads and writes: an upgrade may change the version.
FORMAT = 2
#: What a message between processes is about.
TO_GROUP, TO_CHANNEL, FLUSH = range(3)
#: The log says at most once in this many seconds that messages were missed.
TOLD_EVERY_SECONDS = 60
MAX_PREFIX_BYTES = 100


class ChannelLayer(BaseChannelLayer):
    """The layer of an alias. Two aliases that must not share groups have different prefixes."""

    extensions = ["groups", "flush"]  # noqa: RUF012

    def __init__(self, expiry=60, group_expiry=86400, capacity=100, channel_capacity=None, prefix="asgi"):
        super().__init__(expiry=expiry, capacity=capacity)
        if not prefix or len(prefix.encode()) > MAX_PREFIX_BYTES:
            raise ValueError(f"prefix = {prefix!r}: it has 1 to {MAX_PREFIX_BYTES} bytes")
        self.channel_capacity = self.compile_capacities(channel_capacity or {})
        self.group_expiry = group_expiry
        self.prefix = prefix
        self._local = None

    @property
    def local(self):
        """What the layer has in this process."""
        if self._local is None or self._local.hub is not publishing.hub:
            self._local = Local(self, publishing.hub)
        return self._local

    async def new_channel(self, prefix="specific"):
        """Return the name of a new channel of this process."""
        return f"{prefix}.{self.local.name}!{secrets.token_hex(8)}"

    async def send(self, channel, message):
        """Send a message to a channel. ChannelFull: it is one of this process, and has as many as it may have."""
        self.require_valid_channel_name(channel)
        body = encoded(message)
        owner = channel.partition("!")[0].rpartition(".")[2] if "!" in channel else None
        local = self.local
        if owner is None or owner == local.name:
            # Messages to groups that were sent before come first.
            local.hub.empty()
            with local.hub.locked:
                has_room = local.offer(channel, body)
            if not has_room:
                raise ChannelFull(channel)
        else:
            self.publish(self.topic_of_process(owner), TO_CHANNEL, channel, body)

    async def receive(self, channel):
        """Wait for the next message of a channel. Of several tasks that wait for the same one, the first gets it."""
        self.require_valid_channel_name(channel)
        return marshal.loads(await self.local.receive(channel))

    async def group_add(self, group, channel):
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        self.local.group_add(group, channel)

    async def group_discard(self, group, channel):
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        self.local.group_discard(group, channel)

    async def group_send(self, group, message):
        """Send a message to each channel of a group. A channel that is full does not get it."""
        self.require_valid_group_name(group)
        self.publish(self.topic_of_group(group), TO_GROUP, group, encoded(message))

    async def flush(self):
        """Drop all messages and groups, in all processes."""
        local = self.local
        local.clear()
        self.publish(self.topic_of_flushes(), FLUSH, local.name, b"")

    async def close(self):
        """Drop the messages and groups of this process."""
        local, self._local = self._local, None
        if local is not None:
            local.hub.close(local)

    def publish(self, topic, kind, target, body):
        try:
            bolide.publish(topic, marshal.dumps((kind, target, body), FORMAT))
        except ValueError as error:
            raise MessageTooLarge(str(error)) from None

    def topic_of_group(self, group):
        return f"{self.prefix}:group:{group}"

    def topic_of_process(self, name):
        return f"{self.prefix}:process:{name}"

    def topic_of_flushes(self):
        return f"{self.prefix}:flush"


def encoded(message):
    assert isinstance(message, dict), "message is not a dict"
    try:
        return marshal.dumps(message, FORMAT)
    except ValueError:
        kinds = "bytes, str, int, float, bool, None, lists and dicts"
        raise TypeError(f"a message of a channel layer consists of {kinds}, and this one does not: {message!r:.200}") from None


class Queue:
    """The messages of a channel, each with the time of its expiry, and what wakes the tasks that wait for them."""

    __slots__ = ("messages", "waiters")

    def __init__(self):
        self.messages = deque()
        self.waiters = deque()

    def wake(self):
        if self.messages and self.waiters:
            self.waiters.popleft()()


class Local(Mailbox):
    """The channels and groups of a process. Its functions that don't take the hub's lock are called with it."""

    __slots__ = ("groups", "hub", "layer", "name", "queues", "told")

    def __init__(self, layer, hub):
        super().__init__(1)
        self.layer = layer
        self.hub = hub
        #: Names the process in the names of its channels.
        self.name = secrets.token_hex(6)
        self.queues = {}
        #: When a channel joined a group, by group and channel.
        self.groups = {}
        self.told = None
        # Tasks in `receive` read the inbox: this loop may end before.
        hub.open(self, (layer.topic_of_process(self.name), layer.topic_of_flushes()), attaches=False)

    def put(self, message):
        """A message has come from a process of the instance, this one included."""
        try:
            kind, target, body = marshal.loads(message.data)
        except (EOFError, TypeError, ValueError):
            # Code of the application has published it.
            return
        if kind == TO_CHANNEL:
            self.offer(target, body)
        elif kind == TO_GROUP:
            oldest = time.monotonic() - self.layer.group_expiry
            for channel, joined in tuple(self.groups.get(target, {}).items()):
                if joined >= oldest:
                    self.offer(channel, body)
                else:
                    self.leave(target, channel)
        elif target != self.name:
            self.clear_now()

    def offer(self, channel, body):
        """Return whether the channel has room for a message."""
        self.expire(channel)
        queue = self.queues.get(channel)
        if queue is None:
            queue = self.queues[channel] = Queue()
        if len(queue.messages) >= self.layer.get_capacity(channel):
            return False
        queue.messages.append((time.monotonic() + self.layer.expiry, body))
        queue.wake()
        return True

    def expire(self, channel):
        """Drop messages that no task took in their time. Their channel leaves its groups: its consumer is gone."""
        queue = self.queues.get(channel)
        has_expired = False
        now = time.monotonic()
        while queue is not None and queue.messages and queue.messages[0][0] <= now:
            queue.messages.popleft()
            has_expired = True
        if has_expired:
            for group in [group for group, channels in self.groups.items() if channel in channels]:
                self.leave(group, channel)
            self.forget_if_idle(channel)

    def forget_if_idle(self, channel):
        queue = self.queues.get(channel)
        if queue is not None and not queue.messages and not queue.waiters:
            del self.queues[channel]

    def leave(self, group, channel):
        channels = self.groups.get(group, {})
        channels.pop(channel, None)
        if not channels and self.groups.pop(group, None) is not None:
            self.hub.discard_now(self, self.layer.topic_of_group(group))

    def clear_now(self):
        for queue in self.queues.values():
            queue.messages.clear()
        for group, channels in tuple(self.groups.items()):
            for channel in tuple(channels):
                self.leave(group, channel)
        for channel in tuple(self.queues):
            self.forget_if_idle(channel)

    def clear(self):
        self.hub.empty()
        with self.hub.locked:
            self.clear_now()

    def group_add(self, group, channel):
        # Messages that were sent before are not for the channel yet.
        self.hub.empty()
        with self.hub.locked:
            self.hub.add_now(self, self.layer.topic_of_group(group))
            self.groups.setdefault(group, {})[channel] = time.monotonic()

    def group_discard(self, group, channel):
        # Messages that were sent before are for the channel still.
        self.hub.empty()
        with self.hub.locked:
            self.leave(group, channel)

    async def receive(self, channel):
        # While the task waits, its event loop reads the inbox for all.
        place = Mailbox(1)
        self.hub.open(place, ())
        try:
            while True:
                with self.hub.locked:
                    self.expire_all()
                    queue = self.queues.setdefault(channel, Queue())
                    if queue.messages:
                        return queue.messages.popleft()[1]
                    loop, ident = asyncio.get_running_loop(), self.hub.get_ident()
                    future = loop.create_future()
                    waiter = partial(wake_future, loop, future, ident, self.hub.get_ident)
                    queue.waiters.append(waiter)
                self.tell_missed()
                try:
                    await future
                except BaseException:
                    with self.hub.locked:
                        if waiter in queue.waiters:
                            queue.waiters.remove(waiter)
                        else:
                            # It was woken for a message that another task can take.
                            queue.wake()
                    raise
        finally:
            with self.hub.locked:
                self.forget_if_idle(channel)
            self.hub.close(place)

    def expire_all(self):
        """As the specification suggests, each call looks at all channels, so that those without a reader are cleaned up too."""
        now = time.monotonic()
        for channel in [name for name, queue in self.queues.items() if queue.messages and queue.messages[0][0] <= now]:
            self.expire(channel)

    def tell_missed(self):
        now = time.monotonic()
        if self.missed and (self.told is None or now - self.told >= TOLD_EVERY_SECONDS):
            self.told = now
            missed, self.missed = self.missed, 0
            log.tell(f"bolide.contrib.channels: {missed} messages were missed because this process was too slow to read them")
