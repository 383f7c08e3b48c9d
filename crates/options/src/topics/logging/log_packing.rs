//! `log-encoder = gzip` and `compress`: resolves the encoders of each log if one of them compresses its lines. It opens nothing.
//! Runs in the process that reads the configuration.

use std::collections::BTreeSet;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::logging::{LineEncoding, LineFrame, LogEncoder, LogFlow, LogTarget, PackedForm, Packing};

/// The effect of an encoder.
#[derive(Debug, Clone)]
pub enum Step {
    Line(LineEncoding),
    Pack(PackedForm),
}

/// An encoder, with the number of its log; `None` applies it to all logs of its lines.
pub struct Encoder {
    pub only: Option<usize>,
    pub step: Step,
    pub location: Location,
}

/// The compression of the lines of one flow, for each log that they may go to.
pub type Packings = Vec<(usize, Option<Packing>)>;

/// Sets the encoders of a flow, and returns the compression for each of its logs. Encoders after the compression define the text
/// around the compressed lines.
pub fn encode(flow: &mut LogFlow, encoders: &[Encoder]) -> Result<Packings, Diagnostic> {
    let usual = if flow.usual.is_empty() { vec![0] } else { flow.usual.clone() };
    let logs: BTreeSet<usize> = usual.into_iter().chain(flow.routes.iter().map(|(_, log)| *log)).collect();
    if !encoders.iter().any(|encoder| matches!(encoder.step, Step::Pack(_))) {
        let lines = encoders.iter().filter_map(|encoder| Some((encoder.only, encoder.step.line()?)));
        flow.encoders.extend(lines.map(|(only, encoding)| LogEncoder { only, encoding }));
        return Ok(logs.into_iter().map(|log| (log, None)).collect());
    }
    let mut packings = Packings::new();
    for log in logs {
        let mut packing: Option<Packing> = None;
        for encoder in encoders.iter().filter(|encoder| encoder.only.is_none_or(|only| only == log)) {
            let refused = |message: &str, advice: &str| Err(Diagnostic::error(Some(&encoder.location), message).advise(advice));
            match (&mut packing, encoder.step.clone()) {
                (None, Step::Pack(_)) if log == 0 => {
                    let message = "the log itself can't be compressed: an interpreter that crashes writes to it, too";
                    return refused(
                        message,
                        "give lines a logger that is compressed: `logger = file:PATH`, and `req-logger` for requests",
                    );
                }
                (None, Step::Pack(form)) => packing = Some(Packing { form, before: String::new(), after: String::new() }),
                (None, Step::Line(encoding)) => flow.encoders.push(LogEncoder { only: Some(log), encoding }),
                (Some(packing), Step::Line(LineEncoding::Prefix(text))) => packing.before.insert_str(0, &text),
                (Some(packing), Step::Line(LineEncoding::Suffix(text))) => packing.after.push_str(&text),
                (Some(_), Step::Line(_)) => {
                    return refused(
                        "there is no text to format in a compressed line",
                        "name `format` and `json` before `gzip` and `compress`",
                    );
                }
                (Some(_), Step::Pack(_)) => {
                    return refused("lines are compressed once", "leave one of `gzip` and `compress` out");
                }
            }
        }
        packings.push((log, packing));
    }
    Ok(packings)
}

/// Sets the compression of the logs, on which their flows have to agree.
pub fn pack(targets: &mut [LogTarget], flows: &[Packings], encoders: &[Encoder]) -> Result<(), Diagnostic> {
    let Some(encoder) = encoders.iter().find(|encoder| matches!(encoder.step, Step::Pack(_))) else { return Ok(()) };
    let refused = |message: &str, advice: &str| Err(Diagnostic::error(Some(&encoder.location), message).advise(advice));
    for (number, target) in (1..).zip(targets) {
        let mut packings =
            flows.iter().flat_map(|flow| flow.iter()).filter(|(log, _)| *log == number).map(|(_, packing)| packing);
        let Some(packing) = packings.next() else { continue };
        if packings.any(|other| other != packing) {
            let message = "a logger takes messages and lines of requests, and only one kind of them is compressed";
            return refused(
                message,
                "name the same encoders in `log-encoder` and `log-req-encoder`, or give each kind a logger of its own",
            );
        }
        let Some(mut packing) = packing.clone() else { continue };
        match std::mem::replace(&mut target.frame, LineFrame::Plain) {
            LineFrame::Plain => {}
            LineFrame::Prefix(text) => packing.before.insert_str(0, &text),
            LineFrame::Syslog { .. } => {
                return refused(
                    "syslog and the journal take text, no compressed lines",
                    "name the loggers that take them: `log-encoder = gzip:NAME`",
                );
            }
        }
        target.packing = Some(packing);
    }
    Ok(())
}

impl Step {
    fn line(&self) -> Option<LineEncoding> {
        match self {
            Step::Line(encoding) => Some(encoding.clone()),
            Step::Pack(_) => None,
        }
    }
}
