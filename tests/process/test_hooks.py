"""Hooks: the actions at the steps of an instance's life, their directory and user, and the effect of a failure."""

import os
import signal
import socket

import pytest
from support import processes
from support.waiting import wait_until
from support_instance import LOAD_FAILED, START_FAILED

SERVE = ("--http-socket", "127.0.0.1:0", "--module", "probe")
STEPS = [
    "hook-asap",
    "hook-pre-jail",
    "hook-post-jail",
    "hook-in-jail",
    "hook-as-root",
    "hook-master-start",
    "hook-as-user",
    "hook-pre-app",
    "hook-post-app",
    "hook-post-fork",
    "hook-accepting",
    "hook-accepting-once",
    "hook-accepting1",
    "hook-accepting1-once",
    "hook-as-user-atexit",
]
#: The steps up to the fork of workers: from there on several processes write at a time.
IN_ORDER = STEPS[:9]
COMMANDS = (
    "exec-asap",
    "exec-pre-jail",
    "exec-post-jail",
    "exec-in-jail",
    "exec-as-root",
    "exec-as-user",
    "exec-pre-app",
    "exec-post-app",
    "exec-as-user-atexit",
)


def test_each_step_comes_in_its_order_and_workers_that_replace_others_are_not_the_first(start, tmp_path):
    steps = tmp_path / "steps"
    options = [word for step in STEPS for word in (f"--{step}", f"appendn:{steps} {step}")]
    instance = start(*options, "--processes", "2", alarms=True)
    lines = steps.read_text().split()
    assert lines[: len(IN_ORDER)] == IN_ORDER
    of_workers = ["hook-post-fork", "hook-accepting", "hook-accepting-once"] * 2 + ["hook-accepting1", "hook-accepting1-once"]
    assert sorted(lines[len(IN_ORDER) :]) == sorted(of_workers)
    instance.wait_for_text("hook pre-app: appendn:")

    steps.write_text("")
    processes.kill(instance.workers()[0])
    number = instance.wait_for_log(r"worker (\d) \(pid \d+\) was killed by SIGKILL")[1]
    # The replacement must have written its last line before the file is emptied.
    last = "hook-accepting1" if number == "1" else "hook-accepting"
    wait_until(lambda: last in steps.read_text().split(), "another worker")
    again = steps.read_text().split()
    assert again[:2] == ["hook-post-fork", "hook-accepting"]
    assert "hook-accepting-once" not in again
    assert "hook-accepting1-once" not in again

    steps.write_text("")
    instance.reload(2)
    assert steps.read_text().split()[:3] == ["hook-as-user", "hook-pre-app", "hook-post-app"]
    assert steps.read_text().split().count("hook-accepting-once") == 2

    steps.write_text("")
    assert instance.stop() == 0
    assert steps.read_text().split() == ["hook-as-user-atexit"]


def test_commands_run_at_their_steps_after_the_hooks_with_the_variables_of_the_instance(start, tmp_path):
    steps = tmp_path / "steps"
    options = [word for step in COMMANDS for word in (f"--{step}", f"echo {step} $COLOR >> {steps}")]
    hooks = ["--hook-pre-app", f"appendn:{steps} hook pre-app", "--hook-asap", "putenv:COLOR=red"]
    instance = start(*options, *hooks)
    assert instance.stop() == 0
    expected = [f"{step} red" for step in COMMANDS]
    expected.insert(COMMANDS.index("exec-pre-app"), "hook pre-app")
    assert steps.read_text().splitlines() == expected


