"""The program of the master in a wheel: the build backend and `scripts/wheel` add it (packaging/build/program.py)."""

import base64
import hashlib
import importlib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "bolide/bin/bolide"
#: What the build adds to the wheel of maturin.
ADDED = (
    PROGRAM,
    "bolide/include/bolide_app.h",
    *(f"bolide/plugins/{file.name}" for file in (ROOT / "adapters").glob("*/bolide_*.c")),
)


@pytest.fixture
def built():
    """The wheel under test, by the names of its files."""
    wheels = list((ROOT / "build" / "wheels").glob("bolide-*.whl"))
    assert len(wheels) == 1, f"scripts/test builds one wheel into build/wheels before its tests; there are {wheels}"
    with zipfile.ZipFile(wheels[0]) as archive:
        return {file: archive.read(file) for file in archive.infolist()}


@pytest.fixture
def backend(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "packaging" / "build")
    return importlib.import_module("bolide_build")


@pytest.fixture
def build_wheel(backend, built, tmp_path, monkeypatch):
    """Builds a wheel with a maturin that has the native module already. Returns the wheel."""

    def build(directory, settings, metadata):
        with zipfile.ZipFile(Path(directory) / "made.whl", "w") as target:
            for file, content in built.items():
                if file.filename.endswith("/RECORD"):
                    lines = content.splitlines(keepends=True)
                    content = b"".join(line for line in lines if line.decode().split(",")[0] not in ADDED)
                if file.filename not in ADDED:
                    target.writestr(file, content)
        return "made.whl"

    monkeypatch.setattr(backend.maturin, "build_wheel", build)
    return lambda: tmp_path / backend.build_wheel(str(tmp_path))


def test_a_build_by_pip_adds_the_program_to_the_wheel(build_wheel, built):
    with zipfile.ZipFile(build_wheel()) as archive:
        assert sorted(archive.namelist()) == sorted(file.filename for file in built)
        program = archive.read(PROGRAM)
        assert archive.getinfo(PROGRAM).external_attr >> 16 == 0o100755
        (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        listed = dict(line.split(",", 1) for line in archive.read(record).decode().splitlines())
    digest = base64.urlsafe_b64encode(hashlib.sha256(program).digest()).rstrip(b"=").decode()
    assert listed[PROGRAM] == f"sha256={digest},{len(program)}"
    assert set(ADDED) <= set(listed)


def test_a_build_without_a_working_c_compiler_warns_and_makes_a_wheel_without_the_program(build_wheel, monkeypatch, capfd):
    monkeypatch.setenv("PROGRAM_CC", "false")
    wheel = build_wheel()
    assert "warning: the master will run without its own program" in capfd.readouterr().err
    assert PROGRAM not in zipfile.ZipFile(wheel).namelist()


def test_a_build_for_a_machine_of_another_kind_warns_and_makes_a_wheel_without_the_program(build_wheel, built, capfd):
    (module,) = (file for file in built if file.filename.startswith("bolide/_native.") and file.filename.endswith(".so"))
    # The class of 32 bits.
    built[module] = built[module][:4] + b"\x01" + built[module][5:]
    wheel = build_wheel()
    assert "warning: the master will run without its own program" in capfd.readouterr().err
    assert PROGRAM not in zipfile.ZipFile(wheel).namelist()


def test_the_names_of_python_are_read_from_the_module_and_a_program_without_a_loader_is_known(backend, built):
    program = backend.module_of(str(ROOT / "packaging" / "build" / "program.py"))
    contents = {file.filename: content for file, content in built.items()}
    (module,) = (content for name, content in contents.items() if name.startswith("bolide/_native.") and name.endswith(".so"))
    names = set(program.python_names(module))
    assert {"PyErr_SetString", "_Py_NoneStruct", "Py_AtExit"} <= names
    assert all(name.startswith(("Py", "_Py")) for name in names)
    # Like a static program, a module is not started by the loader of the C library.
    assert (program.is_dynamic(contents[PROGRAM]), program.is_dynamic(module)) == (True, False)
    assert len(contents[PROGRAM]) <= program.MAX_PROGRAM_BYTES
