//! The reload that was requested while a generation was starting. It follows that generation, so that requests which come faster
//! than the application loads do not keep each other from serving. It knows times, and no generation. The master runs it.

use bolide_services::reloads::ReloadCause;

/// A generation for which another one waits may take this many times as long as the last one took.
const PATIENCE_TIMES: u64 = 3;
/// The least time that it may take, in milliseconds.
const MIN_PATIENCE_MS: u64 = 5_000;
/// The time doubles with each generation that was abandoned for this reason, so that one of them serves, at most this often.
const MAX_DOUBLINGS: u32 = 8;

/// A reload that waits for a generation that is starting.
#[derive(Debug)]
pub struct WaitingReload {
    /// What asked for it last.
    pub by: String,
    pub cause: ReloadCause,
}

/// The reload that waits, of which there is at most one.
#[derive(Debug, Default)]
pub struct Following {
    waiting: Option<WaitingReload>,
    /// How many generations in a row were abandoned because they took too long for the one that waited.
    abandoned: u32,
}

/// Returns [`MIN_PATIENCE_MS`], or the time of a test.
fn patience_least_ms() -> u64 {
    let given = std::env::var("BOLIDE_TEST_LOAD_PATIENCE_MS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(MIN_PATIENCE_MS)
}

impl Following {
    /// Lets a reload wait. Returns whether it is the first.
    pub fn wait(&mut self, by: &str, cause: ReloadCause) -> bool {
        self.waiting.replace(WaitingReload { by: by.to_owned(), cause }).is_none()
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Returns when a generation that began at `began_ms` is abandoned for the reload that waits.
    pub fn late_ms(&self, began_ms: u64, last_took_ms: u64) -> Option<u64> {
        self.waiting.as_ref()?;
        let usual_ms = last_took_ms.saturating_mul(PATIENCE_TIMES).max(patience_least_ms());
        let doubled_ms = usual_ms.saturating_mul(1 << self.abandoned.min(MAX_DOUBLINGS));
        Some(began_ms.saturating_add(doubled_ms))
    }

    /// Takes the reload: the generation before it has ended its start, or is late.
    pub fn take(&mut self, is_late: bool) -> Option<WaitingReload> {
        let waiting = self.waiting.take()?;
        self.abandoned = if is_late { self.abandoned + 1 } else { 0 };
        Some(waiting)
    }
}