def test_the_actions_do_what_they_say(start, tmp_path):
    actions = (
        f"mkdir:{tmp_path}/made",
        f"cd:{tmp_path}/made",
        "create:empty",
        "write:text one",
        "append:text two",
        "writen:line one",
        "appendn:line two",
        "rename:line lines",
        "chmod:lines 600",
        f"chown:lines {os.getuid()} {os.getgid()}",
        f"wait_for_dir:{tmp_path}",
        "wait_for_file:lines",
        "sticky:.",
        "create:gone",
        "unlink:gone",
        "mkdir:no-directory",
        "rmdir:no-directory",
        "safeexec:exit 3",
        "print:the print of a hook",
        "!exec:echo secret > private",
        "unix_signal:15 gracefully_kill_them_all",
        f"cd:{tmp_path}",
    )
    instance = start(*[word for action in actions for word in ("--hook-pre-jail", action)], alarms=True)
    made = tmp_path / "made"
    assert {path.name for path in made.iterdir()} == {"empty", "text", "lines", "private"}
    assert (made / "text").read_text() == "onetwo"
    assert (made / "lines").read_text() == "one\ntwo\n"
    assert (made / "lines").stat().st_mode & 0o777 == 0o600
    assert made.stat().st_mode & 0o1000
    instance.wait_for_text("the print of a hook\n")
    assert "secret" not in instance.log
    assert instance.stop(signal.SIGTERM) == 0


def test_functions_are_those_of_the_application_with_their_argument(start, tmp_path):
    (tmp_path / "named.py").write_text(
        "import os\ndef note(*arguments):\n    open('notes', 'a').write(f'{os.getpid()} {arguments!r}\\n')\n    return 7\n"
    )
    hooks = (
        ("call-pre-app", "named:note"),
        ("call-post-app", "named:note"),
        ("hook-post-app", "call:named.note some words"),
        ("hook-post-fork", "callint:named:note 42"),
        ("hook-post-app", "call:uwsgi_log said by the log"),
    )
    instance = start("--pythonpath", tmp_path, *[word for name, value in hooks for word in (f"--{name}", value)])
    (prototype, worker) = (instance.prototype(), instance.worker())
    # Hooks of a step come before its calls.
    assert (tmp_path / "notes").read_text().splitlines() == [
        f"{prototype} ()",
        f"{prototype} ('some words',)",
        f"{prototype} ()",
        f"{worker} (42,)",
    ]
    instance.wait_for_text("said by the log\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_hooks_of_the_user_have_no_rights_of_root(fail, start, tmp_path):
    os.chmod(tmp_path, 0o777)
    instance = start(
        "--gid", "nogroup",
        "--hook-as-root", f"exec:id -u > {tmp_path}/root",
        "--hook-master-start", f"exec:id -g > {tmp_path}/master",
        "--hook-as-user-atexit", f"exec:id -g > {tmp_path}/end",
    )  # fmt: skip
    assert instance.stop() == 0
    assert (tmp_path / "root").read_text() == "0\n"
    assert (tmp_path / "master").read_text() == "65534\n"
    assert (tmp_path / "end").read_text() == "65534\n"


@pytest.mark.parametrize("step", ["asap", "as-root", "master-start", "as-user", "pre-app", "post-app", "post-fork", "accepting1"])
def test_a_hook_that_fails_ends_the_start_and_the_last_line_says_where_it_is_written(fail, tmp_path, step):
    configuration = tmp_path / "uwsgi.ini"
    probes = os.path.join(os.path.dirname(__file__), "probes")
    configuration.write_text(
        f"[uwsgi]\nhttp-socket = 127.0.0.1:0\npythonpath = {probes}\nmodule = probe\nmaster = true\nhook-{step} = exec:exit 3\n"
    )
    status, lines = fail(configuration)
    in_master = step in ("asap", "as-root", "master-start")
    assert status == (START_FAILED if in_master else LOAD_FAILED), lines
    assert "uwsgi.ini:6: `exec:exit 3`" in lines[-1], lines
    assert "the command exited with status 3" in lines[-1]


def test_a_function_that_answers_no_or_raises_ends_the_start(fail, tmp_path):
    (tmp_path / "named.py").write_text("def no():\n    return 3\ndef raises():\n    raise RuntimeError('broken')\n")
    probes = os.path.join(os.path.dirname(__file__), "probes")
    for value, words in (
        ("callret:named:no", "returned 3"),
        ("call:named:raises", "RuntimeError: broken"),
        ("call:named:none", "has no 'none'"),
    ):
        status, lines = fail(*SERVE, "--pythonpath", probes, "--pythonpath", tmp_path, "--master", "--hook-post-app", value)
        assert status == LOAD_FAILED
        assert words in lines[-1], lines


def test_a_reload_whose_hook_fails_leaves_the_old_generation_serving(start, tmp_path):
    instance = start("--hook-pre-app", f"exec:test ! -e {tmp_path}/broken", alarms=True)
    (tmp_path / "broken").touch()
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_log("generation 1 keeps serving")
    assert instance.body()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("hook-asap", "exec", "which has no `:`"),
        ("hook-asap", "dance:now", "`dance`, which is not an action"),
        ("hook-asap", "write:file", "which takes more"),
        ("hook-asap", "chmod:file rwx", "in octal digits"),
        ("hook-asap", "call:module:function", "in a process without Python"),
        ("hook-post-app", "call:printf", "which does not contain a module"),
        ("hook-as-root", "mount:proc none /proc", "exec:mount"),
        ("hook-master-start", "unix_signal:15 reap_them_all", "signals have fixed meanings"),
        ("hook-post-fork", "putenv:A=B", "write `env = NAME=VALUE`"),
        ("call-as-root", "function", "there is no Python in this process"),
        ("hook-touch", "file", "lacks a file and an action"),
        ("hook-touch", "file call:module:function", "in a process without Python"),
    ],
)
def test_a_hook_that_can_not_be_is_refused_at_the_start(fail, option, value, words):
    status, lines = fail(*SERVE, f"--{option}", value)
    assert status != 0
    assert any(words in line for line in lines), lines


