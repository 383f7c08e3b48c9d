//! Resolves the plugins of languages: which library an instance needs, its applications and its options. It does not open
//! files. Runs in the process that reads the configuration.

use std::path::{Path, PathBuf};

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::{Plugin, PluginApplication};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, absent, list, rows, set, supported, within};
use crate::topics::application::ApplicationDraft;
use crate::values;

/// The names of a library's file around that of its plugin.
const FILE_BEGINNING: &str = "bolide_";
const FILE_END: &str = ".so";

/// The longest name of a plugin in bytes.
const MAX_NAME_BYTES: usize = 40;

/// A language of uWSGI whose adapter for Bolide is a library.
struct LanguageOfUwsgi {
    /// The plugin, and the option of its application.
    name: &'static str,
    /// uWSGI's number.
    modifier: u8,
    /// What the names of its options begin with. The adapter gets the rest of the name.
    prefixes: &'static [&'static str],
}

impl LanguageOfUwsgi {
    /// Whether a plugin is that of this language: Debian's names have the version of the language, as `lua51` and `rack_ruby31`.
    fn is_named_by(&self, plugin: &str) -> bool {
        plugin.strip_prefix(self.name).is_some_and(|rest| {
            let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
            rest.strip_prefix("ruby").unwrap_or(rest).bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    }
}

const LANGUAGES: [LanguageOfUwsgi; 3] = [
    LanguageOfUwsgi { name: "lua", modifier: 6, prefixes: &["lua-"] },
    LanguageOfUwsgi { name: "psgi", modifier: 5, prefixes: &["psgi-", "perl-"] },
    LanguageOfUwsgi { name: "rack", modifier: 7, prefixes: &["rack-", "shared-rb-", "rb-"] },
];

pub const ENTRIES: &[OptionEntry] = rows![
    /// Plugins to load. One that is built in needs nothing, and a warning lists plugins of uWSGI that do not exist here. Another
    /// name is that of a language, whose adapter is the library `bolide_NAME.so`. `NAME = APPLICATION` is its application, and
    /// an option that begins with `NAME-` is for the adapter. A path of such a library is a plugin too. An instance has
    /// applications of one language.
    /// Example: plugins = python3,http
    list("plugins", set!(|draft, _, pair| check(draft, pair))).reach(Reach::Application),
    /// A directory with libraries of plugins. It is searched before that of the package and `/usr/lib/bolide`.
    /// Example: lua = app.lua
    ///          plugin-dir = /srv/plugins
    list("plugin-dir", set!(|draft, _, pair| add_directory(draft, pair)?)).reach(Reach::Application),
    /// The Lua application: a file that returns a function of WSAPI. Its adapter is the plugin `lua`, which
    /// `bolide plugin build lua` makes.
    /// uWSGI: The number of the plugin in a uwsgi packet may be 0 or 6.
    /// Example: lua = app.lua
    supported("lua", Setting::By(add_application)).takes(Value::Path, "").reach(Reach::Master),
    /// A Lua file that is executed before the application is loaded.
    /// Example: lua = app.lua
    ///          lua-load = settings.lua
    list("lua-load", Setting::By(add_option)).reach(Reach::Application),
    /// Collect all of Lua's garbage after this number of requests, in addition to Lua's own collections.
    /// uWSGI: uWSGI collects after every request without this option.
    /// Example: lua = app.lua
    ///          lua-gc-freq = 1000
    supported("lua-gc-freq", Setting::By(add_number)).takes(within(0, 1_000_000_000, "requests"), "off")
        .reach(Reach::Application),
    /// Start a Lua shell instead of serving.
    /// Instead: run `lua`
    absent("lua-shell", Value::Switch),
];

/// The plugins and what the configuration says to them.
#[derive(Default)]
pub struct PluginDraft {
    /// The plugins that are libraries.
    named: Vec<NamedPlugin>,
    directories: Vec<PathBuf>,
    applications: Vec<Line>,
    options: Vec<Line>,
}

/// A plugin that the configuration asks for.
struct NamedPlugin {
    /// As it is written.
    text: String,
    name: String,
    library: Option<PathBuf>,
    location: Location,
}

/// A line for a plugin.
struct Line {
    plugin: String,
    name: String,
    value: String,
    location: Location,
}

/// The options whose values are plugins.
const NAMES: [&str; 4] = ["plugins", "plugin", "need-plugin", "need-plugins"];

/// Notes the libraries that are asked for anywhere, because the options for them may come before. `is_of_uwsgi` tells uWSGI's
/// plugins.
pub fn note_named(draft: &mut Draft, effects: &[Pair], is_of_uwsgi: impl Fn(&str) -> bool) {
    for pair in effects.iter().filter(|pair| NAMES.contains(&pair.key.as_str())) {
        for text in names_in(pair) {
            if let Some((name, library)) = library_of(text, &is_of_uwsgi) {
                let (text, library) = (text.to_owned(), library.map(|library| draft.host.directory.join(library)));
                let location = pair.location.clone();
                draft.of::<PluginDraft>().named.push(NamedPlugin { text, name, library, location });
            }
        }
    }
}

fn names_in(pair: &Pair) -> impl Iterator<Item = &str> {
    pair.value.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The name of a language's plugin, and its library if the text is the path of one. `None`: it is a plugin of uWSGI.
fn library_of(text: &str, is_of_uwsgi: impl Fn(&str) -> bool) -> Option<(String, Option<&Path>)> {
    if text.contains('/') {
        let name = text.rsplit('/').next()?.strip_prefix(FILE_BEGINNING)?.strip_suffix(FILE_END)?;
        return is_name(name).then(|| (name.to_owned(), Some(Path::new(text))));
    }
    if let Some(language) = LANGUAGES.iter().find(|language| language.is_named_by(text)) {
        return Some((language.name.to_owned(), None));
    }
    let is_library = is_name(text) && !bolide_configuration::conditionals::is_built_in(text) && !is_of_uwsgi(text);
    is_library.then(|| (text.to_owned(), None))
}

/// uWSGI's number of a language; 0: it has none.
fn modifier_of(name: &str) -> u8 {
    LANGUAGES.iter().find(|language| language.name == name).map_or(0, |language| language.modifier)
}

fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    text.len() <= MAX_NAME_BYTES && text.bytes().all(is_fine) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A plugin of uWSGI that is not built in gets a warning.
fn check(draft: &mut Draft, pair: &Pair) {
    for name in names_in(pair) {
        let is_library = draft.of::<PluginDraft>().named.iter().any(|named| named.text == name);
        if !is_library && !bolide_configuration::conditionals::is_built_in(name) {
            draft.diagnostics.push(Diagnostic::warning(
                Some(&pair.location),
                format!("the plugin `{name}` is not built in: its features are missing"),
            ));
        }
    }
}

fn add_directory(draft: &mut Draft, pair: &Pair) -> Result<(), Diagnostic> {
    let directory = draft.host.directory.join(values::text(pair)?);
    draft.of::<PluginDraft>().directories.push(directory);
    Ok(())
}

pub fn add_application(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.of::<PluginDraft>().add_application(row.name(), pair)
}

/// An option of a language, whose adapter gets it.
pub fn add_option(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let value = values::text(pair)?;
    add_line(draft, row, pair, value);
    Ok(())
}

pub fn add_number(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    draft.bounded_u32(row, pair)?;
    add_option(draft, row, pair)
}

/// An option without a value. The adapter gets it only if it is on.
pub fn add_switch(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    if draft.switch(pair) {
        add_line(draft, row, pair, "true".to_owned());
    }
    Ok(())
}

fn add_line(draft: &mut Draft, row: &OptionRow, pair: &Pair, value: String) {
    let own = |language: &LanguageOfUwsgi| {
        let rest = language.prefixes.iter().find_map(|prefix| row.name().strip_prefix(prefix))?;
        Some((language.name.to_owned(), rest.to_owned()))
    };
    if let Some((plugin, name)) = LANGUAGES.iter().find_map(own) {
        draft.of::<PluginDraft>().options.push(Line { plugin, name, value, location: pair.location.clone() });
    }
}

/// Takes an option that Bolide does not know and a plugin may. Returns whether it is for one.
pub fn take_unknown(draft: &mut Draft, pair: &Pair) -> Result<bool, Diagnostic> {
    let plugins = draft.of::<PluginDraft>();
    let of = |plugin: &&NamedPlugin| {
        pair.key.strip_prefix(plugin.name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    // The longest name has the option: `lua-mine` and `lua` may be plugins.
    let Some(name) = plugins.named.iter().filter(of).map(|plugin| plugin.name.clone()).max_by_key(String::len) else {
        return Ok(false);
    };
    if pair.key == name {
        plugins.add_application(&name, pair)?;
    } else {
        let option = pair.key[name.len() + 1..].to_owned();
        let value = pair.value.clone().unwrap_or_default();
        plugins.options.push(Line { plugin: name, name: option, value, location: pair.location.clone() });
    }
    Ok(true)
}

impl PluginDraft {
    fn add_application(&mut self, plugin: &str, pair: &Pair) -> Result<(), Diagnostic> {
        let value = values::text(pair)?;
        if value.is_empty() {
            return Err(Diagnostic::error(Some(&pair.location), format!("`{}` has no value: write its application", pair.key)));
        }
        let line = Line { plugin: plugin.to_owned(), name: String::new(), value, location: pair.location.clone() };
        self.applications.push(line);
        Ok(())
    }

    /// Whether the applications of `mount` are those of a plugin.
    fn serves(&self) -> bool {
        !self.applications.is_empty()
    }

    /// Returns the one plugin, with its applications and those of `mounts`.
    pub fn complete(self, mounts: Vec<(String, Location)>, context: &mut Context) -> Option<Plugin> {
        let Some(first) = self.applications.first() else {
            for plugin in &self.named {
                let name = &plugin.name;
                let message = format!("the plugin `{name}` has no application: write `{name} = APPLICATION`");
                context.diagnostics.push(Diagnostic::warning(Some(&plugin.location), message));
            }
            return None;
        };
        let (name, origin) = (first.plugin.clone(), &first.location);
        let others = self.applications.iter().chain(&self.options).find(|line| line.plugin != name);
        if let Some(other) = others {
            let message = format!(
                "an instance has applications of one language, and this one has `{name}` at {origin} and `{}` here",
                other.plugin
            );
            context.diagnostics.push(Diagnostic::error(Some(&other.location), message).advise(ANOTHER_INSTANCE));
        }
        let mut applications = Vec::new();
        for Line { value, location, .. } in self.applications.iter() {
            applications.push(PluginApplication { mount: String::new(), source: value.clone(), origin: location.to_string() });
        }
        for (text, location) in mounts {
            let Some((mount, source)) = text.split_once('=') else {
                let message = format!("`mount = {text}` has no `=`: write `mount = /path=APPLICATION`");
                context.diagnostics.push(Diagnostic::error(Some(&location), message));
                continue;
            };
            let (mount, source) = (mount.trim().to_owned(), source.trim().to_owned());
            applications.push(PluginApplication { mount, source, origin: location.to_string() });
        }
        let asked = self.named.iter().find(|plugin| plugin.name == name);
        Some(Plugin {
            library: asked.and_then(|plugin| plugin.library.clone()),
            origin: asked.map_or_else(|| origin.to_string(), |plugin| plugin.location.to_string()),
            modifier: modifier_of(&name),
            directories: self.directories,
            applications,
            options: self.options.into_iter().filter(|line| line.plugin == name).map(|line| (line.name, line.value)).collect(),
            name,
        })
    }
}

/// What to do about two languages.
pub const ANOTHER_INSTANCE: &str = "start an instance for each language: an emperor or two services run both";

/// Takes the mounts for the plugin, if one has an application: otherwise they are Python's.
pub fn take_mounts(draft: &mut Draft) -> Vec<(String, Location)> {
    match draft.of::<PluginDraft>().serves() {
        true => std::mem::take(&mut draft.of::<ApplicationDraft>().mounts),
        false => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_of_debian_with_a_version_is_that_of_the_language() {
        let cases = [
            ("lua", Some("lua")),
            ("lua51", Some("lua")),
            ("psgi", Some("psgi")),
            ("rack", Some("rack")),
            ("rack_ruby31", Some("rack")),
            ("rack-ruby3.1", Some("rack")),
            ("luajit", None),
            ("rackup", None),
            ("python3", None),
        ];
        for (plugin, name) in cases {
            let found = library_of(plugin, |_| true).map(|(name, _)| name);
            assert_eq!(found.as_deref(), name, "{plugin}");
        }
    }
}
