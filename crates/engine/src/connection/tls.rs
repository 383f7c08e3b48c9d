//! The beginning of a connection that speaks TLS, or that should. Workers run it.

use bolide_protocol::Fault;

use super::{Connection, Link, NextAction};
use crate::app::App;
use crate::exchange::context::Context;
use crate::sockets::socket::Read;
use crate::sockets::tls::{Alpn, TlsFault};

impl<A: App> Connection<A> {
    /// Leads the handshake on, and reads what came behind it. Signatures are native work of a millisecond, for which nobody waits who
    /// needs the language.
    pub(super) fn read_handshake(&mut self, buffer: &mut [u8], context: &mut Context<'_, A>) -> Read {
        let transport = &mut self.transport;
        let read = context.app.aside(|| transport.read(buffer));
        if let Some(facts) = transport.tls_facts() {
            self.client.note_tls(facts.clone());
            // RFC 9113 section 3.2: within TLS it is chosen in the handshake, and not by how a client begins.
            self.link = Link::Socket { may_be_http2: transport.alpn() == Some(Alpn::Http2) };
        }
        read
    }

    /// A handshake has come to nothing. Who speaks HTTP is told so in the same language; the others have an alert.
    pub(super) fn refuse_handshake(&mut self, fault: &TlsFault, context: &mut Context<'_, A>) -> NextAction {
        self.tell_of_handshake(fault, context);
        match fault {
            TlsFault::PlainHttp => {
                self.transport.leave_tls();
                self.answer_fault(Fault::new(400, "This port speaks HTTPS: use https:// in place of http://."), context);
                self.begin_linger(context)
            }
            TlsFault::Left => NextAction::Close,
            TlsFault::NotTls | TlsFault::TooSlow | TlsFault::TooLong | TlsFault::Failed(_) => self.begin_linger(context),
        }
    }

    pub(super) fn tell_of_handshake(&self, fault: &TlsFault, context: &Context<'_, A>) {
        let place = if fault.is_mixup() { self.place(context) } else { String::new() };
        self.complain_of_peer(fault.kind(), "a TLS handshake", &format!("{place}: {}", fault.reason()), context);
    }
}
