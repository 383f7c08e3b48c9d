//! Single values: numbers with their bounds, switches, words, names. A value that uWSGI would silently misread is read as in
//! uWSGI, with a warning.

use bolide_configuration::diagnostic::{Diagnostic, Location, listed};
use bolide_configuration::pair::Pair;
use bolide_contract::settings::Limits;

use crate::draft::Draft;
use crate::row::{OptionRow, Value};

/// Signals by their names on Linux, without `SIG` (signal(7); x86 and ARM).
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

impl Draft<'_> {
    /// On or off; any other text is on, with a warning.
    pub fn switch(&mut self, pair: &Pair) -> bool {
        let switch = bolide_configuration::values::switch(pair.value.as_deref());
        if !switch.plain {
            let text = pair.value.as_deref().unwrap_or_default();
            let advice = without_quotes(pair).unwrap_or_else(|| {
                "only `false`, `off`, `no` and `0` are off, with nothing after them; there are no comments after a value"
                    .to_owned()
            });
            let warning = Diagnostic::warning(Some(&pair.location), format!("`{} = {text}` is on", pair.key));
            self.diagnostics.push(warning.advise(advice));
        }
        switch.on
    }

    /// A word of a table. Words behind it, such as a comment, are left out, with a warning.
    pub fn one_of<T: Copy>(&mut self, pair: &Pair, table: &[(&'static str, T)]) -> Result<T, Diagnostic> {
        let unknown = match one_of(pair, table) {
            Ok(meaning) => return Ok(meaning),
            Err(unknown) => unknown,
        };
        let word = first_word(pair);
        let known = table.iter().find(|(known, _)| word.is_some_and(|word| word.eq_ignore_ascii_case(known)));
        let Some(&(word, meaning)) = known else { return Err(unknown) };
        self.diagnostics.push(read_as(pair, word));
        Ok(meaning)
    }

    /// The number of a signal, or its name, which uWSGI would read as 0: no signal.
    pub fn signal(&mut self, row: &OptionRow, pair: &Pair) -> Result<i32, Diagnostic> {
        let text = pair.value.as_deref().unwrap_or_default();
        let name = first_word(pair).unwrap_or(text.trim()).to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let Some((_, number)) = SIGNALS.iter().find(|(known, _)| name == *known) else {
            return Ok(self.bounded_u32(row, pair)?.cast_signed());
        };
        self.diagnostics.push(read_as(pair, &number.to_string()));
        Ok(*number)
    }

    /// A number within the row's bounds, parsed like `atoi`.
    pub fn bounded(&mut self, row: &OptionRow, pair: &Pair) -> Result<i64, Diagnostic> {
        let text = pair.value.as_deref().unwrap_or("1");
        let number = bolide_configuration::values::number(text);
        let (least, most, unit) = match row.value {
            Value::Number { least, most, unit } | Value::NumberOrAuto { least, most, unit } => (least, most, unit),
            _ => (0, i64::MAX, ""),
        };
        let is_within = (least..=most).contains(&number.value) || endless(row, number.value).is_some();
        if let Some(advice) = without_quotes(pair).filter(|_| !number.whole && !is_within) {
            let message = format!("`{} = {text}`: `{text}` is not a number", pair.key);
            return Err(Diagnostic::error(Some(&pair.location), message).advise(advice));
        }
        if !number.whole {
            self.misread(row, pair, &number.value.to_string())?;
        }
        if (least..=most).contains(&number.value) {
            return Ok(number.value);
        }
        let Some((value, meaning)) = endless(row, number.value) else { return Err(out_of_bounds(pair, least, most, unit)) };
        let message = format!("`{} = {text}` is read as {value}, {meaning}", pair.key);
        self.diagnostics.push(Diagnostic::warning(Some(&pair.location), message));
        Ok(value)
    }

    /// Seconds with decimals, in milliseconds; 0 means "never".
    pub fn milliseconds(&mut self, row: &OptionRow, pair: &Pair) -> Result<Option<u64>, Diagnostic> {
        let Value::Decimal { most, unit } = row.value else { return Ok(self.positive(row, pair)?.map(|seconds| seconds * 1000)) };
        let number = bolide_configuration::values::decimal(pair.value.as_deref().unwrap_or("1"));
        if !number.whole {
            self.misread(row, pair, &(number.thousandths as f64 / 1000.0).to_string())?;
        }
        match u64::try_from(number.thousandths).ok().filter(|_| number.thousandths <= most.saturating_mul(1000)) {
            Some(milliseconds) => Ok(Some(milliseconds).filter(|&milliseconds| milliseconds > 0)),
            None => Err(out_of_bounds(pair, 0, most, unit)),
        }
    }

    /// Reports a number with trailing text, or text that is not a number. The latter is an error on the command line, where it
    /// has just been typed.
    fn misread(&mut self, row: &OptionRow, pair: &Pair, number: &str) -> Result<(), Diagnostic> {
        let text = pair.value.as_deref().unwrap_or_default();
        let has_digits = text.trim_start_matches([' ', '\t', '+', '-', '.']).starts_with(|first: char| first.is_ascii_digit());
        if !has_digits && pair.location == Location::command_line() {
            return Err(Diagnostic::error(Some(&pair.location), format!("`--{} {text}`: `{text}` is not a number", pair.key))
                .advise(format!("write {}", crate::descriptions::value(row))));
        }
        let advice = without_quotes(pair).unwrap_or_else(|| match row.at_once && text.contains('(') {
            true => "this option acts as soon as it is read, before placeholders are substituted".to_owned(),
            false => "write only the number; there are no comments after a value, and no units".to_owned(),
        });
        let message = format!("`{} = {text}` is read as {number}", pair.key);
        self.diagnostics.push(Diagnostic::warning(Some(&pair.location), message).advise(advice));
        Ok(())
    }

    pub fn bounded_u32(&mut self, row: &OptionRow, pair: &Pair) -> Result<u32, Diagnostic> {
        self.bounded(row, pair).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    pub fn bounded_usize(&mut self, row: &OptionRow, pair: &Pair) -> Result<usize, Diagnostic> {
        self.bounded(row, pair).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// A number; 0 means "never" or "no limit".
    pub fn positive(&mut self, row: &OptionRow, pair: &Pair) -> Result<Option<u64>, Diagnostic> {
        Ok(u64::try_from(self.bounded(row, pair)?).ok().filter(|&number| number > 0))
    }

    /// A number; 0 means the default.
    pub fn positive_or(&mut self, row: &OptionRow, pair: &Pair, default: u64) -> Result<u64, Diagnostic> {
        Ok(self.positive(row, pair)?.unwrap_or(default))
    }

    /// `None` is `auto`.
    pub fn number_or_auto(&mut self, row: &OptionRow, pair: &Pair) -> Result<Option<u32>, Diagnostic> {
        match pair.value.as_deref() {
            Some(text) if text.eq_ignore_ascii_case("auto") => Ok(None),
            _ => self.bounded_u32(row, pair).map(Some),
        }
    }

    /// Users write `http-keepalive` as a switch or as a number of seconds.
    pub fn keepalive_ms(&mut self, row: &OptionRow, pair: &Pair) -> Result<u64, Diagnostic> {
        let text = pair.value.as_deref();
        let switch = bolide_configuration::values::switch(text);
        let default_ms = Limits::default().keepalive_ms;
        Ok(match (switch.plain, switch.on) {
            (true, true) => default_ms,
            (true, false) => 0,
            (false, _) => match self.positive(row, pair)? {
                Some(1) => default_ms,
                seconds => seconds.unwrap_or(0) * 1000,
            },
        })
    }
}

/// Whether a value has the form of this option's values.
pub fn fits(row: &OptionRow, pair: &Pair) -> bool {
    let text = pair.value.as_deref().unwrap_or("1");
    match row.value {
        Value::Switch => bolide_configuration::values::switch(pair.value.as_deref()).plain,
        Value::Number { .. } => bolide_configuration::values::number(text).whole,
        Value::NumberOrAuto { .. } => bolide_configuration::values::number(text).whole || text.eq_ignore_ascii_case("auto"),
        Value::Decimal { .. } => bolide_configuration::values::decimal(text).whole,
        Value::OneOf(words) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
        Value::Text | Value::Path | Value::Address | Value::List | Value::SwitchOr(_) | Value::Form(_) | Value::Special => true,
    }
}

fn out_of_bounds(pair: &Pair, least: i64, most: i64, unit: &str) -> Diagnostic {
    let text = pair.value.as_deref().unwrap_or("1");
    let bounds = if most == i64::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
    if !text.contains(|letter: char| letter.is_ascii_digit()) {
        let message = format!("`{} = {text}`: `{text}` is not a number", pair.key);
        return Diagnostic::error(Some(&pair.location), message).advise(format!("write {bounds} {unit}"));
    }
    Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is out of range", pair.key)).advise(format!("{bounds} {unit}"))
}

/// What a limit stands for that is beyond the row's bounds and means "never" to uWSGI, whose server works with it: the longest
/// time, or no limit for a negative number of requests. `None` for other numbers, and for options that uWSGI doesn't have.
fn endless(row: &OptionRow, value: i64) -> Option<(i64, &'static str)> {
    match row.value {
        _ if row.home == "bolide" => None,
        Value::Number { most, unit: "seconds", .. } if value > most => Some((most, "the longest time")),
        Value::Number { least: 0, most: i64::MAX, unit: "requests" } if value < 0 => Some((0, "which means unlimited")),
        _ => None,
    }
}

/// Returns the meaning of a word in a table, regardless of case.
pub fn one_of<T: Copy>(pair: &Pair, table: &[(&'static str, T)]) -> Result<T, Diagnostic> {
    let text = text(pair)?;
    match table.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)) {
        Some(&(_, meaning)) => Ok(meaning),
        None => {
            let words: Vec<&'static str> = table.iter().map(|&(word, _)| word).collect();
            let diagnostic = Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is unknown", pair.key));
            Err(match bolide_configuration::suggest::nearest_of(&text, &words) {
                Some(nearest) => diagnostic.advise(format!("did you mean `{nearest}`?")),
                None => diagnostic.advise(format!("write {}", listed(&words, "or"))),
            })
        }
    }
}

/// Returns the word before a comment or other words, if there are some.
pub fn first_word(pair: &Pair) -> Option<&str> {
    let text = pair.value.as_deref()?.trim();
    let (word, _) = text.split_once([' ', '\t', ';', '#'])?;
    Some(word).filter(|word| !word.is_empty())
}

/// Warns that only the beginning of a value, or another value, is taken.
pub fn read_as(pair: &Pair, taken: &str) -> Diagnostic {
    let text = pair.value.as_deref().unwrap_or_default();
    Diagnostic::warning(Some(&pair.location), format!("`{} = {text}` is read as `{taken}`", pair.key))
        .advise(format!("write `{} = {taken}`; a comment needs a line of its own", pair.key))
}

/// A value that must not be empty.
pub fn text(pair: &Pair) -> Result<String, Diagnostic> {
    match pair.value.as_deref() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(Diagnostic::error(Some(&pair.location), format!("`{}` has no value", pair.key))
            .advise("write one after the =, or leave the option out")),
    }
}

/// Three octal digits; `None` for no value, or for 1, which some formats produce for a bare `chmod-socket`.
pub fn mode(pair: &Pair) -> Result<Option<u32>, Diagnostic> {
    match pair.value.as_deref() {
        None | Some("" | "1" | "true") => Ok(None),
        Some(text) if text.len() == 3 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) => {
            Ok(u32::from_str_radix(text, 8).ok())
        }
        Some(text) => {
            let diagnostic = Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a mode", pair.key));
            Err(diagnostic.advise("write three octal digits, such as 660"))
        }
    }
}

/// `umask`: three or four octal digits. uWSGI misreads every other text, and opens files to everybody if there are fewer: the
/// digits at its start are what was meant.
pub fn umask(draft: &mut Draft, pair: &Pair) -> Result<u32, Diagnostic> {
    let text = text(pair)?;
    let is_octal = |text: &str| text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mask_of = |digits: &str| u32::from_str_radix(digits, 8).ok().filter(|mask| is_octal(digits) && *mask <= 0o777);
    if let Some(mask) = mask_of(&text).filter(|_| (3..=4).contains(&text.len())) {
        return Ok(mask);
    }
    let word = first_word(pair).unwrap_or(text.trim());
    let Some(mask) = mask_of(word.strip_prefix("0o").unwrap_or(word)) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` is not a mask of a mode", pair.key))
            .advise("write three octal digits, such as 027"));
    };
    draft.diagnostics.push(read_as(pair, &format!("{mask:03o}")));
    Ok(mask)
}

/// `KEY=VALUE`.
pub fn variable(pair: &Pair) -> Result<(String, String), Diagnostic> {
    let text = text(pair)?;
    let wrong = |message: String| Diagnostic::error(Some(&pair.location), message).advise("write KEY=VALUE");
    match text.split_once('=') {
        Some((key, _)) if key.is_empty() || key.contains('\0') || text.contains('\0') => {
            Err(wrong(format!("`{text}` does not set a variable")))
        }
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(wrong(format!("`{} = {text}` has no `=`", pair.key))),
    }
}

/// Whether the value of `logto` is a UDP address.
pub fn is_udp_address(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    text.rsplit_once(':').is_some_and(|(host, port)| !host.contains('/') && is_port(port))
}

/// The path of a log that can only be a file.
pub fn log_file(pair: &Pair) -> Result<String, Diagnostic> {
    let text = text(pair)?;
    match is_udp_address(&text) {
        true => Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a file", pair.key))
            .advise("name a file, and let `logger = socket:HOST:PORT` send lines")),
        false => Ok(text),
    }
}

/// The advice for a value in quotes.
fn without_quotes(pair: &Pair) -> Option<String> {
    let inner = bolide_configuration::values::unquoted(pair.value.as_deref()?)?;
    Some(format!("leave the quotes out: `{} = {inner}`", pair.key))
}
