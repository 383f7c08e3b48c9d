"""What waits for a subscription: a bounded queue of messages, and the number of those that did not fit.

It does not lock: the hub does. Must not know how messages arrive.
"""

from collections import deque

#: How many messages wait for a subscription, unless it says otherwise.
MAX_MESSAGES = 1000
#: How many bytes of messages wait for a subscription. A single message of any size does.
MAX_BYTES = 32 << 20


class Mailbox:
    """The queue of a subscription."""

    __slots__ = (
        "bytes",
        "channels",
        "is_closed",
        "is_interrupted",
        "loop",
        "messages",
        "missed",
        "missed_in_all",
        "most",
        "stays",
        "waiter",
    )

    #: What waiting returns when the subscription is over.
    ENDED = object()

    def __init__(self, most):
        self.most = most
        self.channels = set()
        self.messages = deque()
        self.bytes = 0
        #: Messages that were dropped since the subscription was told.
        self.missed = 0
        self.missed_in_all = 0
        #: Messages of other machines may be missing, whose number is unknown. The subscription was not told yet.
        self.is_interrupted = False
        self.is_closed = False
        #: A thread or a greenlet goes on to wait while its worker drains, because it serves the connections that are left.
        self.stays = False
        #: Wakes the task, greenlet or thread that waits, if there is one.
        self.waiter = None
        #: The event loop whose reader the mailbox counts on, if it has one.
        self.loop = None

    def put(self, message):
        self.messages.append(message)
        self.bytes += len(message.data)
        while len(self.messages) > self.most or (self.bytes > MAX_BYTES and len(self.messages) > 1):
            self.bytes -= len(self.messages.popleft().data)
            self.miss(1)

    def miss(self, count):
        self.missed += count
        self.missed_in_all += count

    def interrupt(self):
        """Messages of other machines may be missing."""
        self.is_interrupted = True

    def take(self):
        """Return a message, the number of those that are missing before it, ENDED, or None if there is nothing yet.

        The number is 0 if messages of other machines may be missing.
        """
        if self.missed or self.is_interrupted:
            missed, self.missed, self.is_interrupted = self.missed, 0, False
            return missed
        if self.messages:
            message = self.messages.popleft()
            self.bytes -= len(message.data)
            return message
        return self.ENDED if self.is_closed else None

    def wake(self):
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter()
