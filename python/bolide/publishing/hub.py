"""The listening half of a process: which subscriptions it has, and what reads its inbox for all of them.

An event loop reads it while a task of the loop listens. gevent's hub does the same for greenlets. Of threads that wait, one reads
and hands out, and the others sleep until they have a message or its turn is theirs. All of them may be there at the same time.
Without subscriptions there is no inbox, and nothing is read.

Must not know what a message means. The lock is held only briefly, never while code of the application runs, and never during a
switch of greenlets.
"""

import contextlib
import os
import time
from collections import deque
from contextvars import Context
from functools import partial

from bolide.publishing.loops import GeventLoop, original, resolve, running_loop, wake_future
from bolide.publishing.mailbox import Mailbox

#: Messages that are handed out in one go, before the event loop or other threads go on.
MAX_TAKEN = 256
#: How often a publisher empties its own inbox by as many, for one message.
MAX_ROUNDS = 64


class Hub:
    """The subscriptions of a process."""

    def __init__(self, native, message):
        self.native = native
        self.message = message
        self.get_ident = original("get_ident")
        self.allocate_lock = original("allocate_lock")
        self.lock = self.allocate_lock()
        self.locked = Locked(self)
        #: The thread that holds the lock.
        self.owner = None
        #: None while there is no subscription.
        self.inbox = None
        #: The mailboxes of each channel.
        self.boxes = {}
        #: How many channels of this process share a bit of the table.
        self.bits = {}
        #: What the inbox had missed of each channel, and in all, when this was looked at last.
        self.missed = {}
        self.missed_of_all = 0
        #: How often messages of other machines may have been missing when this was looked at last.
        self.gaps = 0
        self.count = 0
        #: Event loops that read the inbox: how many mailboxes count on each. gevent's hubs are among them.
        self.loops = {}
        #: The mailbox whose thread reads the inbox.
        self.leader = None
        #: What wakes the threads that wait, and the greenlets, by their mailboxes.
        self.threads = {}
        self.greenlets = {}
        #: Wakes the thread that reads: the two ends of a pipe.
        self.bell = None
        #: Mailboxes of subscriptions that no code refers to.
        self.leaving = deque()
        self.is_abandoned = False

    # Subscriptions.

    def open(self, box, channels, attaches=True):
        """Begin a subscription. With `attaches`, the event loop of this thread reads the inbox from now on."""
        with self.locked:
            if self.is_abandoned:
                raise RuntimeError("the process was forked in the meantime: subscribe again")
            if self.inbox is None:
                self.inbox = self.native.Inbox()
                self.missed_of_all = self.inbox.missed_of_all()
                self.gaps = self.inbox.gaps()
            self.count += 1
        try:
            self.add(box, channels)
        except BaseException:
            self.close(box)
            raise
        loop = running_loop() or GeventLoop.of_thread() if attaches else None
        if loop is not None:
            self.attach(box, loop)

    def add(self, box, channels):
        with self.locked:
            if box.is_closed:
                raise RuntimeError("the subscription is closed")
            for channel in channels:
                self.add_now(box, channel)

    def add_now(self, box, channel):
        """The lock is held, as for the other functions of this name."""
        if channel in box.channels:
            return
        listeners = self.boxes.get(channel)
        if listeners is None:
            bit = self.inbox.listen(channel)
            self.bits[bit] = self.bits.get(bit, 0) + 1
            self.missed[channel] = self.inbox.missed(channel)
            listeners = self.boxes[channel] = (bit, {})
        listeners[1][box] = None
        box.channels.add(channel)

    def discard(self, box, channels):
        with self.locked:
            for channel in channels:
                self.discard_now(box, channel)

    def close(self, box):
        if self.owner == self.get_ident():
            # Code of the application that runs when an object is freed.
            self.leaving.append(box)
            return
        with self.locked:
            self.close_now(box)

    def close_later(self, box):
        """Close a mailbox from anywhere: the thread that holds the lock does it if this one can't take it."""
        if not box.is_closed:
            self.leaving.append(box)
            self.settle()

    def settle(self):
        """Close the mailboxes that are left behind."""
        while self.leaving and self.lock.acquire(False):
            self.owner = self.get_ident()
            try:
                self.close_left()
            finally:
                self.owner = None
                self.lock.release()

    def close_left(self):
        while self.leaving:
            self.close_now(self.leaving.popleft())

    def close_now(self, box):
        if box.is_closed:
            return
        box.is_closed = True
        for channel in tuple(box.channels):
            self.discard_now(box, channel)
        self.count -= 1
        if box.loop is not None:
            self.detach(box)
        box.wake()
        if self.count == 0 and self.inbox is not None:
            self.inbox.close()
            self.inbox = None

    def discard_now(self, box, channel):
        if channel not in box.channels:
            return
        box.channels.discard(channel)
        bit, listeners = self.boxes[channel]
        del listeners[box]
        if not listeners:
            del self.boxes[channel], self.missed[channel]
            self.bits[bit] -= 1
            self.inbox.ignore(channel, not self.bits[bit])
            if not self.bits[bit]:
                del self.bits[bit]

    def abandon(self):
        """The process is a fork of the one that had this hub. Another thread may have held the lock."""
        self.is_abandoned = True
        self.lock, self.owner = self.allocate_lock(), None
        for _, listeners in self.boxes.values():
            for box in listeners:
                box.is_closed = True
                box.messages.clear()

    # Messages.

    def read(self):
        """Hand out messages that have arrived. Return whether there may be more."""
        if self.owner == self.get_ident():
            # Code of the application that runs when an object is freed.
            return False
        with self.locked:
            inbox = self.inbox
            if inbox is None:
                return False
            woken = {}
            taken = inbox.take(MAX_TAKEN)
            for channel, data in taken:
                found = self.boxes.get(channel)
                if found is not None:
                    message = self.message(channel, data)
                    woken.update(found[1])
                    # A mailbox may leave the channel for it.
                    for box in tuple(found[1]):
                        box.put(message)
            if len(taken) < MAX_TAKEN:
                self.count_missed(inbox, woken)
                if inbox.is_leaving:
                    woken.update(dict.fromkeys([*self.threads, *self.greenlets]))
            for box in woken:
                box.wake()
        return len(taken) == MAX_TAKEN

    def count_missed(self, inbox, woken):
        """The inbox is empty: look at what it had no room for, and whether messages of other machines may be missing."""
        gaps = inbox.gaps()
        if gaps != self.gaps:
            self.gaps = gaps
            for _, listeners in self.boxes.values():
                for box in listeners:
                    box.interrupt()
                woken.update(listeners)
        of_all = inbox.missed_of_all()
        if of_all == self.missed_of_all:
            return
        self.missed_of_all = of_all
        for channel, (_, listeners) in self.boxes.items():
            missed = inbox.missed(channel)
            count, self.missed[channel] = missed - self.missed[channel], missed
            if count > 0:
                for box in listeners:
                    box.miss(count)
                woken.update(listeners)

    def empty(self):
        """Hand out everything that has arrived, for a publisher whose own inbox is full."""
        for _ in range(MAX_ROUNDS):
            if not self.read():
                return

    def look(self, box):
        """Return what the mailbox has: see Mailbox.take."""
        with self.locked:
            return box.take()

    def arm(self, box, waiter):
        """Have this called when the mailbox has something. Return what it has instead, if it has something already."""
        with self.locked:
            found = box.take()
            if found is None:
                if box.waiter is not None:
                    raise RuntimeError("another task or thread waits for this subscription")
                box.waiter = waiter
            return found

    def disarm(self, box, waiter):
        # Usually it was called, and is gone.
        if box.waiter is waiter:
            with self.locked:
                if box.waiter is waiter:
                    box.waiter = None

    # Event loops.

    def attach(self, box, loop):
        """The loop reads the inbox from now on, while one of its mailboxes is open."""
        with self.locked:
            if box.is_closed or box.loop is loop:
                return
            if box.loop is not None:
                self.detach(box)
            box.loop = loop
            self.loops[loop] = self.loops.get(loop, 0) + 1
            if self.loops[loop] == 1:
                # In a context of its own: it would keep that of the request that happens to be the first.
                Context().run(loop.add_reader, self.inbox.fileno(), self.read)

    def detach(self, box):
        loop, box.loop = box.loop, None
        self.loops[loop] -= 1
        if self.loops[loop]:
            return
        del self.loops[loop]
        remove = partial(self.remove_reader, loop, self.inbox.fileno())
        try:
            # Any thread may close a subscription, also in the middle of the loop's own code.
            loop.call_soon_threadsafe(remove)
        except RuntimeError:
            # A loop that is closed reads nothing.
            return

    def remove_reader(self, loop, descriptor):
        with self.locked:
            is_reading = loop in self.loops and self.inbox is not None and self.inbox.fileno() == descriptor
            if not is_reading:
                loop.remove_reader(descriptor)

    async def wait_in_loop(self, box, seconds):
        """Return the next message, the number of missing ones, ENDED, or None when this time is over."""
        found = self.look(box)
        if found is not None:
            return found
        loop = running_loop()
        if box.loop is not loop:
            self.attach(box, loop)
        future = loop.create_future()
        waiter = partial(wake_future, loop, future, self.get_ident(), self.get_ident)
        found = self.arm(box, waiter)
        if found is not None:
            return found
        timer = None if seconds is None else loop.call_later(seconds, resolve, future)
        try:
            await future
        finally:
            self.disarm(box, waiter)
            if timer is not None:
                timer.cancel()
        return self.look(box)

    # Threads and greenlets.

    def wait(self, box, seconds):
        """Return the next message, the number of missing ones, ENDED, or None when this time is over. Blocks the thread, or the
        greenlet where gevent's hub runs. A worker that drains or stops has no more messages for it.
        """
        found = self.look(box)
        if found is not None:
            return found
        if running_loop() is not None:
            raise RuntimeError("`for` would block the event loop: use `async for`")
        loop = GeventLoop.of_thread()
        until = None if seconds is None else time.monotonic() + seconds
        if loop is not None:
            return self.wait_in_greenlet(box, loop, until)
        return self.wait_in_thread(box, until)

    def wait_in_greenlet(self, box, loop, until):
        from gevent.event import Event

        self.attach(box, loop)
        while box.stays or not self.is_leaving():
            event = Event()
            waiter = partial(loop.call, event.set)
            found = self.arm(box, waiter)
            if found is not None:
                return found
            with self.locked:
                self.greenlets[box] = waiter
            left = None if until is None else max(until - time.monotonic(), 0)
            try:
                is_woken = event.wait(left)
            finally:
                self.disarm(box, waiter)
                with self.locked:
                    del self.greenlets[box]
            found = self.look(box)
            if found is not None or not is_woken:
                return found
        return Mailbox.ENDED

    def wait_in_thread(self, box, until):
        signal = self.allocate_lock()
        signal.acquire()
        waiter = partial(self.ring, box, signal)
        found = self.arm(box, waiter)
        if found is not None:
            return found
        with self.locked:
            self.threads[box] = waiter
        try:
            while box.stays or not self.is_leaving():
                left = None if until is None else max(until - time.monotonic(), 0)
                if self.lead(box):
                    self.wait_as_leader(left)
                else:
                    signal.acquire(timeout=-1 if left is None else left)
                found = self.arm_again(box, waiter)
                if found is not None or left == 0:
                    return found
            return Mailbox.ENDED
        finally:
            self.disarm(box, waiter)
            with self.locked:
                del self.threads[box]
                # Another thread that waits reads the inbox now.
                heir = next(iter(self.threads.values()), None) if self.leader is None else None
                if heir is not None:
                    heir()

    def arm_again(self, box, waiter):
        with self.locked:
            found = box.take()
            if found is None:
                box.waiter = waiter
            return found

    def lead(self, box):
        """Have the thread of this mailbox read the inbox, unless another thread does."""
        with self.locked:
            if self.leader is not None or self.inbox is None:
                return False
            if self.bell is None:
                self.bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self.leader = box
            return True

    def wait_as_leader(self, seconds):
        inbox, (bell, _) = self.inbox, self.bell
        try:
            if inbox is not None:
                inbox.wait(bell, seconds)
        finally:
            with self.locked:
                self.leader = None
        with contextlib.suppress(BlockingIOError):
            os.read(bell, 4096)
        self.read()

    def ring(self, box, signal):
        """Wake the thread of a mailbox. The lock is held."""
        if self.leader is box:
            # A full pipe wakes it too.
            with contextlib.suppress(BlockingIOError):
                os.write(self.bell[1], b"!")
        elif signal.locked():
            signal.release()

    def is_leaving(self):
        inbox = self.inbox
        return inbox is not None and inbox.is_leaving


class Locked:
    """The lock of a hub, held in a ``with`` block. It closes what others have left behind in the meantime."""

    __slots__ = ("hub",)

    def __init__(self, hub):
        self.hub = hub

    def __enter__(self):
        hub, current = self.hub, self.hub.get_ident()
        if hub.owner == current:
            raise RuntimeError("a subscription was used by code that runs while an object is freed")
        hub.lock.acquire()
        hub.owner = current

    def __exit__(self, *error):
        hub = self.hub
        try:
            hub.close_left()
        finally:
            hub.owner = None
            hub.lock.release()
        if hub.leaving:
            hub.settle()
