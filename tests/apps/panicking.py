"""Calls the server's internals from a foreign thread, which causes a panic of the server."""

import asyncio
import os
import threading


async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError("only HTTP panics here")
    if scope["path"] == "/panic":
        (main,) = [task for task in asyncio.all_tasks() if task.get_name() == "bolide"]
        worker = main.get_coro().cr_frame.f_locals["self"].worker
        thread = threading.Thread(target=lambda: worker.running)
        thread.start()
        thread.join()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
