"""Functions that are called by a name: ``uwsgi.register_rpc``, ``rpc``, ``call`` and ``rpc_list``, within one process.

Calls to other servers are refused. Runs in every process that loads an application.
"""

from bolide import log

#: Maximum number of bytes of a name, as in uWSGI.
NAME_BYTES = 254
#: Maximum number of arguments of a call, as in uWSGI.
MAX_ARGUMENTS = 254


class Calls:
    """The functions by their names. Those that are registered before the fork belong to every process."""

    def __init__(self, most):
        self.most = most
        self.functions = {}

    def register_rpc(self, name, function, argc=0, /):
        """Register a function. One of the same name is replaced."""
        if not isinstance(name, str):
            raise TypeError(f"register_rpc() argument 1 must be str, not {type(name).__name__}")
        name = name.encode()
        if len(name) > NAME_BYTES:
            raise ValueError(f"unable to register rpc function: its name is longer than {NAME_BYTES} bytes")
        if name not in self.functions and len(self.functions) >= self.most:
            raise ValueError(f"unable to register rpc function: there are {self.most} already (rpc-max)")
        self.functions[name] = function
        return True

    def rpc_list(self):
        return tuple(self.functions)

    def rpc(self, node=None, /, *arguments):
        """Call a function of this process. `node` is None, or empty."""
        if node not in (None, "", b""):
            raise NotImplementedError(
                f"uwsgi.rpc: functions of other servers ({node!r}) can't be called: give the function a URL there, and request it"
            )
        return self.call(*arguments)

    def call(self, *arguments):
        """Return the bytes that a function returns; None if it returns nothing, raises, or does not exist."""
        if not arguments:
            raise ValueError("unable to call rpc function: it has no name")
        name, *texts = map(as_bytes, arguments)
        if len(texts) > MAX_ARGUMENTS:
            raise ValueError(f"unable to call rpc function: it has more than {MAX_ARGUMENTS} arguments")
        registered = self.functions.get(name)
        if registered is None:
            return None
        try:
            result = registered(*texts)
        except Exception as error:
            log.log_exception(error, f"the function {name.decode(errors='replace')} (rpc)")
            return None
        if isinstance(result, str):
            result = result.encode()
        return result if isinstance(result, bytes) and result else None


def as_bytes(value):
    """Return text as bytes too. uWSGI for Python 3 takes bytes alone."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise ValueError(f"unable to call rpc function: names and arguments are text or bytes, not {type(value).__name__}")
