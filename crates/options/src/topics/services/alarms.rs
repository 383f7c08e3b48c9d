//! Resolves the options of alarms to settings: actions with their arguments, and the names that rules refer to. It raises and
//! executes nothing. Runs in the process that reads the configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::alarms::{
    Alarm, AlarmAction, AlarmDescriptor, Alarms, CurlRequest, MAX_ALARMS, MAX_MESSAGE_BYTES, NAME_BYTES,
};
use bolide_contract::logging::{AlarmRule, LinePattern};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, accepted, field, list, on, rows, set, supported, within};
use crate::topics::logging::loggers::expression;
use crate::topics::sockets::SOCKET_TIMEOUT_SECONDS;
use crate::values;

/// Seconds between two equal messages at most.
const MAX_REPEAT_S: i64 = 31_536_000;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Define an alarm, as `NAME ACTION:ARGUMENT`. `cmd:COMMAND` runs a command of the shell as the application's user, with the
    /// message as its standard input. `log:TEXT` logs a line `ALARM: TEXT MESSAGE`. `signal:NUMBER` raises a signal of uWSGI's
    /// (`uwsgi.register_signal`), without the message. `mule:NUMBER` sends the message to a mule, `mule:0` to any mule.
    /// `curl:URL;OPTION=VALUE;…` sends the message with the program `curl`, which must be installed, as the body of a POST to
    /// `http` or `https`, or as a mail by `smtp` or `smtps`. The options are `method`, `auth_user`, `auth_pass`, `timeout`,
    /// `conn_timeout` (30 seconds each), `ssl`, `ssl_insecure`, `mail_from`, `mail_to` and `subject`. Commands and requests run
    /// in processes of their own, 4 of an alarm at a time, for 5 minutes at most, and 256 messages wait.
    /// uWSGI: `curl` executes the program of this name instead of a library, waits 30 seconds instead of 4, logs a response of
    /// 400 and above as a failure, and refuses other protocols. An action that uWSGI's plugins for XMPP and speech add is
    /// refused, but `cmd` can do the same. uWSGI starts any number of commands, for any time.
    /// Example: alarm = shout log:
    ///          alarm = mail cmd:mail -s 'the shop has a problem' ops@example.com
    ///          alarm = chat cmd:chat-client --room ops
    list("alarm", Setting::By(add_alarm)).reach(Reach::Master),
    /// Raise alarms for log lines, as `NAME[,NAME…] EXPRESSION`. The expression applies to lines of the server, daemons and the
    /// application, and to request lines unless `req-logger` sends them elsewhere. The message is the line. Lines of alarms do
    /// not raise alarms.
    /// uWSGI: Look-around and backreferences, which can take any time for a line, are an error. In uWSGI the lines of an alarm
    /// can raise it again.
    /// Example: alarm = shout log:
    ///          alarm-log = shout (ERROR|CRITICAL)
    list("alarm-log", Setting::By(add_rule)).reach(Reach::Master),
    /// Lines that match this expression (`NAME[,NAME…] EXPRESSION`) do not raise alarms of the `alarm-log` options that follow.
    /// uWSGI: As in uWSGI, the names have no effect, and the expression holds for all alarms. Unknown names are errors here.
    /// Example: alarm = shout log:
    ///          not-alarm-log = shout ERROR .* by a crawler
    ///          alarm-log = shout ERROR
    list("not-alarm-log", Setting::By(add_exception)).reach(Reach::Master),
    /// Raise this alarm each second in which the listen queue of a socket is full.
    /// Example: alarm = shout log:
    ///          alarm-backlog = shout
    list("alarm-backlog", set!(|draft, _, pair| draft.of::<AlarmsDraft>().backlog.push(located(pair)?))).reach(Reach::Master),
    /// Raise this alarm when a worker, a mule or the process that loads the application was killed by SIGSEGV, SIGBUS, SIGFPE or
    /// SIGILL. The message contains the process and its requests in flight.
    /// uWSGI: The message of uWSGI is a backtrace of C functions. In Bolide the Python stack is in the log.
    /// Example: alarm = shout log:
    ///          alarm-segfault = shout
    list("alarm-segfault", set!(|draft, _, pair| draft.of::<AlarmsDraft>().segfault.push(located(pair)?))).reach(Reach::Master),
    /// Raise an alarm when an inherited descriptor can be read, as `NAME DESCRIPTOR[:BYTES] MESSAGE`. The server reads this many
    /// bytes for each alarm, or 1 if none is given. Write 8 for an eventfd.
    /// Example: alarm = shout log:
    ///          alarm-fd = shout 9:8 the control group is out of memory
    list("alarm-fd", Setting::By(add_descriptor)).reach(Reach::Master),
    /// For this long an alarm ignores a message that equals its last one.
    /// Example: alarm-freq = 60
    supported(
        "alarm-freq",
        set!(|draft, row, pair| draft.of::<AlarmsDraft>().settings.repeat_ms = draft.bounded(row, pair)?.unsigned_abs() * 1000),
    )
    .takes(within(0, MAX_REPEAT_S, "seconds"), "3")
    .reach(Reach::Master),
    /// The maximum size of a message. A longer one is cut.
    /// uWSGI: uWSGI drops a message of `uwsgi.alarm` that is longer, and does not limit those of log lines.
    /// Example: alarm-msg-size = 1024
    supported(
        "alarm-msg-size",
        set!(|draft, row, pair| draft.of::<AlarmsDraft>().settings.message_bytes = draft.bounded_u32(row, pair)?),
    )
    .takes(within(1, MAX_MESSAGE_BYTES as i64, "bytes"), "8192")
    .reach(Reach::Master),
    /// Log the alarms at startup.
    /// Example: alarm-list = true
    on("alarm-list", Setting::Switch(field!(AlarmsDraft.settings.is_listed))).reach(Reach::Master),
    /// Send requests of `curl` without a thread for each alarm.
    /// Why: each request has a process of its own while it lasts, and no alarm has a thread
    accepted("alarm-cheap", Value::Switch),
];

