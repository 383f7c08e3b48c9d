//! Rows of the configuration language: files, placeholders, conditions, loops. Pure data.

use bolide_configuration::words::{Condition, Format, Word};

use crate::row::{OptionEntry, Setting, Value, rows, supported, within};

const fn word(name: &'static str, word: Word, value: Value) -> OptionEntry {
    supported(name, Setting::Language(word)).takes(value, "")
}

const fn condition(name: &'static str, condition: Condition) -> OptionEntry {
    word(name, Word::Logic(condition), Value::Text)
}

pub const ENTRIES: &[OptionEntry] = rows![
    /// Read this ini file. With `file.ini:section`, read this section instead of `[uwsgi]`.
    /// Example: ini = base.ini:common
    word("ini", Word::Load(Format::Ini), Value::Path),
    /// Read this YAML file. With `file.yaml:section`, read this mapping instead of `uwsgi`.
    /// uWSGI: uWSGI reads YAML with libyaml if it was built with it, and otherwise supports neither lists nor quotes. Bolide
    /// follows libyaml.
    /// Example: yaml = base.yaml
    word("yaml", Word::Load(Format::Yaml), Value::Path),
    /// Read this JSON file. With `file.json:name`, read this object instead of `uwsgi`.
    word("json", Word::Load(Format::Json), Value::Path),
    /// Read this XML file. With `file.xml:id`, read only the elements of this id.
    word("xml", Word::Load(Format::Xml), Value::Path),
    /// Read this TOML file. With `file.toml:table`, read this table instead of `[uwsgi]`.
    /// uWSGI: uWSGI does not support TOML.
    word("toml", Word::Load(Format::Toml), Value::Path),
    /// Read this file, in the format that its name indicates.
    word("config", Word::Include, Value::Path),
    /// Read this file at this point, in the format that its name indicates.
    /// Example: include = /etc/shop/common.ini
    word("include", Word::Include, Value::Path),
    /// Read this file after everything else, so its options come last.
    word("inherit", Word::Inherit, Value::Path),
    /// Treat unknown options as errors. In this case, placeholders must be set with `set-placeholder`.
    word("strict", Word::Strict, Value::Switch),
    /// Set an option or a placeholder: `KEY=VALUE`.
    word("set", Word::Set, Value::Text),
    /// Set a placeholder: `KEY=VALUE`, used as `%(KEY)`.
    /// Example: set-placeholder = base=/srv/shop
    ///          chdir = %(base)
    word("set-placeholder", Word::SetPlaceholder, Value::Text),
    /// Declare an option that sets others: `NAME=OPTION=$1;OPTION=$2`.
    /// Example: declare-option = serve=http=$1;chdir=$2
    ///          serve = :8080 /srv/shop
    word("declare-option", Word::DeclareOption, Value::Text),
    /// Repeat the options up to `endfor` for each word. `%(_)` is the word.
    /// Example: for = 8001 8002
    ///          http = 127.0.0.1:%(_)
    ///          endfor =
    condition("for", Condition::For),
    /// Repeat the options up to `endfor` for each file that matches.
    condition("for-glob", Condition::ForGlob),
    /// Repeat the options up to `endfor` this many times. `%(_)` counts from 1.
    condition("for-times", Condition::ForTimes),
    /// Repeat the options up to `endfor` for each line of a file.
    condition("for-readline", Condition::ForReadline),
    /// Apply the options up to `endif` if an option is set, or has this value: `NAME` or `NAME=VALUE`.
    condition("if-opt", Condition::Option(true)),
    /// The opposite of `if-opt`.
    condition("if-not-opt", Condition::Option(false)),
    /// Apply the options up to `endif` if an environment variable is set, or has this value: `NAME` or `NAME=VALUE`.
    /// Example: if-env = PORT
    ///          http = :%(_)
    ///          endif =
    condition("if-env", Condition::Environment(true)),
    /// The opposite of `if-env`.
    condition("if-not-env", Condition::Environment(false)),
    /// Apply the options up to `endif` at a reload only.
    /// uWSGI: Bolide reads the configuration once, at startup, so it is never a reload.
    condition("if-reload", Condition::Reload(true)),
    /// The opposite of `if-reload`.
    condition("if-not-reload", Condition::Reload(false)),
    /// Apply the options up to `endif` on the machine of this name.
    condition("if-hostname", Condition::HostName(true)),
    /// The opposite of `if-hostname`.
    condition("if-not-hostname", Condition::HostName(false)),
    /// Apply the options up to `endif` if a regular expression matches the machine's name.
    condition("if-hostname-match", Condition::HostNameMatch(true)),
    /// The opposite of `if-hostname-match`.
    condition("if-not-hostname-match", Condition::HostNameMatch(false)),
    /// Apply the options up to `endif` if this file or directory exists.
    condition("if-exists", Condition::Exists(true)),
    /// The opposite of `if-exists`.
    condition("if-not-exists", Condition::Exists(false)),
    /// Apply the options up to `endif` if this is a file.
    condition("if-file", Condition::File(true)),
    /// The opposite of `if-file`.
    condition("if-not-file", Condition::File(false)),
    /// Apply the options up to `endif` if this is a directory.
    condition("if-dir", Condition::Directory(true)),
    /// The opposite of `if-dir`.
    condition("if-not-dir", Condition::Directory(false)),
    /// Apply the options up to `endif` if this plugin of uWSGI is built in.
    /// uWSGI: `python`, `python3`, `http` and similar plugins of uWSGI count as present, because they are built in.
    condition("if-plugin", Condition::Plugin(true)),
    /// The opposite of `if-plugin`.
    condition("if-not-plugin", Condition::Plugin(false)),
    /// End an `if-…`.
    word("endif", Word::End, Value::Switch),
    /// End an `if-…`.
    word("end-if", Word::End, Value::Switch),
    /// End a `for…`.
    word("endfor", Word::End, Value::Switch),
    /// End a `for…`.
    word("end-for", Word::End, Value::Switch),
    /// Treat these options, separated by spaces, as errors up to `end-blacklist`.
    word("blacklist", Word::Blacklist, Value::Text),
    /// End a `blacklist`.
    word("end-blacklist", Word::EndBlacklist, Value::Switch),
    /// Accept only these options, separated by spaces, up to `end-whitelist`.
    word("whitelist", Word::Whitelist, Value::Text),
    /// End a `whitelist`.
    word("end-whitelist", Word::EndWhitelist, Value::Switch),
    /// Insert a file's text before every configuration file read from here on.
    word("inject-before", Word::InjectBefore, Value::Path),
    /// Insert a file's text after every configuration file read from here on.
    word("inject-after", Word::InjectAfter, Value::Path),
    /// Print this after the configuration has been read.
    word("print", Word::Print, Value::Text),
    /// Print this immediately.
    word("iprint", Word::PrintAtOnce, Value::Text),
    /// Exit with this status, or with 1 without a value.
    word("exit", Word::Exit, within(0, 255, "status")),
    /// Print the configuration in uWSGI's form at startup. With `no-server`, exit afterward.
    word("show-config", Word::ShowConfig, Value::Switch),
];
