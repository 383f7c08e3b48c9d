"""Random configurations: valid and odd ones, as people write them and slightly beyond."""

import random

#: Options that uWSGI sets without touching the machine, and values for them.
HARMLESS = {
    "processes": ["1", "4", "%k", "2 ; comment", "%(count)", "%(count * 2)"],
    "threads": ["2", "08", "%(count + 1)", " 3"],
    "harakiri": ["30", "60s", "30 # s", "%(count ++)"],
    "buffer-size": ["8192", "4096", "32768"],
    "max-requests": ["5000", "%(count count)", "1000"],
    "post-buffering": ["1", "4096"],
    "env": ["A=1", "LANG=C.UTF-8", "P=%(base)/x", "Q=$(COMPAT_SET)", "R=@(text.txt)", "S=%d", "HOME=$(COMPAT_UNSET)"],
    "static-index": ["%(name).html", "index.htm"],
    "log-format": ['%(addr) - %(user) [%(ltime)] "%(method)"', "%%(x) %(uri)"],
    "procname-prefix": ["%n-", "app "],
    "callable": ["app", "%(name)"],
    "pythonpath": ["%d", "%(base)", "lib/*"],
    "hook-as-user": ["print:%n"],
    "chmod-socket": ["660", "0666", "666"],
    "touch-reload": ["%p", "%d/%s", "%o"],
    "add-header": ["X-Y: z", "A: %(name); b"],
}
VARIABLES = ["COMPAT_SET", "COMPAT_SET=yes", "COMPAT_SET=no", "COMPAT_UNSET"]
SWITCHES = [
    "master",
    "vacuum",
    "enable-threads",
    "die-on-term",
    "single-interpreter",
    "need-app",
    "thunder-lock",
    "lazy-apps",
]
BOOLEANS = ["true", "True", "1", "false", "off", "no", "0", "yes", "on", "", "false # x", "maybe"]
#: Custom keys, which are placeholders at the same time. None refers back to itself: uWSGI hangs on a cycle.
PLAIN = [
    "/srv/app",
    "shop",
    "3",
    "12",
    "$(COMPAT_SET)",
    "%d",
    "%n",
    "",
    "a b",
    "1 (2) 3",
    "@(text.txt)",
    "100%%",
    "$(COMPAT_UNSET)",
]
OWN = {
    "name": PLAIN,
    "count": ["3", "12", "0", "7 of 9", "-2"],
    "base": ["%(name)/app", "-%(name)-", "%(count)%(count)", *PLAIN],
    "x": [
        "%(name)",
        " %(base)",
        "%(count - 1)",
        "%(count / 0)",
        "%(count ++)",
        "%(count count * 2)",
        "%(missing)",
        "%(missing + 1)",
        "%(name)(%(count))",
        *PLAIN,
    ],
    "project": [
        "%(x)",
        "%(x base)",
        "%(x - 3)",
        "[%(x)]",
        "%((x))",
        "%()",
        "%(",
        "%(x",
        "%( x )",
        "%(x)%(base)%(name)",
        "$(%(name))",
        "%($(COMPAT_SET))",
    ],
    "deep": ["%(project)", "a%(project)b", "%(project x 1)", "%(a%(name))", "%d%(x)%n"],
}
MAGIC = "".join("vpPdDnNsSeEcCxXoOkhuUgGVj0123456789ijzq%(")


def spaced(chance, key, value):
    """Returns a line of an ini file, with blanks as people leave them."""
    left = chance.choice(["", "", "", " ", "\t", "    "])
    middle = chance.choice([" = ", " = ", "=", "= ", " =", "\t=\t"])
    right = chance.choice(["", "", "", " ", "\t", " \t"])
    return f"{left}{key}{middle}{value}{right}"