/// The program that sends requests and mails.
const CURL: &str = "curl";
/// Protocols that it may use.
const SCHEMES: [&str; 4] = ["http", "https", "smtp", "smtps"];
/// Bytes that a descriptor gives for one alarm at most.
const MAX_DESCRIPTOR_BYTES: u32 = 4096;
/// Actions of uWSGI's plugins that do not exist here.
const ELSEWHERE: [(&str, &str); 2] = [
    ("xmpp", "write `cmd:` with a client of the chat that reads the message from its standard input"),
    ("speech", "write `cmd:` with a program that reads the message from its standard input, as `espeak` does"),
];

/// `NAME ACTION:ARGUMENT`
pub fn add_alarm(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let form = "write `alarm = NAME ACTION:ARGUMENT`, as in `alarm = shout log:`";
    let (name, what) = text.split_once(' ').ok_or_else(|| wrong(pair, "has no action", form))?;
    let (word, argument) = what.trim_start().split_once(':').ok_or_else(|| wrong(pair, "has no `:` after its action", form))?;
    if name.len() > NAME_BYTES {
        return Err(wrong(pair, &format!("has a name of more than {NAME_BYTES} bytes"), "write a shorter name"));
    }
    let action = match word {
        "cmd" if argument.trim().is_empty() => return Err(wrong(pair, "has no command", "write `cmd:COMMAND`")),
        "cmd" => AlarmAction::Command(argument.to_owned()),
        "log" => AlarmAction::Log(argument.to_owned()),
        "signal" => AlarmAction::Signal(signal(argument, pair)?),
        "mule" => AlarmAction::Mule(mule(argument, pair)?),
        "curl" => AlarmAction::Curl(request(argument, pair)?),
        _ => {
            let instead = ELSEWHERE.iter().find(|(missing, _)| *missing == word).map(|(_, instead)| *instead);
            let what = format!("has `{word}`, which is not an action");
            return Err(wrong(pair, &what, instead.unwrap_or("the actions are cmd, curl, log, mule and signal")));
        }
    };
    let list = &mut draft.of::<AlarmsDraft>().settings.list;
    if list.iter().any(|alarm| alarm.name == name) {
        let message = format!("`{}` defines the alarm `{name}` a second time: only the first one counts", pair.key);
        draft.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise("give it another name"));
        return Ok(());
    }
    if list.len() >= MAX_ALARMS {
        return Err(wrong(pair, &format!("is one of more than {MAX_ALARMS}"), "let several rules share an alarm"));
    }
    list.push(Alarm { name: name.to_owned(), action, origin: pair.location.to_string() });
    Ok(())
}

fn signal(argument: &str, pair: &Pair) -> Result<u8, Diagnostic> {
    let number = argument.trim().parse().ok();
    number.ok_or_else(|| wrong(pair, "has no number of a signal", "write `signal:NUMBER`, from 0 to 255"))
}

/// The number of a mule; without one, any mule.
fn mule(argument: &str, pair: &Pair) -> Result<u32, Diagnostic> {
    let number = if argument.trim().is_empty() { Some(0) } else { argument.trim().parse().ok() };
    number.ok_or_else(|| wrong(pair, "has no number of a mule", "write `mule:NUMBER`, or `mule:0` for any mule"))
}