def test_a_file_and_an_address_are_waited_for(start, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        instance = start("--wait-for-file", tmp_path / "there", "--wait-for-socket", address, ready=False)
        instance.wait_for_log(f"hook as-root: {tmp_path}/there")
        assert "listening on" not in instance.log
        (tmp_path / "there").touch()
        instance.wait_for_log("bolide: ready: ")
        assert instance.body()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take on groups")
def test_the_application_has_the_groups_that_were_added(start, tmp_path):
    instance = start("--add-gid", "12345", "--hook-post-fork", f"exec:id -G > {tmp_path}/groups")
    assert instance.body()
    assert "12345" in (tmp_path / "groups").read_text().split()


def test_a_touched_file_does_its_hook_and_serving_goes_on_meanwhile(start, tmp_path):
    go_on = tmp_path / "go-on"
    instance = start(
        "--hook-touch", f"{tmp_path}/flag appendn:{tmp_path}/steps hook",
        "--touch-exec", f"{tmp_path}/flag echo begun >> {tmp_path}/slow; until test -e {go_on}; do sleep 0.02; done",
        "--hook-touch", f"{tmp_path}/broken exec:exit 3",
    )  # fmt: skip
    (tmp_path / "flag").touch()
    wait_until(lambda: (tmp_path / "steps").is_file() and (tmp_path / "steps").read_text() == "hook\n", "the hook")
    wait_until(lambda: (tmp_path / "slow").is_file() and (tmp_path / "slow").read_text() == "begun\n", "the command")
    assert instance.body()
    # Touched again while the command runs: it runs once more when it has ended.
    os.utime(tmp_path / "flag", (1, 1))
    wait_until(lambda: (tmp_path / "steps").read_text() == "hook\nhook\n", "the hook once more")
    assert (tmp_path / "slow").read_text() == "begun\n"
    go_on.touch()
    wait_until(lambda: (tmp_path / "slow").read_text() == "begun\nbegun\n", "the command once more")
    (tmp_path / "broken").touch()
    instance.wait_for_log("`exec:exit 3` \\(touch\\): the command exited with status 3")
    instance.expects_alarms = True
    assert instance.body()


def test_a_hook_that_is_under_way_ends_with_the_instance(start, tmp_path):
    instance = start("--touch-exec", f"{tmp_path}/flag touch {tmp_path}/begun; sleep 1000")
    (tmp_path / "flag").touch()
    wait_until((tmp_path / "begun").is_file, "the command")
    assert instance.stop() == 0
    # The fixture fails if a process is left.


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_hooks_of_touched_files_have_no_rights_of_root(start, tmp_path):
    os.chmod(tmp_path, 0o777)
    instance = start("--gid", "nogroup", "--touch-exec", f"{tmp_path}/flag id -g > {tmp_path}/group")
    (tmp_path / "flag").touch()
    wait_until(lambda: (tmp_path / "group").is_file() and (tmp_path / "group").read_text() == "65534\n", "the command")
    assert instance.body()
