"""Adds the program of the master to wheels, and what builds plugins: ``program.py WHEEL…``.

The program (program.c) runs the master that is in the wheel's native module, in a process without Python. It has the names that
this module expects of Python, so it is compiled when the module has been linked. ``PROGRAM_CC`` is the compiler for another
machine or another C library, otherwise ``CC`` or ``cc``. The build backend and ``scripts/wheel`` call it.
"""

import base64
import hashlib
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCE = Path(__file__).with_name("program.c")
#: The program's path in the wheel. It has the name that processes are known by.
PLACE = "bolide/bin/bolide"
#: What `bolide plugin build` compiles, where a wheel has it. The repository has one copy of each.
ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "bolide/include/bolide_app.h": ROOT / "crates" / "abi" / "bolide_app.h",
    **{f"bolide/plugins/{file.name}": file for file in sorted((ROOT / "adapters").glob("*/bolide_*.c"))},
}
#: A larger program contains something unexpected.
MAX_PROGRAM_BYTES = 100_000
#: Python's names are exported, so that the module's are bound to them. The other flags are those that distributions harden with.
FLAGS = [
    "-std=c11",
    "-O2",
    "-Wall",
    "-fPIE",
    "-pie",
    "-fstack-protector-strong",
    "-Wformat",
    "-D_GNU_SOURCE",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-Wl,-z,relro,-z,now",
    "-Wl,--export-dynamic",
    "-s",
]

#: ELF, 64 bits: the offset of the table of segments and of that of sections, with their sizes and numbers, in the file's header.
HEADER = struct.Struct("<32xQQ6xHHHH")
SEGMENT_TYPE = struct.Struct("<I")
#: Of a section: its type, its offset and size, and the section that it refers to.
SECTION = struct.Struct("<4xI16xQQI")
#: Of a symbol: the offset of its name, and the section that defines it.
SYMBOL = struct.Struct("<IxxH16x")
#: The first bytes of a file with this layout: 64 bits, little-endian.
MAGIC = b"\x7fELF\x02\x01"
DYNAMIC_SYMBOLS = 11
UNDEFINED = 0
INTERPRETER = 3


def python_names(module):
    """Returns the names that a native module, as bytes, expects of Python. ValueError: it is for a machine of another kind."""
    if not module.startswith(MAGIC):
        raise ValueError("the native module is not an ELF file of 64 bits, little-endian")
    _, table, _, _, size, count = HEADER.unpack_from(module)
    sections = [SECTION.unpack_from(module, table + number * size) for number in range(count)]
    _, first, length, link = next(section for section in sections if section[0] == DYNAMIC_SYMBOLS)
    names = sections[link][1]
    for offset in range(first, first + length, SYMBOL.size):
        name, section = SYMBOL.unpack_from(module, offset)
        text = module[names + name : module.index(b"\0", names + name)].decode()
        if section == UNDEFINED and text.startswith(("Py", "_Py")):
            yield text


def is_dynamic(program):
    """Whether the loader of the C library starts this program, as bytes: a static one could not load a module."""
    table, _, size, count, _, _ = HEADER.unpack_from(program)
    types = (SEGMENT_TYPE.unpack_from(program, table + number * size)[0] for number in range(count))
    return INTERPRETER in types


def compiled(module_name, module, directory):
    """Returns the program for this native module, as bytes. subprocess.CalledProcessError: it could not be compiled."""
    directory = Path(directory)
    names = sorted(python_names(module))
    (directory / "python-names.h").write_text("".join(f"ABSENT({name})\n" for name in names))
    compiler = shlex.split(os.environ.get("PROGRAM_CC") or os.environ.get("CC") or "cc")
    program = directory / "bolide"
    command = [*compiler, *FLAGS, f"-I{directory}", f'-DMODULE="{module_name}"', "-o", program, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return program.read_bytes()


def add_to(wheel):
    """Adds the program and the sources of plugins to this wheel, unless they are there.

    OSError, subprocess.CalledProcessError: there is no compiler, or it fails. ValueError: the program could not work.
    """
    wheel = Path(wheel)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as directory:
        files = archive.infolist()
        if any(file.filename == PLACE for file in files):
            return
        (module,) = (file for file in files if file.filename.startswith("bolide/_native.") and file.filename.endswith(".so"))
        program = compiled(Path(module.filename).name, archive.read(module), directory)
        if not is_dynamic(program):
            raise ValueError(f"{wheel}: its program is static and can't load the native module")
        if len(program) > MAX_PROGRAM_BYTES:
            raise ValueError(f"{wheel}: its program has {len(program)} bytes, and {MAX_PROGRAM_BYTES} are the most")
        record = next(file for file in files if file.filename.endswith(".dist-info/RECORD"))
        added = [member(PLACE, module.date_time, 0o755, program)]
        added += [member(place, module.date_time, 0o644, file.read_bytes()) for place, file in SOURCES.items()]
        made = wheel.with_suffix(".whl.part")
        # RECORD is the last file, as the specification of wheels recommends.
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
            for file in files:
                if file is not record:
                    target.writestr(file, archive.read(file))
            for information, content, _ in added:
                target.writestr(information, content)
            target.writestr(record, archive.read(record) + b"".join(line for _, _, line in added))
    made.replace(wheel)


def member(place, date_time, mode, content):
    """Returns a file of a wheel, its content, and its line in RECORD."""
    information = zipfile.ZipInfo(place, date_time=date_time)
    information.compress_type = zipfile.ZIP_DEFLATED
    information.external_attr = (0o100000 | mode) << 16
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return information, content, f"{place},sha256={digest},{len(content)}\n".encode()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        add_to(each)
