"""Random configurations mean the same to uWSGI and to Bolide: the same pairs in the same order, or an error in both."""

import os
import re
import subprocess

import pytest
from configurations import Generator

#: Number of cases, and the first seed; thousands on demand.
CASES = int(os.environ.get("BOLIDE_COMPAT_CASES", "300"))
FIRST_SEED = int(os.environ.get("BOLIDE_COMPAT_SEED", "1"))
BEGIN = ";uWSGI instance configuration\n[uwsgi]\n"
END = ";end of configuration"
#: uWSGI's messages about unusable values.
REFUSED_VALUE = re.compile('invalid value for option "(?P<option>[^"]+)"|invalid chmod value')
SECONDS = 30
#: Both programs may have to be built first.
pytestmark = pytest.mark.timeout(1800)
ENVIRONMENT = {"PATH": os.environ["PATH"], "COMPAT_SET": "yes", "HOME": "/nonexistent"}


def run(command, directory, variables=None, text=""):
    """Runs a program without our environment, and decodes its output."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**ENVIRONMENT, **(variables or {})},
        input=text.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
    )
    done.stdout = done.stdout.decode(errors="replace")
    return done


def shown(program, arguments, directory, variables=None, text=""):
    """Returns the pairs that a program prints (None if it fails before that), and its whole output."""
    output = run([program, *arguments, "--show-config", "--no-server"], directory, variables, text).stdout
    if BEGIN not in output:
        return None, output
    return output.split(BEGIN, 1)[1].split(END, 1)[0], output


def compare(seed, uwsgi, bolide, directory):
    generator = Generator(seed, directory)
    arguments, variables = generator.command_line(), generator.environment()
    theirs, their_output = shown(uwsgi, arguments, directory, variables)
    ours, our_output = shown(bolide, arguments, directory, variables)
    if theirs is None and "Segmentation Fault" in their_output:
        # It crashes when an open condition is followed by a command-line switch, which has no value.
        return False
    refused = REFUSED_VALUE.search(their_output) if theirs is None else None
    if refused is not None and ours is not None:
        # uWSGI validates values before it shows them; here `check` does that.
        checked = run([bolide, "check", "--format", "lines", *arguments], directory, variables)
        option = refused["option"] or "chmod-socket"
        assert checked.returncode == 2, f"seed {seed}: {refused[0]}\n{checked.stdout}"
        assert f"error: `{option} = " in checked.stdout, f"seed {seed}: {refused[0]}\n{checked.stdout}"
        return False
    if theirs == ours:
        return theirs is not None
    files = "\n".join(f"--- {path.name}\n{path.read_bytes().decode()}" for path in sorted(directory.glob("*.ini")))
    said = f"=== uWSGI\n{theirs or their_output}\n=== Bolide\n{ours or our_output}"
    pytest.fail(f"seed {seed}: {variables} {' '.join(arguments)}\n{files}\n{said}")


def test_random_configurations_mean_the_same_to_uwsgi(uwsgi, bolide, tmp_path):
    valid = 0
    for seed in range(FIRST_SEED, FIRST_SEED + CASES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        valid += compare(seed, uwsgi, bolide, directory)
    assert valid > CASES // 2, f"only {valid} of {CASES} cases were valid: the generator is too odd"


XML = """\
<uwsgi>
 <master/><processes>1</processes>
 <!-- no -->
 <env>A=&lt;%(x)&gt;</env><x>2</x>
 <app mountpoint='/y'><script>z</script></app>
 <app mountpoint='/v'>
  <script>w</script>
 </app><app/>
</uwsgi>
"""
YAML = """\
other:
  a: 1
uwsgi:
  master: true
  # comment
  processes: %k
  env: A=%(x)
  x: 2
  log-format: %(method) a:b
last:
  b: 2
"""


XML_PAIRS = """\
xml = app.xml
master = 1
processes = 1
env = A=<2>
x = 2
mount = /v=w
app = {nothing}
app = {nothing}
"""


def test_yaml_means_the_same_to_uwsgi(uwsgi, bolide, tmp_path):
    (tmp_path / "app.yaml").write_text(YAML)
    theirs, output = shown(uwsgi, ["--yaml", "app.yaml"], tmp_path)
    assert theirs is not None, output
    assert shown(bolide, ["--yaml", "app.yaml"], tmp_path)[0] == theirs


def test_xml_means_the_same_to_uwsgi(uwsgi, bolide, tmp_path):
    (tmp_path / "app.xml").write_text(XML)
    expected = XML_PAIRS.format(nothing="") + "show-config = true\nno-server = true\n"
    assert shown(bolide, ["--xml", "app.xml"], tmp_path)[0] == expected
    # uWSGI supports XML only if built with libxml2; the pairs above are its output then.
    if "--xml" in run([uwsgi, "--help"], tmp_path).stdout:
        assert shown(uwsgi, ["--xml", "app.xml"], tmp_path)[0] == expected


def test_standard_input_means_the_same_to_uwsgi(uwsgi, bolide, tmp_path):
    text = "[uwsgi]\nx = [%o][%p][%d][%n]\nenv = A=%(x)\nmaster\n"
    theirs, output = shown(uwsgi, ["--ini", "-"], tmp_path, text=text)
    assert theirs is not None, output
    assert shown(bolide, ["--ini", "-"], tmp_path, text=text)[0] == theirs
