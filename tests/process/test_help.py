"""The output of `bolide` about itself: help, versions, the man page, and completions as the shells themselves use them."""

import platform

import pytest
from support.commands import completed
from support.server import program

#: Number of lines of most people's terminals.
TERMINAL_LINES = 40


@pytest.fixture
def run(tmp_path):
    """Runs a program to its end. Returns its status, standard output and standard error."""

    def run(*command, **variables):
        done = completed(command, tmp_path, variables)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def bolide(run):
    return lambda *arguments, **variables: run(*program(), *arguments, **variables)


def test_the_short_help_fits_a_terminal_and_the_long_one_has_everything(bolide):
    status, short, _ = bolide("-h")
    assert status == 0
    assert len(short.splitlines()) <= TERMINAL_LINES
    assert bolide("help")[1] == short
    assert bolide("shop.ini", "-h")[1] == short
    _, long, _ = bolide("--help")
    assert "--websocket-ping-interval" in long
    assert "--websocket-ping-interval" not in short
    for text in (short, long):
        assert "--harakiri SECONDS" in text
        assert "--http ADDRESS" in text
        assert " VALUE" not in text


#: Flags of the command line that the tutorials use. They are not options of these names.
TAUGHT = ("--reload", "--port", "--host", "--workers")


def test_the_flags_of_the_tutorials_are_in_both_helps_and_explained(bolide):
    for text in (bolide("-h")[1], bolide("--help")[1]):
        section = text.split("Flags:")[1].split("\n\n")[0]
        assert all(f"{flag} " in section for flag in TAUGHT), section
    for flag in TAUGHT:
        for asked in (flag, flag.lstrip("-")):
            status, text, _ = bolide("explain", asked)
            assert status == 0
            assert flag.lstrip("-") in text.splitlines()[0], text
    status, text, _ = bolide("explain", "reload")
    assert "`develop`" in text
    assert "pidfile" in text


def test_each_option_has_one_line_in_the_long_help_that_says_what_it_is(bolide):
    text = bolide("--help")[1].split("Flags:")[1]
    lines = text.splitlines()
    assert not [line for line in lines if " The same" in line]
    heads = [line for line in lines if line.lstrip().startswith("-")]
    assert len(lines) < 1.5 * len(heads)


def test_the_list_of_options_fits_a_terminal_and_finds_words_of_whole_texts(bolide):
    status, text, _ = bolide("options", "log")
    assert status == 0
    assert "log-json" in text
    assert max(len(line) for line in text.splitlines()) <= 130
    assert "proxy-headers" in bolide("options", "reverse proxies")[1]


def test_config_shows_what_is_set_and_all_of_it_on_request(bolide, tmp_path):
    (tmp_path / "app.py").write_text("def app(environ, start_response): ...\n")
    status, few, _ = bolide("config", "app:app")
    assert status == 0
    assert "module = app:app" in few
    assert "# default\n" not in few.partition("# Sockets")[2]
    assert "--all" in few.splitlines()[-1]
    status, everything, _ = bolide("config", "--all", "app:app")
    assert status == 0
    assert set(few.splitlines()[:-1]) <= set(everything.splitlines())
    assert "; http-timeout = 60" in everything


def test_help_has_color_on_terminals_alone_unless_it_is_asked_for(bolide):
    assert "\x1b[" not in bolide("-h", FORCE_COLOR="", NO_COLOR="")[1]
    assert "\x1b[1m" in bolide("-h", FORCE_COLOR="1", NO_COLOR="")[1]
    assert "\x1b[" not in bolide("-h", FORCE_COLOR="1", NO_COLOR="1")[1]


def test_help_of_a_command_is_the_same_both_ways_and_has_flags_statuses_and_examples(bolide):
    status, said, _ = bolide("help", "check")
    assert status == 0
    assert bolide("check", "--help")[1] == bolide("check", "-h")[1] == said
    for part in ("--load", "sarif", "Exit statuses:", "Examples:"):
        assert part in said
    assert bolide("help", "harakiri")[1] == bolide("explain", "harakiri")[1]
    status, said, _ = bolide("help", "chekc")
    assert status == 2
    assert "did you mean `bolide help check`?" in said


def test_a_command_that_is_misspelled_gets_the_right_one(bolide):
    status, _, log = bolide("chekc")
    assert status == 1
    assert "did you mean `bolide check`?" in log


def test_the_version_names_the_program_its_python_and_the_system(bolide):
    status, said, _ = bolide("--version")
    assert status == 0
    version, *rest = said.strip().split(", ")
    assert version.startswith("bolide ")
    assert rest[-1] == "Linux"
    # The program that Cargo installs does not contain Python.
    assert rest[:-1] in ([], [f"CPython {platform.python_version()}"])
    assert bolide("-V")[1] == bolide("version")[1] == said


