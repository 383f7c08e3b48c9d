"""Makes the helper of a task. Runs in helpers."""


def made(half, number):
    """Return the helper with this number in the settings."""
    described = half.settings["helpers"][number - 1]
    ((kind, task),) = described["task"].items()
    if kind == "Mule":
        from bolide.helpers.mule import Mule

        return Mule(half, f"mule {task['number']}", task)
    if kind == "Spooler":
        from bolide.helpers.spooler import Spooler

        return Spooler(half, f"spooler {task['number']}", task)
    if kind == "Script":
        from bolide.helpers.script import Script

        return Script(half, "script", task)
    raise NotImplementedError(f"a helper of Python can't be a {kind}")
