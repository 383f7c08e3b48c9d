//! The keys of TLS session tickets and of the cookie of `sticky`: it creates and renews them. Workers use them; it does not speak
//! TLS. The master runs it, for instances with a TLS listener or the cookie.

use std::io;
use std::os::fd::OwnedFd;

use bolide_contract::settings::Settings;
use bolide_scoreboard::ticket_keys::{NAME_BYTES, SECRET_BYTES, TicketKey, TicketKeyring, TicketKeys};

use crate::log_sink;

/// Time after which another key encrypts tickets, in milliseconds: a stolen key decrypts the TLS 1.2 traffic of twice this time
/// at most.
const PERIOD_MS: u64 = 12 * 3600 * 1000;
/// Pause before a failed renewal is tried again, in milliseconds.
const RETRY_MS: u64 = 60_000;

/// The keys, and the time of the next rotation.
#[derive(Debug)]
pub struct TicketKeyRenewal {
    ring: TicketKeyring,
    period_ms: u64,
    due_ms: u64,
}

impl TicketKeyRenewal {
    /// The keys of an instance. `None` if no session can be resumed, and no cookie is sealed.
    ///
    /// # Errors
    /// No memory or no random bytes are available.
    pub fn create(settings: &Settings, now_ms: u64) -> io::Result<Option<TicketKeyRenewal>> {
        let Some(period_ms) = period_ms(settings) else { return Ok(None) };
        let ring = TicketKeyring::create([fresh_key()?, fresh_key()?, fresh_key()?])?;
        Ok(Some(TicketKeyRenewal { ring, period_ms, due_ms: now_ms + period_ms }))
    }

    /// The keys of an instance that takes over from another master: those of its predecessor open what they have sealed for one
    /// period more.
    ///
    /// # Errors
    /// As `create`, or the memory of the predecessor is of another kind.
    pub fn succeed(settings: &Settings, before: &OwnedFd, now_ms: u64) -> io::Result<Option<TicketKeyRenewal>> {
        let Some(period_ms) = period_ms(settings) else { return Ok(None) };
        let Some(last) = TicketKeys::attach(before)?.encrypting() else { return TicketKeyRenewal::create(settings, now_ms) };
        let ring = TicketKeyring::create([fresh_key()?, fresh_key()?, last])?;
        Ok(Some(TicketKeyRenewal { ring, period_ms, due_ms: now_ms + period_ms }))
    }

    /// Rotates the keys if it is time.
    pub fn rotate_if_due(&mut self, now_ms: u64) {
        if now_ms < self.due_ms {
            return;
        }
        match fresh_key() {
            Ok(key) => {
                self.ring.rotate(key);
                self.due_ms = now_ms + self.period_ms;
            }
            Err(error) => {
                self.due_ms = now_ms + RETRY_MS;
                log_sink::line(&format!(
                    "the keys of TLS session tickets can't be renewed: {error}; the old ones stay in use for \
                    now"
                ));
            }
        }
    }

    /// When the next rotation is due.
    pub fn wake_ms(&self) -> u64 {
        self.due_ms
    }

    /// The shared keys.
    pub fn ring(&self) -> &TicketKeyring {
        &self.ring
    }
}

/// How long a key seals, in milliseconds; `None` if nothing is sealed.
fn period_ms(settings: &Settings) -> Option<u64> {
    let lifetimes = settings.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let lifetime_s = lifetimes.map(|tls| tls.session_lifetime_s).max().unwrap_or(0);
    // A ticket can also be decrypted with the previous key, so a period must not be shorter than the lifetime of a session.
    let is_needed = lifetime_s > 0 || settings.answering.seals_cookies();
    is_needed.then_some(PERIOD_MS.max(u64::from(lifetime_s) * 1000))
}

fn fresh_key() -> io::Result<TicketKey> {
    let mut bytes = [0; NAME_BYTES + SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(TicketKey::from_random(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::tls::{ClientAuth, Tls, TlsVersion};

    fn settings(session_lifetime_s: u32) -> Settings {
        let mut settings = crate::testing::settings();
        settings.listeners[0].tls = Some(Tls {
            certificates: Vec::new(),
            least_version: TlsVersion::Tls12,
            cipher_suites: Vec::new(),
            client_auth: ClientAuth::Off,
            client_authorities: Vec::new(),
            client_authorities_file: None,
            verify_depth: 1,
            session_lifetime_s,
            exports_certificate: false,
            key_log: None,
            directory: None,
        });
        settings
    }

    #[test]
    fn keys_are_renewed_after_their_period_which_is_no_shorter_than_a_session() {
        let mut tickets = TicketKeyRenewal::create(&settings(300), 1_000).expect("made").expect("there are sessions");
        let keys = TicketKeys::attach(tickets.ring().memory()).expect("attached");
        let first = keys.encrypting().expect("a key");
        assert_eq!(tickets.wake_ms(), 1_000 + PERIOD_MS);
        tickets.rotate_if_due(tickets.wake_ms() - 1);
        assert_eq!(keys.encrypting(), Some(first));
        tickets.rotate_if_due(tickets.wake_ms());
        assert_ne!(keys.encrypting(), Some(first));
        assert_eq!(keys.named(&first.name), Some(first), "tickets of the last period open still");
        let long = 7 * 24 * 3600;
        let tickets = TicketKeyRenewal::create(&settings(long), 0).expect("made").expect("there are sessions");
        assert_eq!(tickets.wake_ms(), u64::from(long) * 1000);
    }

    #[test]
    fn there_are_no_keys_where_no_session_is_resumed() {
        assert!(TicketKeyRenewal::create(&settings(0), 0).expect("made").is_none());
        assert!(TicketKeyRenewal::create(&crate::testing::settings(), 0).expect("made").is_none());
    }
}
