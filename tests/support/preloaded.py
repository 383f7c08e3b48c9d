"""Libraries in C that a test loads into the server with LD_PRELOAD."""

import subprocess
from pathlib import Path


def compiled(source, directory):
    """Compiles a library into a directory. Returns its path."""
    library = str(Path(directory) / f"{source.stem}.so")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library
