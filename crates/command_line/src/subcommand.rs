//! The commands: words as the first argument. `--help`, `bolide help`, the man page and the completions derive from this table,
//! and `commands` runs the commands. It must not run anything itself.

use bolide_configuration::instance_commands::{EXIT_STATUSES, InstanceCommand};
use bolide_configuration::suggest;

use crate::command_flags::{CommandFlag, Example, FILE, flag};
use crate::observing_commands::{ObservingCommand, ObservingRow};

/// The exit status of a command with wrong arguments, or with an error among its findings.
pub const FAILED: i32 = 2;
/// The exit status of `check --strict` if the worst finding is a warning.
pub const WARNED: i32 = 1;
/// The forms of `check --format`.
pub const FORMATS: [&str; 5] = ["text", "lines", "json", "sarif", "github"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subcommand {
    Check,
    Doctor,
    Config,
    Init,
    /// Looks at the jobs of a spooler.
    Spool,
    /// Builds the adapter of a language.
    Plugin,
    Explain,
    Options,
    Schema,
    Help,
    Version,
    Manual,
    Completions,
    Grafana,
    /// Sends a command to a running instance.
    Instance(InstanceCommand),
    /// Looks at a running instance, or at what it has left.
    Observing(ObservingCommand),
}

bolide_contract::with_words! {
    /// A group of commands in `--help`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Group {
        Configurations = "Configuration",
        Instances = "Running instances",
        Texts = "Reference",
    }
    pub fn title() -> &'static str;
}

/// The words after a command, for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Files,
    /// Names of options.
    Options,
    /// Names of commands, and of options.
    Topics,
    Words(&'static [&'static str]),
}

/// Everything about one command.
#[derive(Debug, Clone, Copy)]
struct CommandRow {
    name: &'static str,
    /// Arguments after the flags.
    arguments: &'static str,
    help: &'static str,
    group: Group,
    takes: Takes,
    flags: &'static [CommandFlag],
    examples: &'static [Example],
}

/// The shells of `completions`.
pub const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];
/// The actions of `spool`.
pub const SPOOL_ACTIONS: [&str; 4] = ["list", "show", "retry", "drop"];
/// The actions of `plugin`.
pub const PLUGIN_ACTIONS: [&str; 2] = ["build", "header"];
/// The forms of `manual`.
pub const MANUALS: [&str; 2] = ["man", "markdown"];

const CHECK_FLAGS: &[CommandFlag] = &[
    flag("--strict", "exit with 1 if there are warnings"),
    flag("--load", "also import the application, in a separate Python; nothing is served"),
    flag("--no-paths", "paths and users belong to another machine, so problems with them are not reported"),
    flag("--partial", "the command line adds a socket or an application to the file, so their absence is not reported"),
    flag("--env", "no file: check variables such as UWSGI_MODULE"),
    CommandFlag { name: "--format", words: &FORMATS, help: "the format of the report" },
    flag("--json", "the same as `--format json`"),
];
const INIT_FLAGS: &[CommandFlag] = &[
    CommandFlag {
        name: "--from",
        words: FILE,
        help: "what starts the project now: gunicorn.conf.py, Procfile, Dockerfile, Compose, supervisord or systemd",
    },
    CommandFlag { name: "--to", words: &["ini", "toml"], help: "the format of the new file" },
    flag("--systemd", "also write a unit of systemd; an existing bolide.ini is used"),
    CommandFlag {
        name: "--user",
        words: &["USER"],
        help: "with `--systemd`: who the application is; the default is the user of `uid`, or the owner of the directory",
    },
    flag("--emperor", "write the configuration of an emperor, the directory of its sites, and a unit of systemd"),
];
const CONFIG_FLAGS: &[CommandFlag] =
    &[flag("--all", "show the defaults of the options that are not set, too"), flag("--json", "print one JSON object")];
