//! Counts lines that this process drops, in memory that all processes of the instance share. It must not know lines. Every
//! process runs it.

use std::sync::OnceLock;

use bolide_scoreboard::log_losses::LogLosses;

/// Not set in a process that does not belong to an instance, such as that of a command.
static SHARED: OnceLock<LogLosses> = OnceLock::new();

/// Counts in this memory from now on. Lines that were lost before are in no count.
pub fn share(losses: LogLosses) {
    SHARED.get_or_init(|| losses);
}

/// Whether there is a count, from which the master says how many lines were lost.
pub fn are_shared() -> bool {
    SHARED.get().is_some()
}

/// Counts lines that the log with this number has lost.
pub fn count(number: usize, lines: u64) {
    if let Some(shared) = SHARED.get().filter(|_| lines > 0) {
        shared.count(number, lines);
    }
}

/// The lines that the log with this number has lost in all processes.
pub fn of(number: usize) -> u64 {
    SHARED.get().map_or(0, |shared| shared.of(number))
}
