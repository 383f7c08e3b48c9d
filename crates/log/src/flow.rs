//! The routing of lines: which logs a line goes to, and how it is encoded on its way. It writes nothing. Every process runs it,
//! if the settings name loggers.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use bolide_contract::logging::{LineEncoding, LineFrame, LinePattern, LogFlow, LogFlows, LogTarget, Logging};

use crate::alarms::AlarmRules;
use crate::pattern::Pattern;
use crate::{dates, form, json};

/// The flows of this process; null if all lines go to the log.
static CURRENT: AtomicPtr<Flows> = AtomicPtr::new(null_mut());

/// Uses the flows of these settings from now on.
pub fn set(logging: &Logging) {
    let flows = Flows::for_settings(logging).map(|flows| Box::into_raw(Box::new(flows)));
    // Never freed: a thread may be writing, and there is one for each reading of the configuration.
    CURRENT.store(flows.unwrap_or(null_mut()), Release);
}

/// The flows of this process; `None` if all lines go to the log.
pub fn current() -> Option<&'static Flows> {
    // SAFETY: null, or flows that `set` has stored and that are never freed.
    unsafe { CURRENT.load(Acquire).as_ref() }
}

/// A message of the server as the log with this number gets it.
pub fn framed(number: usize, text: &str) -> Vec<u8> {
    current().map_or_else(Vec::new, |flows| flows.frame(number)).into_iter().chain(form::message(text)).collect()
}

/// The flows of messages and requests, compiled.
pub struct Flows {
    pub messages: Flow,
    /// `None` if they are handled as messages.
    pub requests: Option<Flow>,
    /// The lines that raise alarms, before any rule of a flow.
    pub alarms: AlarmRules,
    frames: Vec<LineFrame>,
}

/// The flow of lines of one kind.
pub struct Flow {
    drains: Vec<Pattern>,
    filters: Vec<Pattern>,
    routes: Vec<(Pattern, usize)>,
    usual: Vec<usize>,
    encoders: Vec<(Option<usize>, Encoder)>,
}

enum Encoder {
    Prefix(String),
    Suffix(String),
    Format { pieces: Vec<Piece>, is_json: bool },
}

enum Piece {
    Text(String),
    Message,
    Seconds,
    Milliseconds,
    Microseconds,
    Time(String),
}

impl Flows {
    /// Compiles the flows of the settings. `None`: all lines go to the log, and none of them raises an alarm.
    pub fn for_settings(logging: &Logging) -> Option<Flows> {
        let plain = || LogFlow { drains: vec![], filters: vec![], routes: vec![], usual: vec![], encoders: vec![] };
        let flows = match &logging.flows {
            Some(flows) => flows.clone(),
            None if logging.alarms.is_empty() => return None,
            None => LogFlows { messages: plain(), requests: None },
        };
        Some(Flows { alarms: AlarmRules::compile(&logging.alarms), ..Flows::compile(&flows, &logging.targets) })
    }

    /// Compiles the flows. Invalid expressions were refused when the configuration was read.
    fn compile(flows: &LogFlows, targets: &[LogTarget]) -> Flows {
        // Number 0 is the log itself.
        let frames = std::iter::once(LineFrame::Plain).chain(targets.iter().map(|target| target.frame.clone())).collect();
        let requests = flows.requests.as_ref().map(Flow::compile);
        Flows { messages: Flow::compile(&flows.messages), requests, alarms: AlarmRules::default(), frames }
    }

    /// What stands before each line of the log with this number.
    fn frame(&self, log: usize) -> Vec<u8> {
        let mut output = Vec::new();
        self.frames.get(log).into_iter().for_each(|frame| begin_frame(&mut output, frame));
        output
    }

    /// Calls `write` with the number of each log and the text that it gets of these lines. `tag` is uWSGI's, which patterns see.
    pub fn deliver(&self, flow: &Flow, tag: &[u8], lines: &[u8], mut write: impl FnMut(usize, &[u8])) {
        if let Some(log) = flow.plain_log().filter(|log| self.frames.get(*log) == Some(&LineFrame::Plain)) {
            return write(log, lines);
        }
        let mut outputs: Vec<(usize, Vec<u8>)> = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            flow.logs_of(line, tag, |log| {
                let place = outputs.iter().position(|(known, _)| *known == log).unwrap_or_else(|| {
                    outputs.push((log, Vec::new()));
                    outputs.len() - 1
                });
                let output = &mut outputs[place].1;
                if let Some(frame) = self.frames.get(log) {
                    begin_frame(output, frame);
                }
                flow.encode(output, log, line);
                output.push(b'\n');
            });
        }
        outputs.iter().for_each(|(log, output)| write(*log, output));
    }
}

