"""Random configurations mean the same to uWSGI and to Bolide: the same pairs in the same order, or an error in both."""

import os
import re
import subprocess

import pytest
from configurations import Generator

#: How many cases are tried, and from which seed on; thousands on demand.
CASES = int(os.environ.get("BOLIDE_COMPAT_CASES", "300"))
FIRST_SEED = int(os.environ.get("BOLIDE_COMPAT_SEED", "1"))
BEGIN = ";uWSGI instance configuration\n[uwsgi]\n"
END = ";end of configuration"
#: What uWSGI says of a value that it can't use.
REFUSED_VALUE = re.compile('invalid value for option "(?P<option>[^"]+)"|invalid chmod value')
SECONDS = 30
ENVIRONMENT = {"PATH": os.environ["PATH"], "COMPAT_SET": "yes", "HOME": "/nonexistent"}


def shown(program, arguments, folder):
    """The pairs that a program prints, None if it ends with an error before that, and its whole output."""
    done = subprocess.run(
        [program, *arguments, "--show-config", "--no-server"],
        cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
    )  # fmt: skip
    output = done.stdout.decode(errors="replace")
    if BEGIN not in output:
        return None, output
    return output.split(BEGIN, 1)[1].split(END, 1)[0], output


def compare(seed, uwsgi, bolide, folder):
    arguments = Generator(seed, folder).command_line()
    theirs, their_output = shown(uwsgi, arguments, folder)
    ours, our_output = shown(bolide, arguments, folder)
    if theirs is None and "Segmentation Fault" in their_output:
        # It crashes where an open condition meets a switch of the command line, which has no value.
        return False
    refused = REFUSED_VALUE.search(their_output) if theirs is None else None
    if refused is not None and ours is not None:
        # uWSGI reads values before it shows them; here that is the business of `check`.
        checked = subprocess.run([bolide, "check", "--format", "lines", *arguments], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, timeout=SECONDS)
        option = refused["option"] or "chmod-socket"
        assert checked.returncode == 2 and f"error: `{option} = ".encode() in checked.stdout, f"seed {seed}: {refused[0]}\n{checked.stdout.decode()}"
        return False
    if theirs == ours:
        return theirs is not None
    files = "\n".join(f"--- {path.name}\n{path.read_bytes().decode()}" for path in sorted(folder.glob("*.ini")))
    pytest.fail(f"seed {seed}: {' '.join(arguments)}\n{files}\n=== uWSGI\n{theirs or their_output}\n=== Bolide\n{ours or our_output}")


def test_random_configurations_mean_the_same_to_uwsgi(uwsgi, bolide, tmp_path):
    valid = 0
    for seed in range(FIRST_SEED, FIRST_SEED + CASES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        valid += compare(seed, uwsgi, bolide, folder)
    assert valid > CASES // 2, f"only {valid} of {CASES} cases were valid: the generator is too odd"


XML = "<uwsgi>\n <master/><processes>%k</processes>\n <!-- no -->\n <env>A=&lt;%(x)&gt;</env><x>2</x>\n <app mountpoint='/y'><script>z</script></app>\n <app mountpoint='/v'>\n  <script>w</script>\n </app><app/>\n</uwsgi>\n"
YAML = "other:\n  a: 1\nuwsgi:\n  master: true\n  # comment\n  processes: %k\n  env: A=%(x)\n  x: 2\n  log-format: %(method) a:b\nlast:\n  b: 2\n"


@pytest.mark.parametrize(("option", "text"), [("xml", XML), ("yaml", YAML)])
def test_other_formats_mean_the_same_to_uwsgi(option, text, uwsgi, bolide, tmp_path):
    if option == "xml" and "--xml" not in subprocess.run([uwsgi, "--help"], stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout:
        pytest.fail("this uWSGI was built without libxml2: install its headers (libxml2-dev) and build it again")
    (tmp_path / f"app.{option}").write_text(text)
    theirs, output = shown(uwsgi, [f"--{option}", f"app.{option}"], tmp_path)
    ours, _ = shown(bolide, [f"--{option}", f"app.{option}"], tmp_path)
    assert theirs is not None, output
    assert ours == theirs
