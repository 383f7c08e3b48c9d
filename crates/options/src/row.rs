//! A row of the catalog: everything about one option, including the field or function that receives its value. It must not know
//! any option by name.

use bolide_comments::Texts;
use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_configuration::words::Word;
use bolide_contract::settings::Protocol;
use bolide_contract::watching::{FileAction, WatchSubject};
use serde::{Deserialize, Serialize};

use crate::draft::Draft;

/// The argument of an option on the command line: a value, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    None,
    /// Only in the form `--option=value`, as in getopt.
    Optional,
    Required,
}

/// The form of a value. Bolide enforces the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// On unless `false`, `off`, `no` or `0`.
    Switch,
    /// A switch, or another form, which the option's setter parses, in words.
    SwitchOr(&'static str),
    /// A whole number; `unit` is what it counts.
    Number {
        least: i64,
        most: i64,
        unit: &'static str,
    },
    /// A number or the word `auto`.
    NumberOrAuto {
        least: i64,
        most: i64,
        unit: &'static str,
    },
    /// A number from 0 with up to three decimals. Only for options that uWSGI reads as whole numbers, or does not have.
    Decimal {
        most: i64,
        unit: &'static str,
    },
    /// One of these words.
    OneOf(&'static [&'static str]),
    Text,
    Path,
    Address,
    /// Each later value is appended to the earlier ones.
    List,
    /// Any other form, which the option's setter parses, in words.
    Form(&'static str),
    /// The form that it has in uWSGI, for an option without an effect here.
    Special,
}

/// A whole number of these bounds.
pub const fn within(least: i64, most: i64, unit: &'static str) -> Value {
    Value::Number { least, most, unit }
}

/// A number of seconds up to a year.
pub const SECONDS: Value = within(0, 365 * 86_400, "seconds");

