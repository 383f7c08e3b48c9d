"""A backend of the package ``broadcaster`` between the processes of an instance, with the option ``publish``.

``Broadcast(backend=BolideBackend())``. Must not know requests. Runs in processes that have the application loaded.
"""

try:
    from broadcaster import BroadcastBackend, Event
except ImportError as error:
    raise ImportError(f"bolide.contrib.broadcaster needs the package broadcaster (pip install broadcaster): {error}") from error

import bolide
from bolide import log

#: How many messages wait for the listening task.
MAX_MESSAGES = 10_000


class BolideBackend(BroadcastBackend):
    """The backend. Backends that must not share channels have different prefixes."""

    def __init__(self, url="bolide://", prefix="broadcaster:"):
        self.prefix = prefix
        self.subscription = None

    async def connect(self):
        self.subscription = bolide.subscribe(most=MAX_MESSAGES)

    async def disconnect(self):
        self.subscription.close()

    async def subscribe(self, channel):
        self.subscription.add(self.prefix + channel)

    async def unsubscribe(self, channel):
        self.subscription.discard(self.prefix + channel)

    async def publish(self, channel, message):
        bolide.publish(self.prefix + channel, message)

    async def next_published(self):
        while True:
            try:
                async for message in self.subscription:
                    return Event(message.channel[len(self.prefix) :], message.data)
                raise ConnectionError("the backend is disconnected")
            except bolide.Missed as missed:
                log.tell(f"bolide.contrib.broadcaster: {missed}")
