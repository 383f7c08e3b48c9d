"""Messages to mules: ``uwsgi.mule_msg`` and ``uwsgi.farm_msg``, from any process of the instance.

Must not know how a mule receives them. Runs in every process that loads an application.
"""

import time

#: The queue for any mule.
ANY_MULE = "mules"
#: The log says at most once in this many seconds that a queue is full.
TOLD_EVERY_SECONDS = 60


class Messages:
    """The functions of the module ``uwsgi`` that send messages."""

    def __init__(self, native, settings, log):
        self.native = native
        self.log = log
        #: The places of the queues by their names; none before the native module has them.
        self.places = {name: place for place, name in enumerate(native.message_queues())}
        self.mules = sum("Mule" in helper["task"] for helper in settings["helpers"])
        self.farms = {farm["name"]: farm["mules"] for farm in settings["mules"]["farms"]}
        #: When the log said last that a queue is full.
        self.told = None
        self.untold = 0

    def mule_msg(self, message, mule=ANY_MULE, /):
        """Send a message to any mule, to the mule of a number, or to a farm by its name. Return whether it is in the queue."""
        message = as_bytes("mule_msg", 1, message)
        if not self.mules:
            raise ValueError("no mule configured")
        if mule is ANY_MULE:
            return self.send(ANY_MULE, message)
        # uWSGI for Python 3 takes the name of a farm as bytes alone.
        if isinstance(mule, bytes):
            mule = mule.decode(errors="replace")
        if isinstance(mule, str):
            if mule not in self.farms:
                raise ValueError("unknown farm")
            return self.send(f"farm {mule}", message)
        if not isinstance(mule, int):
            raise ValueError("invalid mule")
        if not 0 <= mule <= self.mules:
            raise ValueError("invalid mule number")
        return self.send(f"mule {mule:d}" if mule else ANY_MULE, message)

    def farm_msg(self, farm, message, /):
        """Send a message to a farm. As in uWSGI, the result says nothing: the log does."""
        if not isinstance(farm, str):
            raise TypeError(f"farm_msg() argument 1 must be str, not {type(farm).__name__}")
        message = as_bytes("farm_msg", 2, message)
        if farm in self.farms:
            self.send(f"farm {farm}", message)
        else:
            self.tell(f"uwsgi.farm_msg: dropping a message: there is no farm {farm!r}")

    def send(self, name, message):
        place = self.places.get(name)
        if place is None:
            raise ValueError(f"the queue of {name} does not exist")
        outcome = self.native.send_message(place, message)
        if outcome == self.native.MESSAGE_SENT:
            return True
        self.native.count_refused_message()
        if outcome == self.native.MESSAGE_TOO_LONG:
            self.tell(f"a message of {len(message)} bytes to {name} is longer than a queue can hold: raise mule-msg-size")
        else:
            self.tell(f"the queue of messages to {name} is full, and refused a message: raise mule-msg-size, or add mules")
        return False

    def tell(self, line):
        now = time.monotonic()
        if self.told is not None and now - self.told < TOLD_EVERY_SECONDS:
            self.untold += 1
            return
        more = f" ({self.untold} more in the meantime)" if self.untold else ""
        self.told, self.untold = now, 0
        self.log.tell(line + more)


def as_bytes(function, place, message):
    """Return the bytes of a message: text or bytes, as uWSGI's functions take it."""
    if isinstance(message, str):
        return message.encode()
    if isinstance(message, bytes):
        return message
    try:
        return bytes(memoryview(message))
    except TypeError:
        wrong = f"{function}() argument {place} must be read-only bytes-like object, not {type(message).__name__}"
        raise TypeError(wrong) from None