/// Flags of the commands for a running instance: each accepts those in its usage.
const INSTANCE_FLAGS: &[CommandFlag] = &[
    flag("--wait", "wait until the request has succeeded or failed"),
    flag("--chain", "replace the workers one by one"),
    flag("--now", "don't wait for requests in flight"),
    flag("--json", "print one JSON object"),
    flag("--watch", "show it again every 2 s; a number of seconds may follow"),
    flag("--unmasked", "show the values of query strings"),
];

const CHECK_EXAMPLES: &[Example] = &[
    ("bolide check uwsgi.ini", "report problems in a file"),
    ("bolide check --load uwsgi.ini", "and check that its application can be imported"),
    ("bolide check --strict --no-paths --format github deploy/*.ini", "in a workflow, for another machine"),
];
const DOCTOR_FLAGS: &[CommandFlag] = &[flag("--json", "print one JSON object")];
const DOCTOR_EXAMPLES: &[Example] = &[
    ("bolide doctor uwsgi.ini", "before the first startup on a machine"),
    ("bolide doctor", "the configuration of this directory; without one, the machine alone"),
];
const CONFIG_EXAMPLES: &[Example] =
    &[("bolide config app:app", "show what this command would do"), ("bolide config --json uwsgi.ini", "the same as JSON")];
const INIT_EXAMPLES: &[Example] = &[
    ("bolide init", "for the project in this directory"),
    ("bolide init app:app", "for this application"),
    ("bolide init --from Procfile", "for the command of another server"),
    ("bolide init --systemd", "with a unit of systemd"),
    ("bolide init --emperor", "for a directory of sites"),
];
const SPOOL_FLAGS: &[CommandFlag] =
    &[flag("--json", "print one JSON object"), flag("--all", "with `retry`: all jobs that have failed")];
const SPOOL_EXAMPLES: &[Example] = &[
    ("bolide spool list uwsgi.ini", "the jobs in the directories of a configuration"),
    ("bolide spool show jobs NAME", "the content of a job"),
    ("bolide spool retry jobs --all", "have a spooler try the failed jobs again"),
];
const PLUGIN_FLAGS: &[CommandFlag] =
    &[CommandFlag { name: "--into", words: &["DIR"], help: "with `build`: where the library goes; the default is the package" }];
const PLUGIN_EXAMPLES: &[Example] = &[
    ("bolide plugin build lua", "the adapter of Lua, into the package"),
    ("bolide plugin build mine.c --into /srv/plugins", "an adapter of your own"),
    ("cc -shared -fPIC -I$(bolide plugin header) -o bolide_mine.so mine.c", "the same without the command"),
];
const SCHEMA_EXAMPLES: &[Example] = &[("bolide schema > bolide.schema.json", "a JSON Schema, for an editor")];
const EXPLAIN_EXAMPLES: &[Example] = &[("bolide explain harakiri", "one option"), ("bolide explain -p", "by its letter")];
const HELP_EXAMPLES: &[Example] = &[("bolide help check", "a command"), ("bolide help harakiri", "an option")];
const COMPLETIONS_EXAMPLES: &[Example] = &[
    ("source <(bolide completions bash)", "in ~/.bashrc"),
    ("bolide completions zsh > ~/.zfunc/_bolide", "a directory of `fpath`"),
    ("bolide completions fish > ~/.config/fish/completions/bolide.fish", ""),
];

const GRAFANA_EXAMPLES: &[Example] = &[("bolide grafana > bolide.json", "a file that Grafana imports")];

/// Commands that do not need a running instance.
const OFFLINE: [Subcommand; 14] = [
    Subcommand::Check,
    Subcommand::Doctor,
    Subcommand::Config,
    Subcommand::Init,
    Subcommand::Spool,
    Subcommand::Plugin,
    Subcommand::Explain,
    Subcommand::Options,
    Subcommand::Schema,
    Subcommand::Help,
    Subcommand::Version,
    Subcommand::Manual,
    Subcommand::Completions,
    Subcommand::Grafana,
];