/// Returns the words of a table from words to values, for [`Value::OneOf`].
pub const fn words<T, const COUNT: usize>(table: &[(&'static str, T); COUNT]) -> [&'static str; COUNT] {
    let mut words = [""; COUNT];
    let mut index = 0;
    while index < COUNT {
        words[index] = table[index].0;
        index += 1;
    }
    words
}

/// The field of a draft that stores an option's value.
type Field<T> = for<'d, 'h> fn(&'d mut Draft<'h>) -> &'d mut T;
/// A text, with the location where it was written.
type LocatedText = (String, Location);

/// A function that stores the value of any other option.
type Setter = for<'d, 'h> fn(&'d mut Draft<'h>, &OptionRow, &Pair) -> Result<(), Diagnostic>;

/// What a supported option does with its value. A supported option without an effect does not compile.
#[derive(Debug, Clone, Copy)]
pub enum Setting {
    Switch(Field<bool>),
    /// A switch that the option turns off.
    Off(Field<bool>),
    /// The location where a switch was turned on.
    LocatedSwitch(Field<Option<Location>>),
    Number(Field<u32>),
    Size(Field<usize>),
    /// A number; 0 leaves it unset.
    Count(Field<Option<u32>>),
    /// A number; 0 means "never" or "no limit".
    Positive(Field<Option<u64>>),
    /// Whole seconds, kept as milliseconds; 0 means "never".
    Seconds(Field<Option<u64>>),
    /// Seconds with decimals, kept as milliseconds; 0 means "never".
    Milliseconds(Field<Option<u64>>),
    /// Mebibytes, kept as bytes; 0 means "no limit".
    Mebibytes(Field<Option<u64>>),
    Text(Field<Option<String>>),
    /// Each later value is appended to the earlier ones.
    Texts(Field<Vec<String>>),
    Located(Field<Option<LocatedText>>),
    LocatedTexts(Field<Vec<LocatedText>>),
    /// Listens on the address.
    Listen(SocketKind),
    /// Performs this action when the file changes.
    Watch(WatchSubject, FileAction),
    By(Setter),
    /// `allow-missing`: it is applied before all other options.
    AllowMissing,
    /// Acts while the configuration is read; `resolve` never sees it.
    Language(Word),
}

/// A table of rows, each with the comment above it as its texts.
macro_rules! rows {
    ($($(#[doc = $line:literal])* $make:ident $given:tt $(.$with:ident $values:tt)*),* $(,)?) => {
        &[$($make $given.texts(bolide_comments::texts!($(#[doc = $line])*))$(.$with $values)*),*]
    };
}
pub(crate) use rows;

/// The field of a topic's part of the draft: `field!(LoggingDraft.settings.micros)`.
macro_rules! field {
    ($part:ident.$($field:tt).+) => {
        |draft| &mut draft.of::<$part>().$($field).+
    };
}
pub(crate) use field;

/// The setter of a row as one expression: `set!(|draft, row, pair| draft.part.field = value_of(pair)?)`.
macro_rules! set {
    (|$draft:ident, $row:pat_param, $pair:pat_param| $set:expr) => {
        $crate::row::Setting::By(|$draft, $row, $pair| {
            $set;
            Ok(())
        })
    };
}
pub(crate) use set;

/// The privileges with which an option acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Processes that have become the application's user act on it, or it is a number that does not give rights.
    Application,
    /// The same, unless a program with rights of its own uses it too (`attach-daemon2` with `uid`).
    Surroundings,
    /// A daemon or a hook: the user that it requests decides.
    Each,
    /// The master acts on it with root's rights.
    Master,
}

/// The verdict on an option. There is no other: no option is ignored silently.
#[derive(Debug, Clone, Copy)]
pub enum Status {
    /// It does what uWSGI's manual says; `resolve` applies the setting.
    Supported(Setting),
    /// There is nothing to do here, for this reason.
    Accepted(&'static str),
    /// Known and not implemented yet: a warning. The milestone that brings it, and the alternative until then, which may be
    /// empty.
    Planned(Milestone, &'static str),
    /// Known and not implemented yet, and an instance without it would be less safe than its configuration requests: an error
    /// with the alternative, unless `allow-missing` names the option.
    Protective(&'static str),
    /// uWSGI's server answers the same without it: a push of numbers, an announcement, an aid of debugging, a listing. A warning
    /// with the alternative.
    Absent(&'static str),
    /// An error with the alternative: it protects, or without it something else would be served.
    Refused(&'static str),
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Supported(_) => "supported",
            Status::Accepted(_) => "accepted",
            Status::Planned(..) => "planned",
            Status::Protective(_) => "missing",
            Status::Absent(_) => "absent",
            Status::Refused(_) => "refused",
        }
    }
}

bolide_contract::with_words! {
    /// A group of features that are implemented together; each planned option belongs to one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Milestone {
        /// Instances that start and supervise others.
        Emperor = "emperor",
        /// Languages other than Python.
        Languages = "languages",
    }
    pub fn word() -> &'static str;
}

bolide_contract::with_words! {
    /// The chapters of the manual.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Theme {
        Sockets = ("Sockets", "sockets"),
        Tls = ("HTTPS (TLS and HTTP/2)", "tls"),
        Clients = ("Clients and reverse proxies", "clients"),
        Application = ("The application", "application"),
        Asynchronous = ("Asynchronous applications (ASGI)", "asgi"),
        Greenlets = ("WSGI applications in greenlets (gevent)", "gevent"),
        Cgi = ("CGI programs", "cgi"),
        Plugins = ("Languages of plugins", "plugins"),
        Processes = ("Processes and threads", "processes"),
        Attendant = ("Daemons, cron and hooks", "daemons-cron-hooks"),
        Emperor = ("Many sites (the emperor)", "emperor"),
        Background = ("Work in the background (mules and the spooler)", "mules-and-spooler"),
        Requests = ("Requests", "requests"),
        Answering = ("Routes, header fields and compression", "routes"),
        Files = ("Static files", "static-files"),
        Logging = ("Logging", "logging"),
        Statistics = ("Statistics", "statistics"),
        Services = ("Services that processes share", "shared-services"),
        Alarms = ("Alarms", "alarms"),
        Identity = ("Users and names", "users-and-names"),
        Configuration = ("The configuration itself", "configuration"),
        Program = ("The program", "program"),
        /// Options of uWSGI that are not implemented yet.
        Other = ("Other options of uWSGI", "other"),
    }
    /// Returns the title, and the name of the reference page without its extension.
    fn named() -> (&'static str, &'static str);
}

impl Theme {
    pub fn title(self) -> &'static str {
        self.named().0
    }

    /// Returns the name of its page below `docs/reference/options`, without the extension.
    pub fn page(self) -> &'static str {
        self.named().1
    }
}

/// An option in a themed table. Names, letters and argument kinds of uWSGI's options come from `known.tsv`.
#[derive(Debug, Clone, Copy)]
pub struct OptionEntry {
    pub name: &'static str,
    pub status: Status,
    pub value: Value,
    pub default: &'static str,
    pub texts: Texts,
    /// More names, which uWSGI does not have.
    pub also: &'static [&'static str],
    /// Set by [`OptionEntry::several`].
    pub is_several: bool,
    /// Set by [`OptionEntry::reach`], which every supported option needs.
    pub reach: Option<Reach>,
}

/// A row without the facts that most rows do without.
const fn plain(name: &'static str, status: Status, value: Value, default: &'static str) -> OptionEntry {
    let texts = Texts { help: "", uwsgi: "", reason: "", example: "" };
    OptionEntry { name, status, value, default, texts, also: &[], is_several: false, reach: None }
}

/// A supported option. It takes a text and has no default, unless [`OptionEntry::takes`] says otherwise.
pub const fn supported(name: &'static str, setting: Setting) -> OptionEntry {
    plain(name, Status::Supported(setting), Value::Text, "")
}

/// A supported switch.
pub const fn on(name: &'static str, setting: Setting) -> OptionEntry {
    supported(name, setting).takes(Value::Switch, "off")
}

/// A supported option whose more values are appended to the earlier ones.
pub const fn list(name: &'static str, setting: Setting) -> OptionEntry {
    supported(name, setting).takes(Value::List, "")
}

pub const fn accepted(name: &'static str, value: Value) -> OptionEntry {
    plain(name, Status::Accepted(""), value, "")
}

pub const fn planned(name: &'static str, value: Value, milestone: Milestone) -> OptionEntry {
    plain(name, Status::Planned(milestone, ""), value, "")
}

pub const fn absent(name: &'static str, value: Value) -> OptionEntry {
    plain(name, Status::Absent(""), value, "")
}

pub const fn protective(name: &'static str, value: Value) -> OptionEntry {
    plain(name, Status::Protective(""), value, "")
}

pub const fn refused(name: &'static str, value: Value) -> OptionEntry {
    plain(name, Status::Refused(""), value, "")
}

impl OptionEntry {
    /// The texts of the comment above the row.
    pub(crate) const fn texts(mut self, texts: Texts) -> OptionEntry {
        self.texts = texts;
        if texts.reason.is_empty() { self } else { self.reason(texts.reason) }
    }

    /// How uWSGI differs, in words that several rows share.
    pub const fn uwsgi(mut self, differs: &'static str) -> OptionEntry {
        self.texts.uwsgi = differs;
        self
    }

    /// The reason of the verdict, in words that several rows share.
    pub const fn reason(mut self, reason: &'static str) -> OptionEntry {
        self.status = match self.status {
            Status::Supported(_) => panic!("a supported option needs no reason"),
            Status::Accepted(_) => Status::Accepted(reason),
            Status::Planned(milestone, _) => Status::Planned(milestone, reason),
            Status::Protective(_) => Status::Protective(reason),
            Status::Absent(_) => Status::Absent(reason),
            Status::Refused(_) => Status::Refused(reason),
        };
        self
    }

    /// The form of its value, and its default in words.
    pub const fn takes(mut self, value: Value, default: &'static str) -> OptionEntry {
        (self.value, self.default) = (value, default);
        self
    }

    pub const fn also(mut self, names: &'static [&'static str]) -> OptionEntry {
        self.also = names;
        self
    }

    /// The option can be given several times, which neither its setting nor the form of its value says.
    pub const fn several(mut self) -> OptionEntry {
        self.is_several = true;
        self
    }

    /// The privileges with which the option acts: a reload of a file that the application's user may write takes it, or not.
    pub const fn reach(mut self, reach: Reach) -> OptionEntry {
        self.reach = Some(reach);
        self
    }

    /// Returns the privileges of an option that is supported.
    pub const fn stated_reach(&self) -> Option<Reach> {
        match self.status {
            Status::Supported(Setting::Language(Word::Signal(_) | Word::Ask(_))) => Some(Reach::Master),
            Status::Supported(Setting::Language(_)) => Some(Reach::Application),
            _ => self.reach,
        }
    }

    /// Whether it says everything that its verdict needs.
    pub const fn is_complete(&self) -> bool {
        !matches!(self.status, Status::Supported(_)) || self.stated_reach().is_some()
    }

    /// Whether each value of the option is in effect, and not only the last one.
    pub fn takes_several(&self) -> bool {
        let adds = match self.status {
            Status::Supported(setting) => {
                matches!(setting, Setting::Texts(_) | Setting::LocatedTexts(_) | Setting::Listen(_) | Setting::Watch(..))
            }
            _ => false,
        };
        self.is_several || adds || matches!(self.value, Value::List | Value::Address)
    }
}

/// One complete option: the texts of the themed table and the facts about uWSGI together.
#[derive(Debug, Clone)]
pub struct OptionRow {
    /// The name that the manual uses, then its aliases.
    pub names: Vec<&'static str>,
    /// Letters on the command line, each with the name that uWSGI gives the option in that form.
    pub letters: Vec<(char, &'static str)>,
    pub argument: Argument,
    /// It takes effect as soon as it is read, before placeholders are filled in.
    pub at_once: bool,
    /// `core`, a plugin of uWSGI, or `bolide` for an option that uWSGI does not have.
    pub home: &'static str,
    /// Number of projects that set it, among 151 public ones.
    pub projects: u32,
    pub theme: Theme,
    pub status: Status,
    pub value: Value,
    pub default: &'static str,
    pub help: &'static str,
    pub uwsgi: &'static str,
    pub example: &'static str,
    /// Each value is in effect, and not only the last one.
    pub is_several: bool,
    /// Of an option without an effect, that of the master.
    pub reach: Reach,
}

impl OptionRow {
    pub fn name(&self) -> &'static str {
        self.names[0]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// `http`: its timeout is `http-timeout`.
    HttpRouter,
    /// The option names it.
    Of(Protocol),
    /// `socket`: `protocol` decides.
    Default,
}