impl Flow {
    fn compile(flow: &LogFlow) -> Flow {
        let all = |patterns: &[LinePattern]| patterns.iter().filter_map(Pattern::compile).collect();
        let usual = if flow.usual.is_empty() { vec![0] } else { flow.usual.clone() };
        let routes = flow.routes.iter().filter_map(|(pattern, log)| Some((Pattern::compile(pattern)?, *log)));
        let encoders = flow.encoders.iter().map(|encoder| (encoder.only, Encoder::compile(&encoder.encoding)));
        Flow {
            drains: all(&flow.drains),
            filters: all(&flow.filters),
            routes: routes.collect(),
            usual,
            encoders: encoders.collect(),
        }
    }

    /// Whether lines usually go to this log.
    pub fn reaches(&self, log: usize) -> bool {
        self.usual.contains(&log)
    }

    /// The one log that gets all lines as they are.
    pub fn plain_log(&self) -> Option<usize> {
        let is_plain = self.drains.is_empty() && self.filters.is_empty() && self.routes.is_empty() && self.encoders.is_empty();
        self.usual.first().copied().filter(|_| is_plain && self.usual.len() == 1)
    }

    fn logs_of(&self, line: &[u8], tag: &[u8], mut give: impl FnMut(usize)) {
        let matches = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.is_match_tagged(line, tag));
        if matches(&self.drains) || !self.filters.is_empty() && !matches(&self.filters) {
            return;
        }
        let mut is_routed = false;
        for (_, log) in self.routes.iter().filter(|(pattern, _)| pattern.is_match_tagged(line, tag)) {
            is_routed = true;
            give(*log);
        }
        if !is_routed {
            self.usual.iter().for_each(|log| give(*log));
        }
    }

    fn encode(&self, output: &mut Vec<u8>, log: usize, line: &[u8]) {
        let mut encoders = self.encoders.iter().filter(|(only, _)| only.is_none_or(|only| only == log)).peekable();
        if encoders.peek().is_none() {
            return output.extend_from_slice(line);
        }
        let mut text = line.to_vec();
        encoders.for_each(|(_, encoder)| text = encoder.encoded(&text));
        output.extend_from_slice(&text);
    }
}

impl Encoder {
    fn compile(encoding: &LineEncoding) -> Encoder {
        match encoding {
            LineEncoding::Prefix(text) => Encoder::Prefix(text.clone()),
            LineEncoding::Suffix(text) => Encoder::Suffix(text.clone()),
            LineEncoding::Format(text) => Encoder::Format { pieces: pieces(text), is_json: false },
            LineEncoding::Json(text) => Encoder::Format { pieces: pieces(text), is_json: true },
        }
    }

    fn encoded(&self, line: &[u8]) -> Vec<u8> {
        match self {
            Encoder::Prefix(text) => [text.as_bytes(), line].concat(),
            Encoder::Suffix(text) => [line, text.as_bytes()].concat(),
            Encoder::Format { pieces, is_json } => {
                let now_us = dates::now_us();
                let mut made = Vec::with_capacity(line.len() + 64);
                let value = |made: &mut Vec<u8>, text: &[u8]| match is_json {
                    true => json::escaped(made, text),
                    false => made.extend_from_slice(text),
                };
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => made.extend_from_slice(text.as_bytes()),
                        Piece::Message => value(&mut made, line),
                        Piece::Seconds => made.extend_from_slice((now_us / 1_000_000).to_string().as_bytes()),
                        Piece::Milliseconds => made.extend_from_slice((now_us / 1000).to_string().as_bytes()),
                        Piece::Microseconds => made.extend_from_slice(now_us.to_string().as_bytes()),
                        Piece::Time(format) => {
                            let mut time = Vec::new();
                            dates::strftime(&mut time, format, (now_us / 1_000_000) as i64);
                            value(&mut made, &time);
                        }
                    }
                }
                made
            }
        }
    }
}

/// Splits a text with `${name}` in it. An unknown name is replaced by nothing, as in uWSGI.
fn pieces(format: &str) -> Vec<Piece> {
    let (mut made, mut rest) = (Vec::new(), format);
    while let Some((before, (name, after))) =
        rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        made.push(Piece::Text(before.to_owned()));
        match name {
            "msg" | "msgnl" => made.push(Piece::Message),
            "unix" => made.push(Piece::Seconds),
            "millis" => made.push(Piece::Milliseconds),
            "micros" => made.push(Piece::Microseconds),
            _ => made.extend(name.strip_prefix("strftime:").map(|format| Piece::Time(format.to_owned()))),
        }
        rest = after;
    }
    made.push(Piece::Text(rest.to_owned()));
    made
}

