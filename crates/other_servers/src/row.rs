//! A row of the table of other servers' settings: its flag, its name in `gunicorn.conf.py`, its keyword of `bolide.run`, and its
//! equivalent here. Plain data; of Bolide's options it knows only the names.

use bolide_options::row::Argument;
use bolide_options::server::Server;

use super::translation::{Subject, Translation};

/// Translates a value; the error is the advice alone.
pub type Translate = fn(&mut Translation, &str) -> Result<(), String>;

/// Normalizes a value that is kept until all settings are known; the error is the advice alone.
pub type Normalize = fn(&str) -> Result<String, String>;

/// Returns the message and the advice if a value shows that the other server's option of this name is meant, not Bolide's.
pub type Doubt = fn(&str) -> Option<(String, String)>;

/// A word of another server, with the equivalent options of Bolide.
pub type ServerWord = (&'static str, &'static [(&'static str, &'static str)]);

/// The meaning of a setting here. It is the same for the flag, the setting of the file and the keyword.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// Bolide's option of the same name.
    Same,
    /// The same, but commas separate several values. On Bolide's own command line they are one value, and the function reports
    /// that mistake.
    Listed(Doubt),
    /// The same, except for these words of the other server, and for values that mean something else there.
    Worded(&'static [ServerWord], Doubt),
    /// Bolide's option of this name, with the same value.
    Option(&'static str),
    /// These options with these values; the flag has no value.
    Fixed(&'static [(&'static str, &'static str)]),
    /// A function translates the value to options; and a description of the result, for the guide.
    Made(Translate, &'static str),
    /// The value is kept until all settings are known, since several determine an option together; and a description of the
    /// result, for the guide.
    Kept(Subject, Normalize, &'static str),
    /// Bolide does this in any case, for this reason.
    Done(&'static str),
    /// It has no effect here, for this reason, which a note reports.
    Nothing(&'static str),
    /// An error that says what to write.
    Refused(&'static str),
    /// Bolide has an option of the same name with another meaning, as in uWSGI. The text says what to write for the other
    /// server's meaning.
    Taken(Doubt, &'static str),
}

/// One setting. If servers use a name with different meanings, each meaning has a row, and the first row applies to Bolide's own
/// command line.
#[derive(Clone, Copy)]
pub struct ServerSetting {
    /// The long flag, without its dashes; empty if the setting exists only in a file.
    pub flag: &'static str,
    pub servers: &'static [Server],
    /// Its letter, and the servers that have the letter.
    pub letter: Option<(char, &'static [Server])>,
    /// Its name in gunicorn.conf.py; empty if it has none.
    pub setting: &'static str,
    /// The flag turns this setting off, as `--no-sendfile` does.
    pub is_negated: bool,
    /// The keyword of `bolide.run`, if it is not the flag with underscores.
    pub keyword: &'static str,
    pub argument: Argument,
    pub meaning: Meaning,
    /// Its meaning in a file, if that differs.
    pub in_file: Option<Meaning>,
    /// The options of a file that mean the same, if the meaning does not have them; for the guide.
    pub here: &'static str,
    /// More information for its users, for the guide.
    pub says: &'static str,
}

/// A table of settings. The comment above a row says more to its users, for the guide.
macro_rules! settings {
    ($($(#[doc = $line:literal])* $make:ident $given:tt $(.$with:ident $values:tt)*),* $(,)?) => {
        &[$($make $given.says(bolide_comments::texts!($(#[doc = $line])*).help)$(.$with $values)*),*]
    };
}
pub(crate) use settings;

/// A flag with a value.
pub const fn flag(flag: &'static str, servers: &'static [Server], meaning: Meaning) -> ServerSetting {
    ServerSetting {
        flag,
        servers,
        letter: None,
        setting: "",
        is_negated: false,
        keyword: "",
        argument: Argument::Required,
        meaning,
        in_file: None,
        here: "",
        says: "",
    }
}

/// A flag without a value.
pub const fn switch(flag: &'static str, servers: &'static [Server], meaning: Meaning) -> ServerSetting {
    ServerSetting { argument: Argument::None, ..self::flag(flag, servers, meaning) }
}

/// A setting of gunicorn.conf.py without a flag.
pub const fn of_file(setting: &'static str, meaning: Meaning) -> ServerSetting {
    flag("", &[Server::Gunicorn], meaning).setting(setting)
}

impl ServerSetting {
    /// The letter that all its servers use for it.
    pub const fn letter(self, letter: char) -> ServerSetting {
        ServerSetting { letter: Some((letter, self.servers)), ..self }
    }

    /// The letter that only these of its servers use for it.
    pub const fn letter_of(self, letter: char, servers: &'static [Server]) -> ServerSetting {
        ServerSetting { letter: Some((letter, servers)), ..self }
    }

    pub const fn setting(self, setting: &'static str) -> ServerSetting {
        ServerSetting { setting, ..self }
    }

    /// The setting that the flag turns off.
    pub const fn setting_off(self, setting: &'static str) -> ServerSetting {
        ServerSetting { setting, is_negated: true, ..self }
    }

    pub const fn in_file(self, meaning: Meaning) -> ServerSetting {
        ServerSetting { in_file: Some(meaning), ..self }
    }

    pub const fn keyword(self, keyword: &'static str) -> ServerSetting {
        ServerSetting { keyword, ..self }
    }

    pub const fn optional(self) -> ServerSetting {
        ServerSetting { argument: Argument::Optional, ..self }
    }

    pub const fn here(self, here: &'static str) -> ServerSetting {
        ServerSetting { here, ..self }
    }

    pub const fn says(self, says: &'static str) -> ServerSetting {
        ServerSetting { says, ..self }
    }

    pub fn is_of(&self, server: Option<Server>) -> bool {
        server.is_none_or(|server| self.servers.contains(&server))
    }
}
