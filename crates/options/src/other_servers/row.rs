//! A row of the table of other servers' flags: all about one flag of another server's command line. Plain data; it knows nothing of our options
//! but their names.

use super::server::Server;
use super::translation::Translation;
use crate::catalogue::row::Argument;

/// What a value becomes; the refusal is the advice alone.
pub type Take = fn(&mut Translation, &str) -> Result<(), String>;

/// A value that shows that the other server's option of this name is meant, not ours: the message and the advice.
pub type Doubt = fn(&str) -> Option<(String, String)>;

/// A word of another server's, and the options of ours that say it.
pub type ForeignWord = (&'static str, &'static [(&'static str, &'static str)]);

/// The meaning of a flag here.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// Our option of the same name.
    Same,
    /// The same, but for values that mean something else there.
    Mostly(Doubt),
    /// The same, but for these words of the other server's, and for values that mean something else there.
    Worded(&'static [ForeignWord], Doubt),
    /// Our option of this name, with the same value.
    Option(&'static str),
    /// These options with these values; the flag has none of its own.
    Fixed(&'static [(&'static str, &'static str)]),
    /// A function makes options of the value, or keeps it until all flags are known; and what it makes of it, for the guide.
    Made(Take, &'static str),
    /// Accepted, and there is nothing to do, for this reason.
    Nothing(&'static str),
    /// An error that says what to write.
    Refused(&'static str),
    /// The name is that of an option of ours which means something else, as in uWSGI. What to write for what the other server means.
    Taken(Doubt, &'static str),
}

/// One flag. Where servers mean different things by a name it has a row for each meaning, and the first is what it means on our own
/// command line.
#[derive(Clone, Copy)]
pub struct Flag {
    /// The long name, without its dashes.
    pub name: &'static str,
    pub servers: &'static [Server],
    /// Its letter, and the servers that have it.
    pub letter: Option<(char, &'static [Server])>,
    /// Its name in gunicorn.conf.py; empty where it has none.
    pub setting: &'static str,
    pub argument: Argument,
    pub meaning: Meaning,
    /// What its users should know besides; for the guide.
    pub says: &'static str,
}

impl Flag {
    /// A flag with a value.
    pub const fn new(name: &'static str, servers: &'static [Server], meaning: Meaning) -> Flag {
        Flag { name, servers, letter: None, setting: "", argument: Argument::Required, meaning, says: "" }
    }

    /// A flag without a value.
    pub const fn switch(name: &'static str, servers: &'static [Server], meaning: Meaning) -> Flag {
        Flag { argument: Argument::None, ..Flag::new(name, servers, meaning) }
    }

    /// The letter that all its servers have for it.
    pub const fn letter(self, letter: char) -> Flag {
        Flag { letter: Some((letter, self.servers)), ..self }
    }

    /// The letter that only these of its servers have for it.
    pub const fn letter_of(self, letter: char, servers: &'static [Server]) -> Flag {
        Flag { letter: Some((letter, servers)), ..self }
    }

    pub const fn setting(self, setting: &'static str) -> Flag {
        Flag { setting, ..self }
    }

    pub const fn optional(self) -> Flag {
        Flag { argument: Argument::Optional, ..self }
    }

    pub const fn says(self, says: &'static str) -> Flag {
        Flag { says, ..self }
    }

    pub fn is_of(&self, server: Option<Server>) -> bool {
        server.is_none_or(|server| self.servers.contains(&server))
    }

    /// It may be typed as it is.
    pub fn is_accepted(&self) -> bool {
        !matches!(self.meaning, Meaning::Refused(_) | Meaning::Taken(..))
    }
}
