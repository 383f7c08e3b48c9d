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
    /// Take no request, until told to go on.
    Pause,
    /// Take requests again.
    Resume,
    /// Pause, or go on where there is a pause.
    TogglePause,
    /// Open files of logs anew: somebody has moved them away.
    ReopenLogs,
    /// Put files of logs aside and begin new ones.
    RotateLogs,
    /// Let another master, of the program that is installed by now, take our place.
    Upgrade,
    /// Write a line for each child to the log.
    Status,
    /// Write the pidfiles anew.
    WritePidfiles,
    /// Do the hook of a file that has changed (`hook-touch`, `touch-exec`), by its number.
    Hook(u32),
}

impl Command {
    /// What is done then, in words for the log and for who asks.
    pub fn words(self) -> &'static str {
        match self {
            Command::Stop => "it stops when its requests are answered",
            Command::StopNow => "it stops at once",
            Command::Reload => "it reloads",
            Command::ReloadBrutally => "it reloads, and requests in flight have no time",
            Command::ReloadWorkers => "its workers are replaced",
            Command::ReloadChain => "its workers are replaced one after the other",
            Command::AddWorker => "it has one worker more, up to `processes`",
            Command::RemoveWorker => "it has one worker less",
            Command::Pause => "it is paused: no request is taken until it is resumed",
            Command::Resume => "it takes requests again",
            Command::TogglePause => "a pause begins, or ends",
            Command::ReopenLogs => "its log files are opened anew",
            Command::RotateLogs => "its log files are put aside, and begun anew",
            Command::Upgrade => "another master takes its place",
            Command::Status => "its state is in the log",
            Command::Hook(_) => "its hook is done",
            Command::WritePidfiles => "its pidfiles are written anew",
        }
    }

    /// An instance that ends may still be asked for this.
    pub fn ends(self) -> bool {
        matches!(self, Command::Stop | Command::StopNow | Command::Status)
    }

    /// Two of them ask for more than one, or for nothing.
    pub fn adds_up(self) -> bool {
        matches!(self, Command::AddWorker | Command::RemoveWorker | Command::TogglePause)
    }

    /// A new generation loads the code as it is now.
    pub fn is_reload(self) -> bool {
        matches!(self, Command::Reload | Command::ReloadBrutally)
    }

    /// It succeeds or fails some time later, and who waits is told then.
    pub fn has_outcome(self) -> bool {
        matches!(self, Command::Reload | Command::ReloadBrutally | Command::Upgrade)
    }
}
