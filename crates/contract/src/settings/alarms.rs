//! Settings of alarms: what they do, and what raises them. The rules about log lines are in the settings of the logs.
//!
//! Plain data, passed from the process that reads the configuration to master, prototypes and workers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Alarms that a configuration may have.
pub const MAX_ALARMS: usize = 64;
/// Bytes of an alarm's name at most.
pub const NAME_BYTES: usize = 64;
/// Bytes of a message at most, whatever `alarm-msg-size` says.
pub const MAX_MESSAGE_BYTES: u32 = 64 * 1024;

crate::with_defaults! {
    /// All alarms of an instance.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Alarms {
        pub list: Vec<Alarm>,
        /// `alarm-freq`: for this long, an alarm does not repeat its last message, in milliseconds.
        pub repeat_ms: u64 = 3000,
        /// `alarm-msg-size`: longer messages are cut.
        pub message_bytes: u32 = 8192,
        /// `alarm-backlog`: names of alarms, raised while a listen queue is full.
        pub backlog: Vec<String>,
        /// `alarm-segfault`: names of alarms, raised when a fault of the processor has ended a process.
        pub segfault: Vec<String>,
        pub descriptors: Vec<AlarmDescriptor>,
        /// `alarm-list`: alarms are logged at startup.
        pub is_listed: bool,
    }
}

impl Alarms {
    /// The alarm of this name.
    pub fn named(&self, name: &str) -> Option<&Alarm> {
        self.list.iter().find(|alarm| alarm.name == name)
    }
}

/// A name, and what is done when it is raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    pub name: String,
    pub action: AlarmAction,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}

/// What an alarm does with its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmAction {
    /// `cmd`: a command of the shell, which reads the message from its standard input.
    Command(String),
    /// `log`: a log line, which begins with this text.
    Log(String),
    /// `signal`: raises the signal of uWSGI's with this number. The message is not sent.
    Signal(u8),
    /// `mule`: a message to the mule of this number; 0 is any mule.
    Mule(u32),
    /// `curl`: a request, or a mail.
    Curl(CurlRequest),
    /// `crash-reports`, which is not an alarm of a configuration: the message becomes a file in this directory.
    Report(PathBuf),
}

impl AlarmAction {
    /// Its word in a configuration.
    pub fn word(&self) -> &'static str {
        match self {
            AlarmAction::Command(_) => "cmd",
            AlarmAction::Log(_) => "log",
            AlarmAction::Signal(_) => "signal",
            AlarmAction::Mule(_) => "mule",
            AlarmAction::Curl(_) => "curl",
            AlarmAction::Report(_) => "crash-reports",
        }
    }
}

/// What the program `curl` does for an alarm. Its options have the names of uWSGI's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CurlRequest {
    /// The address, of HTTP or SMTP, with or without TLS.
    pub url: String,
    pub mail_from: Option<String>,
    /// Recipients, separated by commas.
    pub mail_to: Option<String>,
    pub subject: Option<String>,
    pub method: Option<String>,
    /// `ssl`: the connection must be encrypted.
    pub needs_tls: bool,
    /// `ssl_insecure`: any certificate is accepted.
    pub is_insecure: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Seconds for all of it, and for the connection.
    pub timeout_s: u32,
    pub connect_timeout_s: u32,
}

impl CurlRequest {
    /// The request with its defaults.
    pub fn to(url: String, timeout_s: u32) -> CurlRequest {
        CurlRequest { url, timeout_s, connect_timeout_s: timeout_s, ..CurlRequest::default() }
    }

    /// Whether the message is sent as a mail.
    pub fn is_mail(&self) -> bool {
        self.url.to_ascii_lowercase().starts_with("smtp")
    }
}

/// `alarm-fd`: an alarm that a descriptor raises when it is readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmDescriptor {
    pub alarm: String,
    /// The server has inherited it.
    pub descriptor: i32,
    /// Bytes that are read for each alarm: 8 of an eventfd.
    pub bytes: u32,
    pub message: String,
    /// Where it was configured: `uwsgi.ini:3`.
    pub origin: String,
}