def test_the_man_page_has_signals_statuses_and_examples_and_man_takes_it_without_a_warning(bolide, run, tmp_path):
    status, page, _ = bolide("manual", "man")
    assert status == 0
    (tmp_path / "bolide.1").write_text(page)
    variables = {"MANROFFSEQ": "", "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""}
    status, text, warnings = run("man", "--warnings", "-E", "UTF-8", "-l", "bolide.1", **variables)
    assert status == 0
    assert warnings == ""
    for part in ("SIGNALS", "SIGHUP", "EXIT STATUS", "22", "EXAMPLES", "ENVIRONMENT", "NO_COLOR", "FILES"):
        assert part in text
    assert " VALUE" not in text


#: Words on the command line, and the completions of the last one.
COMPLETED = [
    (("che",), "check"),
    (("check", "--lo"), "--load"),
    (("check", "--format", "sa"), "sarif"),
    (("check", "uws"), "uwsgi.ini"),
    (("completions", "fi"), "fish"),
    (("explain", "harakiri-gr"), "harakiri-graceful-timeout"),
    (("--process",), "--processes"),
    (("--po",), "--port"),
    (("--ho",), "--host"),
    (("--interface", "as"), "asgi"),
    (("uws",), "uwsgi.ini"),
]


@pytest.fixture
def completions(bolide, tmp_path):
    """Writes the completions for a shell. Returns the file."""

    def completions(shell):
        status, text, _ = bolide("completions", shell)
        assert status == 0
        path = tmp_path / f"bolide.{shell}"
        path.write_text(text)
        (tmp_path / "uwsgi.ini").write_text("")
        return path

    return completions


@pytest.mark.parametrize(("words", "wanted"), COMPLETED, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_bash_completes(words, wanted, completions, run):
    line = " ".join(f"'{word}'" for word in ("bolide", *words))
    load = f"source {completions('bash')}; COMP_WORDS=({line}); COMP_CWORD={len(words)}"
    script = f"{load}; _bolide; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    status, said, log = run("bash", "--norc", "-c", script)
    assert (status, log) == (0, "")
    assert wanted in said.splitlines()


@pytest.mark.parametrize(("words", "wanted"), COMPLETED, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_fish_completes(words, wanted, completions, run, tmp_path):
    line = " ".join(("bolide", *words))
    variables = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    status, said, log = run("fish", "-c", f"source {completions('fish')}; complete -C '{line}'", **variables)
    assert (status, log) == (0, "")
    assert wanted in [offer.split("\t")[0] for offer in said.splitlines()]


def test_zsh_takes_the_completions_and_knows_the_function(completions, run, tmp_path):
    path = completions("zsh")
    script = (
        f"autoload -Uz compinit; compinit -u -d {tmp_path}/dump; source {path}; print -r -- $_comps[bolide]; whence -w _bolide"
    )
    status, said, log = run("zsh", "-f", "-c", script)
    assert (status, log) == (0, "")
    assert said.splitlines() == ["_bolide", "_bolide: function"]
    # As a file in `fpath` it is loaded by its name.
    directory = tmp_path / "functions"
    directory.mkdir()
    (directory / "_bolide").write_text(path.read_text())
    script = f"fpath=({directory} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump2; print -r -- $_comps[bolide]"
    assert run("zsh", "-f", "-c", script)[:2] == (0, "_bolide\n")


#: zsh completes only in a terminal, so it creates one itself. ^X s writes down the completed line, and clears it.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
type() {{ zpty -w $2 shell $1 }}
type 'PS1= RPS1=; unsetopt beep list_beep; autoload -Uz compinit; compinit -u -d {directory}/dump; source {file}; cd {directory}'
type 'shown() {{ print -r -- "$BUFFER" >> shown; BUFFER= }}; zle -N shown; bindkey "^Xs" shown; bindkey "^I" complete-word'
for line in {lines}; do type $line$'\t\x18s' -n; done
type exit
while zpty -r shell; do :; done
"""


def test_zsh_completes(completions, run, tmp_path):
    # It inserts the common prefix of several words, and does not print a list here.
    words = [(words, wanted) for words, wanted in COMPLETED if words[0] not in ("explain", "--process", "--po", "--ho")]
    lines = " ".join(f"'bolide {' '.join(typed)}'" for typed, _ in words)
    script = ZSH.format(directory=tmp_path, file=completions("zsh"), lines=lines)
    status, _, log = run("zsh", "-f", "-c", script)
    assert log == ""
    shown = (tmp_path / "shown").read_text().splitlines()
    assert [line.split()[-1] for line in shown] == [wanted for _, wanted in words], status