class Generator:
    """Creates the files of one case in a directory."""

    def __init__(self, seed, directory):
        self.chance = random.Random(seed)
        self.directory = directory
        self.files = 0

    def pair(self):
        chance = self.chance
        kind = chance.random()
        if kind < 0.35:
            key = chance.choice(sorted(HARMLESS))
            return key, chance.choice(HARMLESS[key])
        if kind < 0.55:
            return chance.choice(SWITCHES), chance.choice(BOOLEANS)
        key = chance.choice(sorted(OWN))
        if kind < 0.85 or key == "count":
            return key, chance.choice(OWN[key])
        return key, "".join(f"[%{letter}]" for letter in chance.sample(MAGIC, 3) if letter != "(")

    def lines(self, depth):
        chance = self.chance
        lines = []
        for _ in range(chance.randint(2, 9)):
            kind = chance.random()
            if kind < 0.08:
                lines.append(chance.choice(["", "   ", "# comment = 1", "; x", "  # y %(z", "\t;"]))
            elif kind < 0.14:
                lines.append(chance.choice(SWITCHES + sorted(OWN)))
            elif kind < 0.30:
                lines.extend(self.block())
            elif kind < 0.36 and depth < 2:
                option = chance.choice(["include", "include", "ini", "inherit"])
                # uWSGI accepts a section after a colon for `ini` only; here all three do.
                lines.append(spaced(chance, option, self.write(depth + 1, sections=option == "ini")))
            elif kind < 0.42:
                option = chance.choice(["set", "set-placeholder", "set-ph"])
                own = chance.choice(["own1", "own2", "own3"])
                lines.append(spaced(chance, option, f"{own}={chance.choice(PLAIN)}"))
            elif kind < 0.46:
                lines.append(spaced(chance, "declare-option", "serve=env=$1;callable=$2;procname-prefix=x$1"))
                lines.append(spaced(chance, "serve", chance.choice(["A=1 app", "B=2", "C=%(name) z"])))
            else:
                lines.append(spaced(chance, *self.pair()))
        return lines

    def block(self):
        """Returns a condition or a loop around some pairs; rarely one that is not closed, or nested."""
        chance = self.chance
        opening, closing = chance.choice(
            [
                (("for", "a b  c"), "endfor"),
                (("for", ""), "endfor"),
                (("for-times", chance.choice(["2", "0", "x"])), "end-for"),
                (("for-glob", chance.choice(["*.txt", "nothing-*"])), "endfor"),
                (("for-readline", "text.txt"), "endfor"),
                (("if-env", chance.choice(VARIABLES)), "endif"),
                (("if-not-env", chance.choice(VARIABLES)), "endif"),
                (("ifenv", "COMPAT_SET"), "endif"),
                (("if-opt", chance.choice(["master", "base", "name=shop", "vacuum=true", "count"])), "endif"),
                (("if-not-opt", chance.choice(["master", "base", "name=shop", "vacuum=true", "count"])), "end-if"),
                (("if-exists", chance.choice(["text.txt", "/nonexistent", "%d"])), "endif"),
                (("if-not-exists", "/nonexistent"), "endif"),
                (("if-file", "text.txt"), "endif"),
                (("if-not-file", "."), "endif"),
                (("if-dir", "."), "endif"),
                (("if-not-dir", "text.txt"), "endif"),
                (("if-plugin", "python"), "endif"),
                (("if-not-plugin", "nothing"), "endif"),
                (("if-reload", "1"), "endif"),
                (("if-not-reload", "1"), "endif"),
                (("if-hostname", "no-such-host"), "endif"),
                (("if-not-hostname", "no-such-host"), "endif"),
            ]
        )
        lines = [spaced(chance, *opening)]
        for _ in range(chance.randint(0, 3)):
            key, value = self.pair()
            lines.append(spaced(chance, key, chance.choice([value, f"{value}%(_)", "%(_)"])))
        if chance.random() > 0.04:
            lines.append(chance.choice([f"{closing} =", closing, f"{closing} = true"]))
        return lines

    def write(self, depth=0, sections=True):
        """Writes one file, and the files that it includes. Returns its name, relative to the directory."""
        chance = self.chance
        self.files += 1
        name = f"{chance.choice(['conf', 'my.app', 'x'])}{self.files}.ini"
        section = "uwsgi" if not sections or chance.random() < 0.85 else "other"
        lines = ["[ignored]", "x = 1"] if chance.random() < 0.2 else []
        lines.append(f"[{section}]")
        lines.extend(self.lines(depth))
        if chance.random() < 0.1:
            lines.extend(["[more]", "count = 99", f"[{section}]", *self.lines(depth + 1)])
        end = "\r\n" if chance.random() < 0.1 else "\n"
        text = end.join(lines) + (end if chance.random() < 0.9 else "")
        (self.directory / name).write_bytes(text.encode())
        return name if section == "uwsgi" else f"{name}:{section}"

    def environment(self):
        """Returns environment variables that are options, in some of the cases."""
        chance = self.chance
        variables = {
            "UWSGI_THREADS": "3",
            "UWSGI_ENV": "FROM=%(count)",
            "UWSGI_COUNT": "8",
            "UWSGI_SET_PH": "own8=x",
            "UWSGI_BASE": "",
        }
        return dict(chance.sample(sorted(variables.items()), 2)) if chance.random() < 0.2 else {}

    def command_line(self):
        """Writes the files of one case and returns its arguments."""
        chance = self.chance
        (self.directory / "text.txt").write_text("one\ntwo words\n")
        (self.directory / "more.txt").write_text("")
        arguments = ["--ini", self.write()]
        before = ["--processes 2", "--master", "-p4 -M", "--set count=5", "--env=Z=1", "--set-ph own9=1"]
        if chance.random() < 0.3:
            arguments = [*chance.choice(before).split(), *arguments]
        after = ["--vacuum", "-C", "-C660", "--threads=%(count)"]
        if chance.random() < 0.15:
            arguments = [*arguments, chance.choice(after)]
        if chance.random() < 0.05:
            arguments = [*arguments, "--ini", self.write()]
        return arguments
