//! Reads a configuration: pairs are added one by one from the environment, the command line and files. Some act immediately
//! (`include`, `for`, `set`); the rest take effect in order after everything has been read and filled in. The order is uWSGI's,
//! since its users rely on it.
//!
//! It opens files, and must not know the effect of an ordinary option: that is the job of `resolve`.

mod files;
mod gunicorn_file;
pub mod other_servers;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use bolide_configuration::bounded::read_bounded;
use bolide_configuration::conditionals::OpenBlock;
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::expand::{self, Endless, Magic};
use bolide_configuration::host_info::HostInfo;
use bolide_configuration::instance_commands::{InstanceCommand, InstanceRequest};
use bolide_configuration::pair::Pair;
use bolide_configuration::words::Word;
use other_servers::OtherServers;

use crate::catalog::catalog;
use crate::row::{Argument, OptionRow, Setting, Status};

pub use crate::configuration::Configuration;
pub use files::{GUNICORN_SETTINGS, format_of};
pub use gunicorn_file::{is_gunicorn_configuration, is_program};

/// A configuration has a few dozen pairs; more than this indicates a fault.
const MAX_PAIRS: usize = 100_000;

/// Why reading ends early.
#[derive(Debug)]
pub enum EarlyExit {
    /// At least one error.
    Failed(Vec<Diagnostic>),
    /// The configuration asks to print a text and exit: `exit`.
    Print { text: String, status: i32 },
    /// Print the summary of the program.
    Help,
    /// Print the version.
    Version,
    /// Send a signal to a running instance, and start nothing.
    SignalInstance { command: InstanceCommand, pidfile: PathBuf },
    /// Send a command to a running instance, print its response, and start nothing.
    AskInstance(InstanceRequest),
}

impl From<Diagnostic> for EarlyExit {
    fn from(diagnostic: Diagnostic) -> EarlyExit {
        EarlyExit::Failed(vec![diagnostic])
    }
}

/// An option that `declare-option` defined.
struct Declared {
    name: String,
    template: String,
    takes_value: bool,
}

pub struct Reader<'a> {
    host: &'a HostInfo,
    others: &'a dyn OtherServers,
    magic: Magic,
    made: Configuration,
    /// Pairs that acted immediately.
    early: Vec<Pair>,
    /// The settings of a `gunicorn.conf.py`: as in gunicorn, all other sources take precedence.
    gunicorn_pairs: Vec<Pair>,
    /// There is an application on the command line.
    has_application: bool,
    declared: Vec<Declared>,
    open: Option<OpenBlock>,
    /// True while a condition adds the pairs that it keeps.
    in_condition: bool,
    blacklist: Option<Vec<String>>,
    whitelist: Option<Vec<String>>,
    inject_before: Vec<PathBuf>,
    inject_after: Vec<PathBuf>,
    depth: usize,
    /// The files that are being read, each included by the one before.
    chain: Vec<String>,
    /// The ini file that a bare `:section` refers to.
    last_ini: Option<String>,
}