impl Subcommand {
    /// In the order in which they are listed.
    pub const ALL: [Subcommand; OFFLINE.len() + InstanceCommand::ALL.len() + ObservingCommand::ALL.len()] = {
        let mut all = [Subcommand::Check; OFFLINE.len() + InstanceCommand::ALL.len() + ObservingCommand::ALL.len()];
        let mut number = 0;
        while number < all.len() {
            let of_instance = number.saturating_sub(OFFLINE.len());
            all[number] = if number < OFFLINE.len() {
                OFFLINE[number]
            } else if of_instance < InstanceCommand::ALL.len() {
                Subcommand::Instance(InstanceCommand::ALL[of_instance])
            } else {
                Subcommand::Observing(ObservingCommand::ALL[of_instance - InstanceCommand::ALL.len()])
            };
            number += 1;
        }
        all
    };

    /// Returns the command of a name.
    pub fn named(name: &str) -> Option<Subcommand> {
        Subcommand::ALL.into_iter().find(|command| command.name() == name)
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Flags and arguments after the name.
    pub fn usage(self) -> String {
        if let Subcommand::Instance(command) = self {
            return command.usage().to_owned();
        }
        let flags = self.flags().into_iter().map(|flag| match flag.words {
            [] => format!("[{}]", flag.name),
            words => format!("[{} {}]", flag.name, words.join("|")),
        });
        flags.chain(Some(self.row().arguments.to_owned()).filter(|text| !text.is_empty())).collect::<Vec<_>>().join(" ")
    }

    /// Arguments after the flags.
    pub fn arguments(self) -> &'static str {
        self.row().arguments
    }

