//! Rows of the configuration language: files, placeholders, conditions, loops. Pure data.

use bolide_configuration::words::{Condition, Format, Word};

use crate::row::{OptionEntry, Setting, Value};

const fn word(name: &'static str, word: Word, value: Value, help: &'static str) -> OptionEntry {
    OptionEntry::supported(name, Setting::Language(word), value, "", help)
}

const fn condition(name: &'static str, condition: Condition, help: &'static str) -> OptionEntry {
    word(name, Word::Logic(condition), Value::Text, help)
}

pub const ENTRIES: &[OptionEntry] = &[
    word(
        "ini",
        Word::Load(Format::Ini),
        Value::Path,
        "Reads this ini file; `file.ini:section` reads another section than `[uwsgi]`.",
    )
    .example("ini = base.ini:common"),
    word("yaml", Word::Load(Format::Yaml), Value::Path, "Reads this YAML file; `file.yaml:section` reads another mapping than `uwsgi`.")
        .uwsgi("uWSGI reads YAML with libyaml if it was built with it, and otherwise supports neither lists nor quotes; Bolide follows libyaml.")
        .example("yaml = base.yaml"),
    word("json", Word::Load(Format::Json), Value::Path, "Reads this JSON file; `file.json:name` reads another object than `uwsgi`."),
    word("xml", Word::Load(Format::Xml), Value::Path, "Reads this XML file; `file.xml:id` reads the elements of one id."),
    word("toml", Word::Load(Format::Toml), Value::Path, "Reads this TOML file; `file.toml:table` reads another table than `[uwsgi]`.")
        .uwsgi("uWSGI does not support TOML."),
    word("config", Word::Include, Value::Path, "Reads this file, in the format that its name indicates."),
    word("include", Word::Include, Value::Path, "Reads this file at this point, in the format that its name indicates.")
        .example("include = /etc/shop/common.ini"),
    word("inherit", Word::Inherit, Value::Path, "Reads this file after everything else; its options come last."),
    word("strict", Word::Strict, Value::Switch, "Unknown options are errors. Placeholders must then be set with `set-placeholder`."),
    word("set", Word::Set, Value::Text, "Sets an option or a placeholder: `KEY=VALUE`."),
    word("set-placeholder", Word::SetPlaceholder, Value::Text, "Sets a placeholder: `KEY=VALUE`, used as `%(KEY)`.")
        .example("set-placeholder = base=/srv/shop\nchdir = %(base)"),
    word("declare-option", Word::DeclareOption, Value::Text, "A new option composed of others: `NAME=OPTION=$1;OPTION=$2`.")
        .example("declare-option = serve=http=$1;chdir=$2\nserve = :8080 /srv/shop"),
    condition("for", Condition::For, "Repeats the options up to `endfor` for each word; `%(_)` is the word.")
        .example("for = 8001 8002\nhttp = 127.0.0.1:%(_)\nendfor ="),
    condition("for-glob", Condition::ForGlob, "Repeats the options up to `endfor` for each file that matches."),
    condition("for-times", Condition::ForTimes, "Repeats the options up to `endfor` this many times; `%(_)` counts from 1."),
    condition("for-readline", Condition::ForReadline, "Repeats the options up to `endfor` for each line of a file."),
    condition(
        "if-opt",
        Condition::Option(true),
        "Applies the options up to `endif` if an option is set, or has this value: `NAME` or `NAME=VALUE`.",
    ),
    condition("if-not-opt", Condition::Option(false), "The opposite of `if-opt`."),
    condition(
        "if-env",
        Condition::Environment(true),
        "Applies the options up to `endif` if an environment variable is set, or has this value: `NAME` or `NAME=VALUE`.",
    )
    .example("if-env = PORT\nhttp = :%(_)\nendif ="),
    condition("if-not-env", Condition::Environment(false), "The opposite of `if-env`."),
    condition("if-reload", Condition::Reload(true), "Applies the options up to `endif` at a reload only.")
        .uwsgi("Bolide reads the configuration once, at the start, so it is never a reload."),
    condition("if-not-reload", Condition::Reload(false), "The opposite of `if-reload`."),
    condition("if-hostname", Condition::HostName(true), "Applies the options up to `endif` on the machine of this name."),
    condition("if-not-hostname", Condition::HostName(false), "The opposite of `if-hostname`."),
    condition("if-hostname-match", Condition::HostNameMatch(true), "Applies the options up to `endif` if a regular expression matches the machine's name."),
    condition("if-not-hostname-match", Condition::HostNameMatch(false), "The opposite of `if-hostname-match`."),
    condition("if-exists", Condition::Exists(true), "Applies the options up to `endif` if this file or folder exists."),
    condition("if-not-exists", Condition::Exists(false), "The opposite of `if-exists`."),
    condition("if-file", Condition::File(true), "Applies the options up to `endif` if this is a file."),
    condition("if-not-file", Condition::File(false), "The opposite of `if-file`."),
    condition("if-dir", Condition::Directory(true), "Applies the options up to `endif` if this is a folder."),
    condition("if-not-dir", Condition::Directory(false), "The opposite of `if-dir`."),
    condition("if-plugin", Condition::Plugin(true), "Applies the options up to `endif` if this plugin of uWSGI is built in.")
        .uwsgi("uWSGI's plugins are built in here: `python`, `python3`, `http` and similar count as present."),
    condition("if-not-plugin", Condition::Plugin(false), "The opposite of `if-plugin`."),
    word("endif", Word::End, Value::Switch, "Ends an `if-…`."),
    word("end-if", Word::End, Value::Switch, "Ends an `if-…`."),
    word("endfor", Word::End, Value::Switch, "Ends a `for…`."),
    word("end-for", Word::End, Value::Switch, "Ends a `for…`."),
    word("blacklist", Word::Blacklist, Value::Text, "These options, separated by spaces, are errors up to `end-blacklist`."),
    word("end-blacklist", Word::EndBlacklist, Value::Switch, "Ends a `blacklist`."),
    word(
        "whitelist",
        Word::Whitelist,
        Value::Text,
        "Only these options, separated by spaces, are accepted up to `end-whitelist`.",
    ),
    word("end-whitelist", Word::EndWhitelist, Value::Switch, "Ends a `whitelist`."),
    word(
        "inject-before",
        Word::InjectBefore,
        Value::Path,
        "Inserts a file's text before every configuration file read from here on.",
    ),
    word("inject-after", Word::InjectAfter, Value::Path, "Inserts a file's text after every configuration file read from here on."),
    word("print", Word::Print, Value::Text, "Prints this after the configuration has been read."),
    word("iprint", Word::PrintAtOnce, Value::Text, "Prints this immediately."),
    word(
        "exit",
        Word::Exit,
        Value::Number { least: 0, most: 255, unit: "status" },
        "Exits with this status; without a value, 1.",
    ),
    word("show-config", Word::ShowConfig, Value::Switch, "Prints the configuration in uWSGI's form at the start, and serves; with `no-server`, it exits instead."),
];
