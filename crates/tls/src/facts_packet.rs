//! The facts of TLS as bytes: a worker that relays a request tells them to the worker that serves it. Both are of one build.
//!
//! It does not know how the bytes travel. Workers run it.

use std::sync::Arc;

use crate::facts::{ClientFacts, TlsFacts, cipher_name, version_name};

impl TlsFacts {
    /// Numbers are little-endian, a text begins with its length, and an absent part is a zero byte.
    pub fn to_packet(&self) -> Vec<u8> {
        // The names follow from the numbers.
        let TlsFacts { version: _, version_number, cipher: _, cipher_number, cipher_bits: _, .. } = self;
        let TlsFacts { server_name, is_resumed, certificate, client, .. } = self;
        let mut packet = Vec::new();
        packet.extend_from_slice(&version_number.to_le_bytes());
        packet.extend_from_slice(&cipher_number.to_le_bytes());
        packet.push(u8::from(*is_resumed));
        put_optional(&mut packet, server_name.as_deref());
        put_optional(&mut packet, certificate.as_deref());
        packet.push(u8::from(client.is_some()));
        if let Some(ClientFacts { subject, subject_oneline, issuer, serial, chain }) = client {
            for text in [subject, subject_oneline, issuer, serial] {
                put(&mut packet, text);
            }
            for certificate in chain {
                put(&mut packet, certificate);
            }
        }
        packet
    }

    /// `None`: another build has written the packet.
    pub fn of_packet(packet: &[u8]) -> Option<TlsFacts> {
        let mut rest = Rest(packet);
        let version_number = rest.number()?;
        let cipher_number = rest.number()?;
        let is_resumed = rest.flag()?;
        let server_name = rest.optional()?;
        let certificate = rest.optional()?;
        let client = match rest.flag()? {
            false => None,
            true => Some(ClientFacts {
                subject: rest.text()?,
                subject_oneline: rest.text()?,
                issuer: rest.text()?,
                serial: rest.text()?,
                chain: rest.texts()?,
            }),
        };
        let (cipher, cipher_bits) = cipher_name(cipher_number);
        let facts = TlsFacts {
            version: version_name(version_number),
            version_number,
            cipher,
            cipher_number,
            cipher_bits,
            server_name: server_name.map(Into::into),
            is_resumed,
            certificate: certificate.map(Arc::from),
            client,
        };
        rest.0.is_empty().then_some(facts)
    }
}

fn put(packet: &mut Vec<u8>, text: &str) {
    packet.extend_from_slice(&(text.len() as u32).to_le_bytes());
    packet.extend_from_slice(text.as_bytes());
}

fn put_optional(packet: &mut Vec<u8>, text: Option<&str>) {
    packet.push(u8::from(text.is_some()));
    if let Some(text) = text {
        put(packet, text);
    }
}

/// The part of a packet that was not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.bytes(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        let length = u32::from_le_bytes(self.bytes(4)?.try_into().ok()?);
        String::from_utf8(self.bytes(length as usize)?.to_vec()).ok()
    }

    #[expect(clippy::option_option, reason = "the packet may be bad, and the text absent")]
    fn optional(&mut self) -> Option<Option<String>> {
        Some(if self.flag()? { Some(self.text()?) } else { None })
    }

    /// All that are left.
    fn texts(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        while !self.0.is_empty() {
            texts.push(self.text()?);
        }
        Some(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(client: Option<ClientFacts>) -> TlsFacts {
        TlsFacts {
            version: "TLSv1.2",
            version_number: 0x0303,
            cipher: "TLS_AES_256_GCM_SHA384",
            cipher_number: 0x1302,
            cipher_bits: 256,
            server_name: client.as_ref().map(|_| "a.example".into()),
            is_resumed: true,
            certificate: client.as_ref().map(|_| "-----BEGIN".into()),
            client,
        }
    }

    #[test]
    fn a_packet_brings_back_the_facts_and_a_part_of_one_nothing() {
        let client = |chain: &[&str]| ClientFacts {
            subject: "CN=a".into(),
            subject_oneline: "/CN=a".into(),
            issuer: String::new(),
            serial: "01".into(),
            chain: chain.iter().map(ToString::to_string).collect(),
        };
        for facts in [facts(None), facts(Some(client(&[]))), facts(Some(client(&["one", "two"])))] {
            let packet = facts.to_packet();
            let back = TlsFacts::of_packet(&packet).expect("ours");
            assert_eq!(format!("{back:?}"), format!("{facts:?}"));
            // A chain may end earlier at the border of a certificate.
            let parts = (0..packet.len()).filter(|length| TlsFacts::of_packet(&packet[..*length]).is_some()).count();
            assert_eq!(parts, facts.client.as_ref().map_or(0, |client| client.chain.len()));
        }
        assert!(TlsFacts::of_packet(&[facts(None).to_packet(), vec![0]].concat()).is_none());
    }
}