/// `NAME[,NAME…] EXPRESSION`
pub fn add_rule(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (alarms, pattern) = named_expression(pair)?;
    draft.of::<AlarmsDraft>().rules.push((AlarmRule { pattern, alarms: alarms.clone() }, alarms, pair.location.clone()));
    Ok(())
}

/// The same form; the rule does not keep names.
pub fn add_exception(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let (alarms, pattern) = named_expression(pair)?;
    draft.of::<AlarmsDraft>().rules.push((AlarmRule { pattern, alarms: Vec::new() }, alarms, pair.location.clone()));
    Ok(())
}

/// `NAME DESCRIPTOR[:BYTES] MESSAGE`
pub fn add_descriptor(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let form = "write `alarm-fd = NAME DESCRIPTOR[:BYTES] MESSAGE`";
    let mut words = text.splitn(3, ' ');
    let (Some(alarm), Some(place), Some(message)) = (words.next(), words.next(), words.next()) else {
        return Err(wrong(pair, "has no message", form));
    };
    let (number, bytes) = place.split_once(':').unwrap_or((place, "1"));
    let descriptor = number.parse().ok().filter(|number: &i32| *number >= 0);
    let descriptor = descriptor.ok_or_else(|| wrong(pair, &format!("has `{number}`, which is not a descriptor"), form))?;
    let bytes = bytes.parse().ok().filter(|bytes| *bytes <= MAX_DESCRIPTOR_BYTES);
    let bytes: u32 = bytes.ok_or_else(|| wrong(pair, &format!("reads other than 1 to {MAX_DESCRIPTOR_BYTES} bytes"), form))?;
    let descriptor = AlarmDescriptor {
        alarm: alarm.to_owned(),
        descriptor,
        // As in uWSGI, 0 is 1.
        bytes: bytes.max(1),
        message: message.to_owned(),
        origin: pair.location.to_string(),
    };
    draft.of::<AlarmsDraft>().descriptors.push((descriptor, pair.location.clone()));
    Ok(())
}

/// The name of an alarm, and where it was written.
pub fn located(pair: &Pair) -> Result<(String, Location), Diagnostic> {
    Ok((values::text(pair)?, pair.location.clone()))
}

fn named_expression(pair: &Pair) -> Result<(Vec<String>, LinePattern), Diagnostic> {
    let text = values::text(pair)?;
    let (names, pattern) = text
        .split_once(' ')
        .ok_or_else(|| wrong(pair, "has no expression", &format!("write `{} = NAME[,NAME…] EXPRESSION`", pair.key)))?;
    let names = names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    // An alarm that is never raised is worse than one that is missing: an error, unlike with `log-route`.
    let pattern = expression(pattern, pair).map_err(|diagnostic| {
        let error = Diagnostic::error(Some(&pair.location), diagnostic.message.replace(" has no effect: ", " is invalid: "));
        diagnostic.advice.into_iter().fold(error, Diagnostic::advise)
    })?;
    Ok((names, pattern))
}

/// `URL[;OPTION=VALUE…]`. As in uWSGI, a later word without `=` is another address.
fn request(argument: &str, pair: &Pair) -> Result<CurlRequest, Diagnostic> {
    let form = "write `curl:URL;OPTION=VALUE;…`";
    let mut words = argument.split(';').filter(|word| !word.is_empty());
    let url = words.next().ok_or_else(|| wrong(pair, "has no address", form))?;
    let url = url.strip_prefix("url=").unwrap_or(url);
    let mut request = CurlRequest::to(url.to_owned(), SOCKET_TIMEOUT_SECONDS as u32);
    for word in words {
        let Some((option, value)) = word.split_once('=') else {
            word.clone_into(&mut request.url);
            continue;
        };
        let text = || Some(value.to_owned());
        let seconds = || {
            let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
            seconds.ok_or_else(|| wrong(pair, &format!("has `{word}`, which is not a number of seconds"), form))
        };
        match option {
            "url" => value.clone_into(&mut request.url),
            "mail_to" => request.mail_to = text(),
            "mail_from" => request.mail_from = text(),
            "subject" => request.subject = text(),
            "method" => request.method = text(),
            "ssl" => request.needs_tls = true,
            "ssl_insecure" => request.is_insecure = true,
            "auth_user" => request.user = text(),
            "auth_pass" => request.password = text(),
            "timeout" => request.timeout_s = seconds()?,
            "conn_timeout" => request.connect_timeout_s = seconds()?,
            _ => {
                let options = "the options are mail_to, mail_from, subject, method, ssl, ssl_insecure, auth_user, auth_pass, \
                    timeout and conn_timeout";
                return Err(wrong(pair, &format!("has `{option}`, which is not an option of `curl`"), options));
            }
        }
    }
    let scheme = request.url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !scheme.is_some_and(|scheme| SCHEMES.contains(&scheme.as_str())) {
        let what = format!("has `{}`, which is not an address of {}", request.url, SCHEMES.join(", "));
        return Err(wrong(pair, &what, "write the protocol too, as in `curl:https://example.com/hook`"));
    }
    let written = [&request.mail_to, &request.mail_from, &request.subject, &request.method, &request.user, &request.password];
    let written = written.into_iter().flatten().chain([&request.url]);
    if written.into_iter().any(|text| text.contains(|letter: char| letter.is_control())) {
        return Err(wrong(pair, "has a control character", "leave it out"));
    }
    Ok(request)
}

