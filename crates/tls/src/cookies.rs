//! The cookie of `sticky`: an identifier of a session, sealed with the keys of session tickets, so that no client can make one.
//! Workers run it.
//!
//! A sealed identifier is the key's name, a nonce, and the identifier with its tag (AES-256-GCM). It has no time of its own: it
//! is valid while the master keeps its key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use bolide_scoreboard::ticket_keys::{NAME_BYTES, TicketKey, TicketKeys};

/// Bytes of an identifier, which are random.
pub const IDENTIFIER_BYTES: usize = 16;

/// Bytes of the tag of AES-GCM.
const TAG_BYTES: usize = 16;

/// Bytes of a sealed identifier.
const SEALED_BYTES: usize = NAME_BYTES + NONCE_LEN + IDENTIFIER_BYTES + TAG_BYTES;

/// Authenticated with the identifier: a session ticket is never a cookie.
const PURPOSE: &[u8] = b"bolide cookie of a session";

/// Seals and opens identifiers.
pub struct SealedCookies {
    pub keys: TicketKeys,
}

/// An identifier that a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedCookie {
    pub identifier: [u8; IDENTIFIER_BYTES],
    /// Its key is not the current one, so it should be sealed again before the key is dropped.
    pub is_old: bool,
}

impl SealedCookies {
    /// Makes an identifier. `None` without random bytes.
    pub fn identifier() -> Option<[u8; IDENTIFIER_BYTES]> {
        let mut identifier = [0; IDENTIFIER_BYTES];
        aws_lc_rs::rand::fill(&mut identifier).ok()?;
        Some(identifier)
    }

    /// Seals an identifier. `None`: there is no key, or no random bytes.
    pub fn seal(&self, identifier: &[u8; IDENTIFIER_BYTES]) -> Option<Vec<u8>> {
        let key = self.keys.encrypting()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = identifier.to_vec();
        let nonce_again = Nonce::assume_unique_for_key(nonce);
        cipher_of(&key)?.seal_in_place_append_tag(nonce_again, Aad::from(PURPOSE), &mut sealed).ok()?;
        Some([&key.name[..], &nonce, &sealed].concat())
    }

    /// Opens a sealed identifier. `None`: it is forged, or its key is gone.
    pub fn open(&self, sealed: &[u8]) -> Option<OpenedCookie> {
        let sealed: &[u8; SEALED_BYTES] = sealed.try_into().ok()?;
        let (name, rest) = sealed.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let key = self.keys.named(name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = cipher_of(&key)?.open_in_place(nonce, Aad::from(PURPOSE), &mut sealed).ok()?;
        let identifier = (&*opened).try_into().ok()?;
        Some(OpenedCookie { identifier, is_old: self.keys.encrypting().is_some_and(|current| current.name != *name) })
    }
}

fn cipher_of(key: &TicketKey) -> Option<LessSafeKey> {
    Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key.secret).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_scoreboard::ticket_keys::TicketKeyring;

    fn key(number: u8) -> TicketKey {
        TicketKey { name: [number; 16], secret: [number + 100; 32] }
    }

    #[test]
    fn an_identifier_opens_until_its_key_is_dropped_and_is_old_before() {
        let ring = TicketKeyring::create([key(1), key(2), key(3)]).expect("a page of memory");
        let cookies = SealedCookies { keys: TicketKeys::attach(ring.memory()).expect("attached") };
        let identifier = SealedCookies::identifier().expect("random bytes");
        let sealed = cookies.seal(&identifier).expect("a key");
        assert_eq!(cookies.open(&sealed), Some(OpenedCookie { identifier, is_old: false }));
        ring.rotate(key(4));
        assert_eq!(cookies.open(&sealed), Some(OpenedCookie { identifier, is_old: true }));
        ring.rotate(key(5));
        assert_eq!(cookies.open(&sealed), None);
    }

    #[test]
    fn an_identifier_of_which_a_byte_differs_or_is_missing_is_none() {
        let ring = TicketKeyring::create([key(1), key(2), key(3)]).expect("a page of memory");
        let cookies = SealedCookies { keys: TicketKeys::attach(ring.memory()).expect("attached") };
        let sealed = cookies.seal(&[7; IDENTIFIER_BYTES]).expect("a key");
        for place in 0..sealed.len() {
            let mut other = sealed.clone();
            other[place] ^= 1;
            assert!(cookies.open(&other).is_none(), "byte {place}");
            assert!(cookies.open(&sealed[..place]).is_none(), "{place} bytes");
        }
        assert!(cookies.open(&[&sealed[..], b"x"].concat()).is_none());
    }
}