impl<'a> Reader<'a> {
    pub fn new(host: &'a HostInfo, others: &'a dyn OtherServers) -> Reader<'a> {
        Reader {
            host,
            others,
            magic: Magic::new(host),
            made: Configuration::default(),
            early: Vec::new(),
            gunicorn_pairs: Vec::new(),
            has_application: false,
            declared: Vec::new(),
            open: None,
            in_condition: false,
            blacklist: None,
            whitelist: None,
            inject_before: Vec::new(),
            inject_after: Vec::new(),
            depth: 0,
            chain: Vec::new(),
            last_ini: None,
        }
    }

    /// Returns the argument of an option that the configuration itself declared.
    pub fn declared(&self, name: &str) -> Option<Argument> {
        let found = self.declared.iter().find(|option| option.name == name)?;
        Some(if found.takes_value { Argument::Required } else { Argument::None })
    }

    /// Adds a pair. Options that act immediately act now.
    ///
    /// # Errors
    /// The option can't act, or it ends the reading.
    pub fn add(&mut self, key: &str, value: Option<&str>, location: &Location) -> Result<(), EarlyExit> {
        self.add_as(key, value, location, false)
    }

    fn add_as(&mut self, key: &str, value: Option<&str>, location: &Location, placeholder: bool) -> Result<(), EarlyExit> {
        self.check_lists(key, location)?;
        if !self.in_condition {
            if matches!(key, "end" | "endfor" | "endif" | "end-if" | "end-for") {
                self.open = None;
            }
            if let Some(open) = self.open.clone() {
                return self.apply_condition(&open, key, value, location);
            }
        }
        if self.made.pairs.len() >= MAX_PAIRS {
            return Err(Diagnostic::error(Some(location), format!("the configuration has more than {MAX_PAIRS} options")).into());
        }
        let index = self.made.pairs.len();
        let pair = Pair {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            location: location.clone(),
            acted: placeholder,
            placeholder,
        };
        self.made.pairs.push(pair.clone());
        if placeholder {
            return match catalog().get(key) {
                Some(row) => Err(Diagnostic::error(
                    Some(location),
                    format!("`{key}` can't be a placeholder: it is the option `{}`", row.name()),
                )
                .advise("choose another name, or use `set` to set the option")
                .into()),
                None => Ok(()),
            };
        }
        if let Some(row) = catalog().get(key) {
            if row.at_once {
                self.made.pairs[index].acted = true;
                self.act(row, pair)?;
            }
        } else if self.declared(key).is_some() {
            self.made.pairs[index].acted = true;
            self.act_declared(&pair)?;
        }
        Ok(())
    }

    fn check_lists(&self, key: &str, location: &Location) -> Result<(), EarlyExit> {
        let forbidden = self.blacklist.as_ref().is_some_and(|list| list.iter().any(|name| name == key));
        let missing = self.whitelist.as_ref().is_some_and(|list| !list.iter().any(|name| name == key));
        let list = match (forbidden, missing) {
            (true, _) => "in the blacklist",
            (_, true) => "not in the whitelist",
            _ => return Ok(()),
        };
        Err(Diagnostic::error(Some(location), format!("the option `{key}` is not allowed here: it is {list}")).into())
    }

    /// Evaluates the open condition, and adds the pairs that result.
    fn apply_condition(
        &mut self,
        open: &OpenBlock,
        key: &str,
        value: Option<&str>,
        location: &Location,
    ) -> Result<(), EarlyExit> {
        let pairs = &self.made.pairs;
        let option = |name: &str| value_of(pairs, name);
        if let bolide_configuration::words::Condition::Option(_) = open.condition {
            self.made.used.insert(open.argument.split('=').next().unwrap_or_default().to_owned());
        }
        if open.condition == bolide_configuration::words::Condition::ForReadline {
            self.host.trust.note(&self.host.directory.join(&open.argument), location)?;
        }
        let values = open
            .repeat(value.unwrap_or_default(), self.host, option)
            .map_err(|message| Diagnostic::error(Some(location), message))?;
        self.in_condition = true;
        let added = values.iter().try_for_each(|text| self.add(key, value.map(|_| text.as_str()), location));
        self.in_condition = false;
        added
    }

    /// Applies an option that takes effect as soon as it is read.
    fn act(&mut self, row: &OptionRow, pair: Pair) -> Result<(), EarlyExit> {
        match row.status {
            Status::Supported(Setting::Language(word)) => self.act_word(word, &pair),
            _ => {
                self.early.push(pair);
                Ok(())
            }
        }
    }

    fn act_word(&mut self, word: Word, pair: &Pair) -> Result<(), EarlyExit> {
        let location = &pair.location;
        let text = pair.value.as_deref().unwrap_or_default();
        match word {
            Word::Load(format) => self.load(text, Some(format), location, true),
            Word::Include | Word::Inherit => self.load(text, None, location, false),
            Word::Strict => {
                self.made.strict = bolide_configuration::values::switch(pair.value.as_deref()).on.then(|| location.clone());
                Ok(())
            }
            Word::Set | Word::SetPlaceholder => match text.split_once('=') {
                Some((key, value)) => self.add_as(key, Some(value), location, word == Word::SetPlaceholder),
                None => Err(Diagnostic::error(Some(location), format!("`{} = {text}` sets nothing", pair.key))
                    .advise("write KEY=VALUE")
                    .into()),
            },
            Word::DeclareOption => self.declare(text, location),
            Word::Logic(condition) => match &self.open {
                Some(_) => Err(Diagnostic::error(Some(location), format!("`{}` inside another condition or loop", pair.key))
                    .advise("conditions and loops can't be nested; end the first with `endif` or `endfor`")
                    .into()),
                None => {
                    self.open = Some(OpenBlock { condition, argument: text.to_owned() });
                    Ok(())
                }
            },
            Word::Blacklist => self.set_list(text, true),
            Word::Whitelist => self.set_list(text, false),
            Word::EndBlacklist => {
                self.blacklist = None;
                Ok(())
            }
            Word::EndWhitelist => {
                self.whitelist = None;
                Ok(())
            }
            Word::InjectBefore => {
                self.inject_before.push(self.host.directory.join(text));
                Ok(())
            }
            Word::InjectAfter => {
                self.inject_after.push(self.host.directory.join(text));
                Ok(())
            }
            Word::Print | Word::PrintAtOnce => {
                self.made.printed.push(text.to_owned());
                Ok(())
            }
            Word::Exit => Err(self.exit(pair)),
            Word::ShowConfig => {
                self.made.show_config = Some(location.clone());
                Ok(())
            }
            Word::Signal(command) => Err(EarlyExit::SignalInstance { command, pidfile: self.host.directory.join(text) }),
            Word::Ask(command) => {
                let pidfile = self.host.directory.join(text);
                Err(EarlyExit::AskInstance(command.to_instance(Some(pidfile.to_string_lossy().into_owned()))))
            }
            Word::Help => Err(EarlyExit::Help),
            Word::Version => Err(EarlyExit::Version),
            Word::End => Ok(()),
        }
    }

    fn set_list(&mut self, text: &str, black: bool) -> Result<(), EarlyExit> {
        let names = Some(text.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect());
        match black {
            true => self.blacklist = names,
            false => self.whitelist = names,
        }
        Ok(())
    }

    fn exit(&self, pair: &Pair) -> EarlyExit {
        let status = pair.value.as_deref().map_or(1, |text| bolide_configuration::values::number(text).value);
        let mut text = self.made.printed.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        EarlyExit::Print { text, status: i32::try_from(status & 0xff).unwrap_or(1) }
    }

    fn declare(&mut self, text: &str, location: &Location) -> Result<(), EarlyExit> {
        let Some((name, template)) = text.split_once('=') else {
            return Err(Diagnostic::error(Some(location), format!("`{text}` declares no option"))
                .advise("write NAME=OPTION=$1;OPTION=$2")
                .into());
        };
        let takes_value = ["$1", "$2", "$3"].iter().any(|argument| template.contains(argument));
        self.declared.push(Declared { name: name.to_owned(), template: template.to_owned(), takes_value });
        self.made.declared.insert(name.to_owned());
        Ok(())
    }

    /// Expands a declared option to the options that it stands for. They take effect immediately and are not separate pairs.
    fn act_declared(&mut self, pair: &Pair) -> Result<(), EarlyExit> {
        let Some(option) = self.declared.iter().find(|option| option.name == pair.key) else { return Ok(()) };
        let arguments: Vec<&str> = pair.value.as_deref().unwrap_or_default().split(' ').collect();
        let fill = |text: &str| {
            arguments
                .iter()
                .zip(1..)
                .fold(text.to_owned(), |text, (argument, number)| text.replace(&format!("${number}"), argument))
        };
        let parts: Vec<(String, String)> = option
            .template
            .split(';')
            .filter(|part| !part.is_empty())
            .map_while(|part| part.split_once('='))
            .map(|(key, value)| (fill(key), fill(value)))
            .collect();
        for (key, value) in parts {
            let made = Pair { key, value: Some(value), ..pair.clone() };
            match catalog().get(&made.key) {
                Some(row) => self.act(row, made)?,
                None => self.early.push(made),
            }
        }
        Ok(())
    }

    /// Fills in placeholders, applies the options that wait for that, and returns the configuration.
    ///
    /// # Errors
    /// Endless placeholders, files that can't be read, or an option that ends the reading.
    pub fn finish(mut self) -> Result<Configuration, EarlyExit> {
        let host = self.host;
        let mut unset = Vec::new();
        let mut used_variables = HashSet::new();
        self.pass(b'$', |name, location| {
            used_variables.insert(name.to_owned());
            let value = host.variable(name);
            if value.is_none() {
                unset.push(Diagnostic::note(
                    Some(location),
                    format!("`$({name})` stays as it is: there is no environment variable {name}"),
                ));
            }
            Ok(value.map(str::to_owned))
        })?;
        unset.dedup();
        self.made.diagnostics.extend(unset);
        self.made.used_variables = used_variables;
        self.pass(b'@', |name, location| {
            if let Some((scheme, rest)) = name.split_once("://") {
                let message = format!("`@({name})`: only files are read here, and `{scheme}` is not supported");
                let advice = format!("set a variable before startup, and write `$(NAME)`; `{rest}` is not executed or requested");
                return Err(Diagnostic::error(Some(location), message).advise(advice));
            }
            let path = host.directory.join(name);
            host.trust.note(&path, location)?;
            let mut bytes = read_bounded(&path, location)?;
            if matches!(bytes.last(), Some(b'\n' | b'\r')) {
                bytes.pop();
            }
            let text = String::from_utf8(bytes)
                .map_err(|_| Diagnostic::error(Some(location), format!("@({name}): the file is not UTF-8 text")))?;
            Ok(Some(text))
        })?;
        let mut used = HashSet::new();
        // Placeholders see the first pair of a name, with the replacements of this pass so far.
        let mut values: HashMap<String, Option<String>> = HashMap::new();
        for pair in &self.made.pairs {
            values.entry(pair.key.clone()).or_insert_with(|| pair.value.clone());
        }
        let mut met = HashSet::new();
        for index in 0..self.made.pairs.len() {
            let pair = &self.made.pairs[index];
            let is_first = met.insert(pair.key.clone());
            let (false, Some(value)) = (pair.acted, &pair.value) else { continue };
            let filled = fill_pair(value, b'%', &pair.location, |expression, _| {
                let option = |name: &str| values.get(name).cloned().flatten();
                used.extend(expression.split(' ').map(str::to_owned));
                Ok(expand::placeholder(expression, option))
            })?;
            if is_first {
                values.insert(pair.key.clone(), Some(filled.clone()));
            }
            self.made.pairs[index].value = Some(filled);
        }
        self.made.used.extend(used);
        self.configure()?;
        self.made.magic = self.magic.shown();
        Ok(self.made)
    }

    /// One of the first two passes.
    fn pass(
        &mut self,
        symbol: u8,
        mut lookup: impl FnMut(&str, &Location) -> Result<Option<String>, Diagnostic>,
    ) -> Result<(), EarlyExit> {
        for pair in &mut self.made.pairs {
            if let (false, Some(value)) = (pair.acted, &pair.value) {
                pair.value = Some(fill_pair(value, symbol, &pair.location, &mut lookup)?);
            }
        }
        Ok(())
    }

    /// Applies the options that have not acted yet, in order. Some append more pairs (`inherit`), so the list grows during the
    /// loop.
    fn configure(&mut self) -> Result<(), EarlyExit> {
        let mut late = Vec::new();
        let mut index = 0;
        while index < self.made.pairs.len() {
            let pair = self.made.pairs[index].clone();
            index += 1;
            if pair.acted {
                continue;
            }
            match catalog().get(&pair.key).map(|row| row.status) {
                Some(Status::Supported(Setting::Language(word))) => self.act_word(word, &pair)?,
                _ => late.push(pair),
            }
        }
        let mut effects = std::mem::take(&mut self.early);
        effects.extend(late);
        self.made.effects = self.remaining_gunicorn_pairs(&effects);
        self.made.effects.extend(effects);
        Ok(())
    }
}

/// Fills in one value, and adds the location to an error.
fn fill_pair(
    value: &str,
    symbol: u8,
    location: &Location,
    mut lookup: impl FnMut(&str, &Location) -> Result<Option<String>, Diagnostic>,
) -> Result<String, Diagnostic> {
    enum Fault {
        Endless,
        Diagnostic(Diagnostic),
    }
    impl From<Endless> for Fault {
        fn from(_: Endless) -> Fault {
            Fault::Endless
        }
    }
    expand::fill_in(value, symbol, &mut |name| lookup(name, location).map_err(Fault::Diagnostic)).map_err(|fault| match fault {
        Fault::Diagnostic(diagnostic) => diagnostic,
        Fault::Endless => Diagnostic::error(Some(location), "the placeholders in this value never end")
            .advise("they probably refer to each other"),
    })
}

/// Returns the value of the first pair of a name, which placeholders and conditions use.
fn value_of(pairs: &[Pair], name: &str) -> Option<String> {
    pairs.iter().find(|pair| pair.key == name).and_then(|pair| pair.value.clone())
}