impl AlarmsDraft {
    /// Completes the settings, and returns the rules about log lines. Each name must be that of an alarm.
    pub fn complete(self, is_jailed: bool, mules: usize, context: &mut Context) -> (Alarms, Vec<AlarmRule>) {
        let mut settings = self.settings;
        let mut check = |name: &String, location: &Location| {
            if settings.named(name).is_none() {
                let unknown = Diagnostic::error(Some(location), format!("no alarm is called `{name}`"));
                context.diagnostics.push(unknown.advise(format!("write `alarm = {name} ACTION:ARGUMENT`")));
            }
        };
        for (_, names, location) in &self.rules {
            names.iter().for_each(|name| check(name, location));
        }
        self.backlog.iter().chain(&self.segfault).chain(&self.raised).for_each(|(name, location)| check(name, location));
        self.descriptors.iter().for_each(|(descriptor, location)| check(&descriptor.alarm, location));
        settings.backlog = self.backlog.into_iter().map(|(name, _)| name).collect();
        settings.segfault = self.segfault.into_iter().map(|(name, _)| name).collect();
        settings.descriptors = self.descriptors.into_iter().map(|(descriptor, _)| descriptor).collect();
        for alarm in &mut settings.list {
            let AlarmAction::Mule(number) = &mut alarm.action else { continue };
            let origin = context.read.effects.iter().find(|pair| pair.location.to_string() == alarm.origin);
            let location = origin.map(|pair| &pair.location);
            if mules == 0 {
                let message = format!("the alarm `{}` needs a mule: add `mule` or `mules`", alarm.name);
                context.diagnostics.push(Diagnostic::error(location, message).advise("write `mule = true`"));
            } else if *number as usize > mules {
                // As in uWSGI.
                let message = format!("the alarm `{}` is for mule {number} of {mules}: any mule gets its messages", alarm.name);
                context.diagnostics.push(Diagnostic::warning(location, message).advise("write the number of a mule"));
                *number = 0;
            }
        }
        let sends = settings.list.iter().find(|alarm| matches!(alarm.action, AlarmAction::Curl(_)));
        // In another root it is another program.
        if let Some(alarm) = sends.filter(|_| !is_jailed && !is_there(CURL, context)) {
            let origin = context.read.effects.iter().find(|pair| pair.location.to_string() == alarm.origin);
            let message = format!("the alarm `{}` needs the program `{CURL}`, which is in no directory of PATH", alarm.name);
            let missing = Diagnostic::error(origin.map(|pair| &pair.location), message).local();
            context.diagnostics.push(missing.advise("install it (`apt install curl`), or use the action `cmd`"));
        }
        (settings, self.rules.into_iter().map(|(rule, ..)| rule).collect())
    }
}

fn is_there(program: &str, context: &Context) -> bool {
    let is_program = |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let path = context.host.variable("PATH").unwrap_or_default();
    path.split(':').any(|directory| is_program(&Path::new(directory).join(program)))
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    let text = pair.value.as_deref().unwrap_or_default();
    // The rest of a value may be a password.
    let shown = text.split_once(':').map_or(text, |(before, _)| before);
    Diagnostic::error(Some(&pair.location), format!("`{} = {shown}` {what}", pair.key)).advise(advice)
}

/// Alarms. Names are as written.
#[derive(Default)]
pub struct AlarmsDraft {
    pub settings: Alarms,
    /// Each rule about log lines with the names that were written.
    pub rules: Vec<(AlarmRule, Vec<String>, Location)>,
    pub backlog: Vec<LocatedName>,
    pub segfault: Vec<LocatedName>,
    /// Names in hooks and thresholds.
    pub raised: Vec<LocatedName>,
    pub descriptors: Vec<(AlarmDescriptor, Location)>,
}

/// The name of an alarm, and where it was written.
type LocatedName = (String, Location);
