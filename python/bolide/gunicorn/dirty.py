"""The client of gunicorn's dirty apps (``gunicorn.dirty.get_dirty_client``) for objects that mules keep (``mule-app``).

An application that imports ``gunicorn.dirty`` calls them as it does under gunicorn. Must not know how calls travel. Runs in every
process that loads an application, if there is such an object.
"""

import contextlib

from bolide.helpers import mules
from bolide.loading.after_import import after_import

#: The package of gunicorn whose clients are replaced.
PACKAGE = "gunicorn.dirty"


def install():
    """Replace gunicorn's clients when the application imports them."""
    after_import({PACKAGE: replace})


def replace(package):
    from gunicorn.dirty import client, errors

    for name, value in clients(errors).items():
        setattr(package, name, value)
        setattr(client, name, value)


def clients(errors):
    """Return the names that gunicorn's module gets. `errors` has its exceptions."""

    @contextlib.contextmanager
    def translated(app, method):
        """Raise the exceptions of gunicorn."""
        try:
            yield
        except mules.CallTimeoutError as error:
            raise errors.DirtyTimeoutError(str(error)) from None
        except mules.UnknownAppError:
            raise errors.DirtyNoWorkersAvailableError(app) from None
        except mules.MuleDiedError as error:
            raise errors.DirtyWorkerError(str(error)) from None
        except mules.AppError as error:
            raise errors.DirtyAppError(str(error), app, method, error.traceback) from None

    class DirtyClient:
        """A client of mules with the methods of gunicorn's."""

        def __init__(self, socket_path=None, timeout=mules.TIMEOUT_SECONDS):
            self.socket_path = socket_path
            self.timeout = timeout

        def execute(self, app_path, action, *arguments, **named):
            with translated(app_path, action):
                return mules.Call(app_path, action, self.timeout).run(arguments, named)

        def stream(self, app_path, action, *arguments, **named):
            with translated(app_path, action):
                yield from mules.Call(app_path, action, self.timeout).parts(arguments, named)

        async def execute_async(self, app_path, action, *arguments, **named):
            with translated(app_path, action):
                return await mules.Call(app_path, action, self.timeout).run_async(arguments, named)

        async def stream_async(self, app_path, action, *arguments, **named):
            with translated(app_path, action):
                async for part in mules.Call(app_path, action, self.timeout).parts_async(arguments, named):
                    yield part

        # Each call has a connection of its own, so there is nothing to open or close between calls.

        def connect(self):
            return None

        def close(self):
            return None

        async def connect_async(self):
            return None

        async def close_async(self):
            return None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            return None

    def get_dirty_client(timeout=mules.TIMEOUT_SECONDS):
        return DirtyClient(timeout=timeout)

    async def get_dirty_client_async(timeout=mules.TIMEOUT_SECONDS):
        return DirtyClient(timeout=timeout)

    return {
        "DirtyClient": DirtyClient,
        "get_dirty_client": get_dirty_client,
        "get_dirty_client_async": get_dirty_client_async,
    }
