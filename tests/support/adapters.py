"""Compiles adapters in C, as their authors do."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: A fortified C library notices a jump into a frame that is gone.
FLAGS = ("-std=gnu11", "-O1", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-shared", "-fPIC", "-pthread")


def compiled(source, directory, name, *flags):
    """Compiles ``source`` to ``bolide_NAME.so`` in the directory and returns its path."""
    library = Path(directory) / f"bolide_{name}.so"
    header = ROOT / "crates" / "abi"
    done = subprocess.run(
        ["cc", *FLAGS, *flags, f"-I{header}", "-o", library, source], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return library
