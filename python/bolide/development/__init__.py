"""What a developer sees: reloading at a change, the traceback in the browser, debuggers."""
