//! Session tickets (RFC 5077, RFC 8446 section 4.6.1): sealed with keys that all workers of an instance share, so that a client
//! can resume on any of them. Workers run it.
//!
//! A ticket is the key's name, a nonce, and the session with its time, sealed with AES-256-GCM. A digest of the listener's
//! requirements for clients is authenticated with it: listeners share the keys, so a session of a listener that requests no
//! certificate must not be valid at one that does.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bolide_scoreboard::ticket_keys::{NAME_BYTES, TicketKey, TicketKeys};
use rustls::server::ProducesTickets;

/// Bytes of the time at which a ticket was sealed, in seconds since 1970.
const TIME_BYTES: usize = 8;

/// Bytes of a digest of a listener's requirements for clients.
pub const TERMS_BYTES: usize = 32;

pub struct SealedTickets {
    pub keys: TicketKeys,
    pub lifetime_s: u32,
    pub terms: [u8; TERMS_BYTES],
}

impl fmt::Debug for SealedTickets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SealedTickets").field("lifetime_s", &self.lifetime_s).finish_non_exhaustive()
    }
}

impl ProducesTickets for SealedTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now_s())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, now_s())
    }
}

impl SealedTickets {
    fn seal(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let key = self.keys.encrypting()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = now_s.to_be_bytes().to_vec();
        sealed.extend_from_slice(session);
        let nonce_again = Nonce::assume_unique_for_key(nonce);
        cipher_of(&key)?.seal_in_place_append_tag(nonce_again, Aad::from(self.terms), &mut sealed).ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.keys.named(name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = cipher_of(&key)?.open_in_place(nonce, Aad::from(self.terms), &mut sealed).ok()?;
        let (time, session) = opened.split_first_chunk::<TIME_BYTES>()?;
        let is_over = now_s.saturating_sub(u64::from_be_bytes(*time)) > u64::from(self.lifetime_s);
        (!is_over).then(|| session.to_vec())
    }
}

fn cipher_of(key: &TicketKey) -> Option<LessSafeKey> {
    Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key.secret).ok()?))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_scoreboard::ticket_keys::TicketKeyring;

    fn keyring(first: u8) -> TicketKeyring {
        let keys = [0, 1, 2].map(|number| TicketKey { name: [first + number; 16], secret: [first + number + 100; 32] });
        TicketKeyring::create(keys).expect("a page of memory")
    }

    fn tickets(keyring: &TicketKeyring, terms: u8) -> SealedTickets {
        SealedTickets {
            keys: TicketKeys::attach(keyring.memory()).expect("attached"),
            lifetime_s: 300,
            terms: [terms; TERMS_BYTES],
        }
    }

    #[test]
    fn a_ticket_opens_where_its_key_is_and_its_terms_are_the_same() {
        let keyring = keyring(1);
        let ours = tickets(&keyring, 7);
        let ticket = ours.seal(b"a session", 1000).expect("sealed");
        assert_eq!(tickets(&keyring, 7).open(&ticket, 1000).as_deref(), Some(&b"a session"[..]));
        assert_eq!(tickets(&keyring, 8).open(&ticket, 1000), None, "another listener's terms");
        assert_eq!(tickets(&self::keyring(50), 7).open(&ticket, 1000), None, "another instance's keys");
    }

    #[test]
    fn a_ticket_has_its_time() {
        let ours = tickets(&keyring(1), 7);
        let ticket = ours.seal(b"a session", 1000).expect("sealed");
        assert!(ours.open(&ticket, 1300).is_some());
        assert!(ours.open(&ticket, 1301).is_none());
    }

    #[test]
    fn a_ticket_of_which_a_byte_differs_or_is_missing_is_none() {
        let ours = tickets(&keyring(1), 7);
        let ticket = ours.seal(b"a session", 1000).expect("sealed");
        for place in 0..ticket.len() {
            let mut other = ticket.clone();
            other[place] ^= 1;
            assert!(ours.open(&other, 1000).is_none(), "byte {place}");
            assert!(ours.open(&ticket[..place], 1000).is_none(), "{place} bytes");
        }
    }
}
