"""Leases: locks that several machines share and that end by themselves (``bolide.lease``).

They are kept by the Redis or Valkey server of the option ``lock-engine``. The native module talks to it. Processes that have the
application loaded use it.
"""

from __future__ import annotations

from types import TracebackType

from bolide import _native

__all__ = ["Lease", "lease"]


class Lease:
    """A lease that this process holds until it is released or its time has come. A ``with`` block releases it at its end.

    ``token`` is larger than the token of each earlier holder. A store that refuses a smaller token than the largest one it has
    seen is safe from a holder that was stopped or cut off, and has not noticed that its lease has ended.
    """

    __slots__ = ("_native", "_seconds", "name")

    def __init__(self, name: str, seconds: float, native: _native.Lease) -> None:
        self.name = name
        self._seconds = seconds
        self._native = native

    @property
    def token(self) -> int:
        return self._native.token

    def remaining(self) -> float:
        """Return for how many seconds the lease lasts, as far as this process knows. 0.0: it has ended."""
        return self._native.remaining()

    def renew(self, seconds: float | None = None) -> bool:
        """Let the lease last for this time from now. Return False if it has ended before.

        ConnectionError: the engine is away, and the lease ends at its time.
        """
        return self._native.renew(self._seconds if seconds is None else seconds)

    def release(self) -> bool:
        """Release the lease. Return False if it had ended before. ConnectionError: the engine is away."""
        return self._native.release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self.release()
        except ConnectionError:
            # The lease ends at its time. The block's own result or exception counts.
            return

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} token={self.token} remaining={self.remaining():.1f}>"


def lease(name: str, seconds: float = 30.0, wait: float = 0.0) -> Lease | None:
    """Take a lease for this time. Return None if another process, on whatever machine, holds it for longer than `wait` seconds.

    Raises ConnectionError if the engine is not reachable, and RuntimeError if the option ``lock-engine`` does not contain one.
    """
    taken = _native.take_lease(name, seconds, wait)
    return None if taken is None else Lease(name, seconds, taken)
