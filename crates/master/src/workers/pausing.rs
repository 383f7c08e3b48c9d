//! A pause: workers finish the requests in flight and begin none. Clients wait. Workers that are forked in the meantime are
//! paused too. A pause ends by a command, when a requested reload has succeeded, and with the instance. It does not know the
//! source of the command. The master runs it.

use bolide_supervision::log_sink;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::text::workers_in_words;

use crate::children::Children;
use crate::generations::generation::Generation;
use crate::workers::scaling::Scaling;

/// Begins a pause, unless there is one already.
pub fn pause(by: &str, children: &mut Children, notifier: &Notifier) {
    if !children.pause(true) {
        return log_sink::line(&format!("{by}: it is already paused"));
    }
    let pid = std::process::id();
    log_sink::line(&format!(
        "paused ({by}): new requests wait until `bolide resume {pid}`, or SIGTSTP again (Ctrl-Z in its \
            terminal)"
    ));
    notifier.status("paused: new requests wait");
}

/// Ends a pause. Returns whether there was one.
pub fn resume(
    by: &str,
    children: &mut Children,
    scaling: &mut Scaling,
    serving: Option<&Generation>,
    notifier: &Notifier,
    now_ms: u64,
) -> bool {
    if !children.pause(false) {
        return false;
    }
    // Clients could not send requests, so the time of the pause does not count as idle.
    scaling.wake_up(now_ms);
    log_sink::line(&format!("resumed ({by}): requests start again"));
    if let Some(serving) = serving {
        let workers = workers_in_words(serving.wanted_count());
        notifier.status(&format!("{workers} of generation {}", serving.number));
    }
    true
}
