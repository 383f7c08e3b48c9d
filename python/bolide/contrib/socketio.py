"""Managers of python-socketio between the processes of an instance, with the option ``publish``: an emit of one process
reaches the clients of all.

``socketio.AsyncServer(client_manager=AsyncBolideManager())`` and ``socketio.Server(client_manager=BolideManager())``. Must not
know requests. Runs in processes that have the application loaded.
"""

import marshal
import secrets

try:
    from socketio.async_pubsub_manager import AsyncPubSubManager
    from socketio.pubsub_manager import PubSubManager
except ImportError as error:
    message = f"bolide.contrib.socketio needs python-socketio 5.10 or later (pip install python-socketio): {error}"
    raise ImportError(message) from error

import bolide
from bolide import log

#: How many messages wait for the listening task.
MAX_MESSAGES = 10_000
#: The format of ``marshal`` that every supported version of Python reads and writes: an upgrade may change the version.
FORMAT = 2
#: Before the name of the manager's channel.
PREFIX = "socketio:"


def new_host_id():
    """Return a name for the manager of this process. The manager may have been made before the fork, and processes that shared
    a name would ignore each other's messages.
    """
    return secrets.token_hex(16)


class AsyncBolideManager(AsyncPubSubManager):
    """The manager of an AsyncServer."""

    name = "bolide"

    def initialize(self):
        self.host_id = new_host_id()
        super().initialize()

    async def _publish(self, data):
        bolide.publish(PREFIX + self.channel, marshal.dumps(data, FORMAT))

    async def _listen(self):
        with bolide.subscribe(PREFIX + self.channel, most=MAX_MESSAGES) as messages:
            while True:
                try:
                    async for message in messages:
                        yield marshal.loads(message.data)
                except bolide.Missed as missed:
                    log.tell(f"bolide.contrib.socketio: {missed}")
                else:
                    return


class BolideManager(PubSubManager):
    """The manager of a Server, in threads or greenlets."""

    name = "bolide"

    def initialize(self):
        self.host_id = new_host_id()
        super().initialize()

    def _publish(self, data):
        bolide.publish(PREFIX + self.channel, marshal.dumps(data, FORMAT))

    def _listen(self):
        with bolide.subscribe(PREFIX + self.channel, most=MAX_MESSAGES) as messages:
            # The clients that are left while the worker drains get messages too.
            messages.stay()
            while True:
                try:
                    for message in messages:
                        yield marshal.loads(message.data)
                except bolide.Missed as missed:
                    log.tell(f"bolide.contrib.socketio: {missed}")
                else:
                    return