    pub fn help(self) -> &'static str {
        self.row().help
    }

    pub fn group(self) -> Group {
        self.row().group
    }

    pub fn takes(self) -> Takes {
        self.row().takes
    }

    pub fn flags(self) -> Vec<CommandFlag> {
        let row = self.row();
        match self {
            Subcommand::Instance(command) => row.flags.iter().copied().filter(|flag| command.takes(flag.name)).collect(),
            _ => row.flags.to_vec(),
        }
    }

    pub fn examples(self) -> &'static [Example] {
        self.row().examples
    }

    /// The meanings of its exit statuses, if there are more than success and failure.
    pub fn statuses(self) -> Vec<(i32, &'static str)> {
        match self {
            Subcommand::Doctor => {
                vec![(0, "notes and warnings at most"), (FAILED, "errors: startup would fail")]
            }
            Subcommand::Check => vec![
                (0, "only notes, or only notes and warnings without `--strict`"),
                (WARNED, "warnings, with `--strict`"),
                (FAILED, "errors: startup would fail; or wrong usage of the command"),
            ],
            Subcommand::Instance(_) | Subcommand::Observing(_) => EXIT_STATUSES.to_vec(),
            _ => Vec::new(),
        }
    }

    fn row(self) -> CommandRow {
        let of =
            |name, arguments, help, group, takes| CommandRow { name, arguments, help, group, takes, flags: &[], examples: &[] };
        let configurations = |name, arguments, help| of(name, arguments, help, Group::Configurations, Takes::Files);
        let texts = |name, arguments, help, takes| of(name, arguments, help, Group::Texts, takes);
        match self {
            Subcommand::Check => CommandRow {
                flags: CHECK_FLAGS,
                examples: CHECK_EXAMPLES,
                ..configurations("check", "[FILE…]", "check configurations without starting, and report problems")
            },
            Subcommand::Doctor => CommandRow {
                flags: DOCTOR_FLAGS,
                examples: DOCTOR_EXAMPLES,
                ..configurations(
                    "doctor",
                    "[FILE… | APPLICATION]",
                    "check a configuration, load its application, and examine the limits of this machine",
                )
            },
            Subcommand::Config => CommandRow {
                flags: CONFIG_FLAGS,
                examples: CONFIG_EXAMPLES,
                ..configurations("config", "FILE… | APPLICATION", "show the plan of startup, and the origin of each value")
            },
            Subcommand::Init => CommandRow {
                flags: INIT_FLAGS,
                examples: INIT_EXAMPLES,
                ..configurations(
                    "init",
                    "[APPLICATION]",
                    "write a bolide.ini for an application or the project in this directory, or for the server that a file \
                    starts",
                )
            },
            Subcommand::Spool => CommandRow {
                flags: SPOOL_FLAGS,
                examples: SPOOL_EXAMPLES,
                ..of(
                    "spool",
                    "ACTION DIRECTORY [JOB…]",
                    "list, show, retry or drop the jobs of a spooler's directory, or of a configuration",
                    Group::Instances,
                    Takes::Words(&SPOOL_ACTIONS),
                )
            },
            Subcommand::Plugin => CommandRow {
                flags: PLUGIN_FLAGS,
                examples: PLUGIN_EXAMPLES,
                ..of(
                    "plugin",
                    "ACTION [NAME|FILE.c]",
                    "build the adapter of a language (build), or print the directory of the header for it (header)",
                    Group::Configurations,
                    Takes::Words(&PLUGIN_ACTIONS),
                )
            },
            Subcommand::Explain => CommandRow {
                examples: EXPLAIN_EXAMPLES,
                ..texts("explain", "OPTION…", "describe an option, here and in uWSGI", Takes::Options)
            },
            Subcommand::Options => texts("options", "[WORD]", "list the options, or those that contain WORD", Takes::Options),
            Subcommand::Schema => CommandRow {
                examples: SCHEMA_EXAMPLES,
                ..texts("schema", "", "print the JSON schema of TOML, YAML and JSON configurations", Takes::Nothing)
            },
            Subcommand::Help => CommandRow {
                examples: HELP_EXAMPLES,
                ..texts("help", "[COMMAND | OPTION]", "describe a command or an option", Takes::Topics)
            },
            Subcommand::Version => texts("version", "", "print the versions of this program and its Python", Takes::Nothing),
            Subcommand::Manual => {
                texts("manual", "[man|markdown]", "print the man page, or the reference of all options", Takes::Words(&MANUALS))
            }
            Subcommand::Completions => CommandRow {
                examples: COMPLETIONS_EXAMPLES,
                ..texts("completions", "bash|zsh|fish", "print completions for a shell", Takes::Words(&SHELLS))
            },
            Subcommand::Grafana => CommandRow {
                examples: GRAFANA_EXAMPLES,
                ..texts("grafana", "", "print the Grafana dashboard for the metrics of an instance", Takes::Nothing)
            },
            Subcommand::Instance(command) => {
                let arguments = if command.usage().contains("+N") { "N | +N | -N [INSTANCE]" } else { "[INSTANCE]" };
                CommandRow {
                    flags: INSTANCE_FLAGS,
                    ..of(command.name(), arguments, command.help(), Group::Instances, Takes::Files)
                }
            }
            Subcommand::Observing(command) => {
                let ObservingRow { name, arguments, help, flags, examples, .. } = command.row();
                CommandRow { name, arguments, help, group: Group::Instances, takes: Takes::Files, flags, examples }
            }
        }
    }
}

/// Words of other programs, and the command here.
const OTHER_NAMES: [(&str, &str); 11] = [
    ("restart", "reload"),
    ("ps", "status"),
    ("list", "status"),
    ("info", "status"),
    ("log", "top"),
    ("logs", "top"),
    ("kill", "stop"),
    ("quit", "stop"),
    ("shutdown", "stop"),
    ("validate", "check"),
    ("lint", "check"),
];

/// The command that was probably meant.
pub fn command_meant(text: &str) -> Option<&'static str> {
    if let Some((_, command)) = OTHER_NAMES.iter().find(|(word, _)| *word == text) {
        return Some(command);
    }
    let commands: Vec<&'static str> = Subcommand::ALL.iter().map(|command| command.name()).collect();
    suggest::nearest_of(text, &commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_flag_that_a_running_instances_command_takes_is_in_the_table() {
        for command in InstanceCommand::ALL {
            let usage = command.usage();
            let named = usage.split([' ', '[', ']', '|']).filter(|part| part.starts_with("--"));
            let flags = Subcommand::Instance(*command).flags();
            assert!(named.clone().all(|name| flags.iter().any(|flag| flag.name == name)), "{usage}");
            assert_eq!(named.count(), flags.len(), "{usage}");
        }
    }
}