fn begin_frame(output: &mut Vec<u8>, frame: &LineFrame) {
    match frame {
        LineFrame::Plain => {}
        LineFrame::Prefix(text) => output.extend_from_slice(text.as_bytes()),
        LineFrame::Syslog { priority, tag } => {
            output.extend_from_slice(format!("<{priority}>").as_bytes());
            dates::strftime(output, "%b %e %H:%M:%S ", (dates::now_us() / 1_000_000) as i64);
            output.extend_from_slice(tag.as_bytes());
            output.extend_from_slice(b": ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::logging::{LogEncoder, LogPlace};

    fn plain() -> LogFlow {
        LogFlow { drains: vec![], filters: vec![], routes: vec![], usual: vec![], encoders: vec![] }
    }

    /// The text that each log gets, as `number: text`.
    fn delivered(flow: LogFlow, frames: &[LineFrame], lines: &str) -> Vec<String> {
        let place = LogPlace::Descriptor(1);
        let targets: Vec<LogTarget> =
            frames.iter().map(|frame| LogTarget { place: place.clone(), frame: frame.clone(), packing: None }).collect();
        let flows = Flows::compile(&LogFlows { messages: flow, requests: None }, &targets);
        let mut given = Vec::new();
        flows.deliver(&flows.messages, b"", lines.as_bytes(), |log, text| {
            given.push(format!("{log}: {}", String::from_utf8_lossy(text)));
        });
        given
    }

    #[test]
    fn a_line_goes_where_its_rules_say() {
        let like = |text: &str| LinePattern { matches: text.to_owned(), except: None };
        let route = |pattern: &str, log| (like(pattern), log);
        let all_but = LinePattern { matches: "^.*$".to_owned(), except: Some("o$".to_owned()) };
        for (flow, expected) in [
            (plain(), vec!["0: one\ntwo\n"]),
            (LogFlow { usual: vec![1, 2], ..plain() }, vec!["1: one\ntwo\n", "2: one\ntwo\n"]),
            (LogFlow { drains: vec![like("^o")], ..plain() }, vec!["0: two\n"]),
            (LogFlow { filters: vec![like("ne$")], ..plain() }, vec!["0: one\n"]),
            (LogFlow { routes: vec![route("one", 1), route("o", 2)], ..plain() }, vec!["1: one\n", "2: one\ntwo\n"]),
            (LogFlow { routes: vec![route("one", 1)], usual: vec![2], ..plain() }, vec!["1: one\n", "2: two\n"]),
            (LogFlow { routes: vec![(all_but, 1)], usual: vec![2], ..plain() }, vec!["1: one\n", "2: two\n"]),
            (LogFlow { drains: vec![like(".")], routes: vec![route("one", 1)], ..plain() }, vec![]),
        ] {
            assert_eq!(delivered(flow, &[LineFrame::Plain, LineFrame::Plain], "one\ntwo\n"), expected);
        }
    }

    #[test]
    fn encoders_change_lines_one_after_the_other_and_frames_stand_before_them() {
        let encoder = |only, encoding| LogEncoder { only, encoding };
        let encoders = vec![
            encoder(None, LineEncoding::Prefix("<".into())),
            encoder(Some(2), LineEncoding::Suffix(">".into())),
            encoder(None, LineEncoding::Json("{\"m\":\"${msg}\"}${nothing}".into())),
            encoder(Some(1), LineEncoding::Format("${strftime:x}$ ${msgnl} ${".into())),
        ];
        let flow = LogFlow { usual: vec![1, 2], encoders, ..plain() };
        let frames = [LineFrame::Prefix("p ".into()), LineFrame::Plain];
        assert_eq!(delivered(flow, &frames, "a\"b\n"), ["1: p x$ {\"m\":\"<a\\\"b\"} ${\n", "2: {\"m\":\"<a\\\"b>\"}\n"]);
    }

    #[test]
    fn syslog_has_priority_time_and_tag() {
        let frame = LineFrame::Syslog { priority: 30, tag: "uwsgi".into() };
        let given = delivered(LogFlow { usual: vec![1], ..plain() }, &[frame], "one\n");
        let (start, end) = (given[0].strip_prefix("1: <30>").expect("a priority"), " uwsgi: one\n");
        assert_eq!(start.len(), "Nov 22 13:40:00".len() + end.len(), "{start}");
        assert!(start.ends_with(end), "{start}");
    }
}
