//! A pause: workers finish what is in flight and begin nothing; who connects or asks waits. Whoever is forked meanwhile is paused too. It ends
//! by a command, when a reload that somebody asked for has succeeded, and with the instance. The master runs it.

use bolide_supervision::logs::log_sink;
use bolide_supervision::sockets::service_manager::Notifier;
use bolide_supervision::text::workers_in_words;

use crate::children::Children;
use crate::generations::generation::Generation;
use crate::workers::scaling::Scaling;

/// Time until a worker whose socket was full is told again, in milliseconds.
const RETRY_MS: u64 = 100;

/// Takes no request from here on. An instance that is paused stays so.
pub fn pause(by: &str, children: &mut Children, notifier: &Notifier) {
    if !children.pause(true) {
        return log_sink::line(&format!("{by}: it is already paused"));
    }
    let pid = std::process::id();
    log_sink::line(&format!(
        "paused ({by}): no request starts, and clients wait until `bolide resume {pid}`, or SIGTSTP again (Ctrl-Z in its \
            terminal)"
    ));
    notifier.status("paused: no request starts");
}

/// Takes requests again. Gives whether it was paused.
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
    // Nobody could ask for anything: that time is not one in which nobody wanted to.
    scaling.wake_up(now_ms);
    log_sink::line(&format!("resumed ({by}): requests start again"));
    if let Some(serving) = serving {
        let workers = workers_in_words(serving.wanted_count());
        notifier.status(&format!("{workers} of generation {}", serving.number));
    }
    true
}

/// When workers that could not be told are told again.
pub fn wake_ms(children: &Children, now_ms: u64) -> Option<u64> {
    let is_paused = children.is_paused();
    children.iter().any(|child| child.lacks_pause(is_paused)).then_some(now_ms + RETRY_MS)
}
