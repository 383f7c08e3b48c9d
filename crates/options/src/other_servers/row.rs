//! A row of the table of other servers' settings: its flag, its name in `gunicorn.conf.py`, its keyword of `bolide.run`, and what it
//! becomes here. Plain data; it knows nothing of our options but their names.

use super::server::Server;
use super::translation::{Subject, Translation};
use crate::catalogue::row::Argument;

/// What a value becomes; the refusal is the advice alone.
pub type Take = fn(&mut Translation, &str) -> Result<(), String>;

/// A value as it is kept until all settings are known; the refusal is the advice alone.
pub type Normalize = fn(&str) -> Result<String, String>;

/// A value that shows that the other server's option of this name is meant, not ours: the message and the advice.
pub type Doubt = fn(&str) -> Option<(String, String)>;

/// A word of another server's, and the options of ours that say it.
pub type ServerWord = (&'static str, &'static [(&'static str, &'static str)]);

/// The meaning of a setting here. It is the same for the flag, the setting of the file and the keyword.
#[derive(Clone, Copy)]
pub enum Meaning {
    /// Our option of the same name.
    Same,
    /// The same, where commas separate several values. On our own command line they are one value, and this tells the mistake.
    Listed(Doubt),
    /// The same, but for these words of the other server's, and for values that mean something else there.
    Worded(&'static [ServerWord], Doubt),
    /// Our option of this name, with the same value.
    Option(&'static str),
    /// These options with these values; the flag has none of its own.
    Fixed(&'static [(&'static str, &'static str)]),
    /// A function makes options of the value; and what it makes of it, for the guide.
    Made(Take, &'static str),
    /// The value is kept until all settings are known, since several decide together; and what they become, for the guide.
    Kept(Subject, Normalize, &'static str),
    /// What it asks for is done in any case, for this reason.
    Done(&'static str),
    /// It has no effect here, for this reason, which a note tells.
    Nothing(&'static str),
    /// An error that says what to write.
    Refused(&'static str),
    /// The name is that of an option of ours which means something else, as in uWSGI. What to write for what the other server means.
    Taken(Doubt, &'static str),
}

/// One setting. Where servers mean different things by a name it has a row for each meaning, and the first is what it means on our own
/// command line.
#[derive(Clone, Copy)]
pub struct ServerSetting {
    /// The long flag, without its dashes; empty where only a file has the setting.
    pub flag: &'static str,
    pub servers: &'static [Server],
    /// Its letter, and the servers that have it.
    pub letter: Option<(char, &'static [Server])>,
    /// Its name in gunicorn.conf.py; empty where it has none.
    pub setting: &'static str,
    /// The flag stands for this setting where that is off, as `--no-sendfile` does.
    pub is_negated: bool,
    /// The keyword of `bolide.run`, where it is not the flag with underscores.
    pub keyword: &'static str,
    pub argument: Argument,
    pub meaning: Meaning,
    /// What it means in a file, where that can't be the same.
    pub in_file: Option<Meaning>,
    /// What its users should know besides; for the guide.
    pub says: &'static str,
}

impl ServerSetting {
    /// A flag with a value.
    pub const fn new(flag: &'static str, servers: &'static [Server], meaning: Meaning) -> ServerSetting {
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
            says: "",
        }
    }

    /// A flag without a value.
    pub const fn switch(flag: &'static str, servers: &'static [Server], meaning: Meaning) -> ServerSetting {
        ServerSetting { argument: Argument::None, ..ServerSetting::new(flag, servers, meaning) }
    }

    /// A setting of gunicorn.conf.py without a flag.
    pub const fn of_file(setting: &'static str, meaning: Meaning) -> ServerSetting {
        ServerSetting::new("", &[Server::Gunicorn], meaning).setting(setting)
    }

    /// The letter that all its servers have for it.
    pub const fn letter(self, letter: char) -> ServerSetting {
        ServerSetting { letter: Some((letter, self.servers)), ..self }
    }

    /// The letter that only these of its servers have for it.
    pub const fn letter_of(self, letter: char, servers: &'static [Server]) -> ServerSetting {
        ServerSetting { letter: Some((letter, servers)), ..self }
    }

    pub const fn setting(self, setting: &'static str) -> ServerSetting {
        ServerSetting { setting, ..self }
    }

    /// The setting that the flag switches off.
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

    pub const fn says(self, says: &'static str) -> ServerSetting {
        ServerSetting { says, ..self }
    }

    pub fn is_of(&self, server: Option<Server>) -> bool {
        server.is_none_or(|server| self.servers.contains(&server))
    }
}
