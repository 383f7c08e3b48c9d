"""Unsupported Pythons are refused with a message: when the native module is built, and when it is imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bolide
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The directory of the tested build.
BUILT = Path(os.environ.get("BOLIDE_BINARY", ROOT / "target" / "quick" / "bolide")).parent

#: The information about an interpreter that PyO3 passes to build scripts.
FOUND = "implementation={implementation}\nversion={version}\nshared=true\nbuild_flags={flags}\n"


def build_script():
    """The compiled build script of the native module, from the tested build."""
    compiled = BUILT.glob("build/bolide-cpython-*/build-script-build")
    return max(compiled, key=lambda path: path.stat().st_mtime)


def told_by_build_script(**found):
    described = FOUND.format(**{"implementation": "CPython", "version": "3.13", "flags": "", **found})
    environment = {**os.environ, "DEP_PYTHON_PYO3_CONFIG": described.encode().hex()}
    return subprocess.run([build_script()], env=environment, capture_output=True, text=True, check=True).stdout


def test_the_native_module_is_not_built_for_a_free_threaded_python():
    told = told_by_build_script(version="3.14", flags="Py_GIL_DISABLED")
    assert "cargo::error=Python 3.14t is free-threaded, which Bolide does not support yet" in told
    assert "(python3.14)" in told


def asked_by_pip(before):
    """Returns the output of pip's first hook, in an interpreter in which some lines of Python were run before."""
    call = "import bolide_build; bolide_build.get_requires_for_build_wheel()"
    code = f"{before}\nimport sys; sys.path.insert(0, 'packaging/build'); {call}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


def test_pip_refuses_a_free_threaded_python_at_once():
    done = asked_by_pip("import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1")
    assert done.returncode == 1
    assert re.fullmatch(r"error: Python 3\.\d+t \(.*\) is free-threaded, which Bolide does not support yet: .*GIL\n", done.stderr)
    done = asked_by_pip("import sys; sys.implementation.name = 'pypy'")
    assert re.fullmatch(r"error: Bolide runs on CPython, and .* is pypy: .*\n", done.stderr)


def test_pip_prints_no_message_if_the_python_is_supported():
    done = asked_by_pip("")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_native_module_is_not_built_for_another_implementation():
    assert "cargo::error=Bolide runs on CPython 3.9 or later" in told_by_build_script(implementation="PyPy", version="3.11")


def test_the_native_module_is_built_for_the_ordinary_python():
    assert "error" not in told_by_build_script()


@pytest.fixture
def imported(tmp_path):
    """Imports a copy of the package, after some lines of Python, with a native module of this name. Returns Python's output."""
    package = tmp_path / "bolide"
    package.mkdir()
    for name in ("__init__.py", "unsupported.py", "prototype.py"):
        (package / name).write_text((Path(bolide.__file__).parent / name).read_text())

    def imported(native, before="", run="import bolide"):
        (package / native).write_bytes(b"")
        without = "sys.path[:] = [path for path in sys.path if 'site-packages' not in path]"
        code = f"import sys; {without}; sys.path.insert(0, {str(tmp_path)!r})\n"
        done = subprocess.run([sys.executable, "-I", "-c", f"{code}{before}\n{run}"], capture_output=True, text=True)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    return imported


#: The prototype as the master executes it: a file, with the number of a descriptor.
PROTOTYPE = (
    "import runpy; sys.argv = ['prototype.py', '9']; runpy.run_path(sys.path[0] + '/bolide/prototype.py', run_name='__main__')"
)
FREE_THREADED = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1"


def test_a_free_threaded_python_is_refused_at_import(imported):
    version = "{}.{}".format(*sys.version_info)
    said = imported("_native.cpython-311-x86_64-linux-gnu.txt", FREE_THREADED)
    assert said.startswith(f"bolide.unsupported.Unsupported: Python {version}t ("), said
    assert said.endswith(
        f"which Bolide does not support yet: install it into the standard build (python{version}), which has the GIL"
    )


def test_the_prototype_of_a_free_threaded_python_says_so_too(imported):
    said = imported("_native.cpython-311-x86_64-linux-gnu.txt", FREE_THREADED, PROTOTYPE)
    assert said.startswith("bolide: the Python of this application (")
    # There is nothing to install.
    assert said.endswith("which has the GIL")


def test_a_package_for_another_version_of_python_says_for_which(imported):
    said = imported("_native.cpython-38-x86_64-linux-gnu.so")
    assert "is for Python 3.8, and " in said
    assert said.endswith(" is {}.{}".format(*sys.version_info))
    said = imported("_native.cpython-38-x86_64-linux-gnu.so", run=PROTOTYPE)
    assert said.endswith(". Install Bolide into it: pip install bolide")
