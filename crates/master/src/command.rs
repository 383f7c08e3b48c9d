//! Everything that can be asked of a running master, by a signal or in another way: one list, whoever asks. What each leads to is decided
//! in `obeying`. Pure data.

/// A request to the running master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// End when the requests in flight are answered; asked a second time: at once.
    Stop,
    /// End at once.
    StopNow,
    /// Let a new generation take over.
    Reload,
    /// The same, but requests in flight have no time: the old generation ends when the new one serves.
    ReloadBrutally,
    /// Replace each worker by a new one of the same generation.
    ReloadWorkers,
    /// The same, one after the other.
    /// Each loads the application anew where `lazy-apps` says so; one that can't ends the chain.
    ReloadChain,
    /// One worker more, up to `processes`.
    AddWorker,
    /// One worker less; the last one stays.
    RemoveWorker,
    /// Open files of logs anew: somebody has moved them away.
    ReopenLogs,
    /// Put files of logs aside and begin new ones.
    RotateLogs,
    /// Let another master, of the program that is installed by now, take our place.
    Upgrade,
    /// Write a line for each child to the log.
    Status,
}
