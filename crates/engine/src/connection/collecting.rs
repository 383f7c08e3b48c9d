//! A request whose body is collected before the application is called. Workers run it.

use bolide_protocol::fastcgi::Answer;
use bolide_protocol::response::ResponseEncoder;
use bolide_protocol::session::{HeadEvent, RequestHead};
use bolide_protocol::variables::Variable;
use bolide_protocol::{Fault, Span};

use super::pulling::{PullEnd, Pulled, pull};
use super::{Connection, ServeStep};
use crate::app::App;
use crate::exchange::context::Context;
use crate::exchange::{Collecting, ExchangeState};
use crate::logging::access_log::complain;
use crate::request::body::{Collector, Refusal};
use crate::response::ResponseWriter;

impl<A: App> Connection<A> {
    /// Collects what has come of the body, and serves the request if that is all of it. `input` is what the head was found in, `rest` what
    /// followed it.
    pub(super) fn begin_to_collect(
        &mut self,
        head: HeadEvent,
        input: &[u8],
        mut collector: Collector,
        rest: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let pulled = self.keep(&mut collector, rest, context)?;
        match pulled.end {
            PullEnd::Complete => {
                return Ok((pulled.used, self.answer_collected(&head, head.bytes.of(input), collector, context)?));
            }
            PullEnd::Aborted { end, keep_alive } => return Ok((pulled.used, self.abort(end, keep_alive))),
            PullEnd::More => {}
        }
        if head.head.expects_continue() && rest.is_empty() {
            let interim = ResponseEncoder::new(head.wire).interim("100 Continue", &[]);
            self.transport.send_aside(&interim.unwrap_or_default());
        }
        let mut patience = self.patience(context.worker);
        patience.wait(true, context.thread.clock.now_ms);
        collector.wait().map_err(|refusal| self.fault_of(refusal, context))?;
        let parts = context.thread.parts.clone();
        let bytes = head.bytes.of(input).to_vec();
        self.exchange.state = ExchangeState::Collecting(Box::new(Collecting { head, bytes, parts, collector, patience }));
        Ok((pulled.used, ServeStep::More))
    }

    /// Hands bytes to the body that is coming, and serves the request when it is complete.
    pub(super) fn collect(
        &mut self,
        mut collecting: Box<Collecting>,
        bytes: &[u8],
        context: &mut Context<'_, A>,
    ) -> Result<(usize, ServeStep), Fault> {
        let pulled = self.keep(&mut collecting.collector, bytes, context)?;
        match pulled.end {
            PullEnd::Complete => {
                let Collecting { head, bytes, parts, collector, .. } = *collecting;
                context.thread.parts = parts;
                Ok((pulled.used, self.answer_collected(&head, &bytes, collector, context)?))
            }
            PullEnd::Aborted { end, keep_alive } => Ok((pulled.used, self.abort(end, keep_alive))),
            PullEnd::More => {
                collecting.patience.note(pulled.used, context.thread.clock.now_ms);
                collecting.collector.wait().map_err(|refusal| self.fault_of(refusal, context))?;
                self.exchange.state = ExchangeState::Collecting(collecting);
                Ok((pulled.used, ServeStep::More))
            }
        }
    }

    /// Ends a request that the application has not seen, and that nobody wants to be answered.
    pub(super) fn abort(&mut self, end: Answer, keep_alive: bool) -> ServeStep {
        self.session.note_answered();
        self.writer().say_aside(end.as_bytes());
        if keep_alive && !self.transport.is_broken { ServeStep::Next } else { ServeStep::Close }
    }

    /// Puts what is the body's of `bytes` into the collector.
    fn keep(&mut self, collector: &mut Collector, bytes: &[u8], context: &mut Context<'_, A>) -> Result<Pulled, Fault> {
        let Context { worker, thread, app } = context;
        let mut refused = None;
        let is_long = collector.will_spill(bytes.len());
        let session = &mut self.session;
        let mut writer = ResponseWriter { response: &mut self.exchange.response, transport: &mut self.transport };
        let mut take = || {
            pull((session, &mut writer), bytes, worker, &mut thread.parts, |part| {
                collector.keep(part).map_err(|refusal| {
                    let fault = Fault::new(507, "The body could not be stored.");
                    refused = Some(refusal);
                    fault
                })
            })
        };
        let taken = if is_long { app.aside(take) } else { take() };
        match refused {
            Some(refusal) => Err(self.fault_of(refusal, context)),
            None => taken,
        }
    }

    fn fault_of(&self, refusal: Refusal, context: &Context<'_, A>) -> Fault {
        match refusal {
            Refusal::Fault(fault) => fault,
            Refusal::Spill(error) => {
                let problem = format!("a request's body can't be kept in a temporary file: {error}; is the disk full?");
                complain(context.worker.number, &problem);
                Fault::new(507, "The body could not be stored.")
            }
        }
    }

    fn answer_collected(
        &mut self,
        head: &HeadEvent,
        bytes: &[u8],
        collector: Collector,
        context: &mut Context<'_, A>,
    ) -> Result<ServeStep, Fault> {
        let finished = if collector.has_file() { context.app.aside(|| collector.finish()) } else { collector.finish() };
        let (body, share) = finished.map_err(|refusal| self.fault_of(refusal, context))?;
        self.exchange.share = Some(share);
        let variables = &mut context.thread.parts.variables;
        match &head.head {
            RequestHead::Variables { facts, .. } if facts.content_length.is_none() && body.length() > 0 => {
                let bytes = with_length(bytes, body.length(), variables);
                self.answer(head, &bytes, body, context)
            }
            _ => self.answer(head, bytes, body, context),
        }
    }
}

/// Says how long a body is whose front server has not said it (RFC 3875 section 4.1.2): it has ended with its stream.
fn with_length(bytes: &[u8], length: u64, variables: &mut Vec<Variable>) -> Vec<u8> {
    const NAME: &[u8] = b"CONTENT_LENGTH";
    let mut bytes = bytes.to_vec();
    let mut part = |text: &[u8]| {
        let start = bytes.len() as u32;
        bytes.extend_from_slice(text);
        Span { start, end: bytes.len() as u32 }
    };
    let (name, value) = (part(NAME), part(itoa::Buffer::new().format(length).as_bytes()));
    variables.push(Variable { name, value });
    bytes
}
