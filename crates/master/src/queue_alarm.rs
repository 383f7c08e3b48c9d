//! A look at the listen queues each second, as uWSGI has it: one that is full is counted, and told once a minute. It decides nothing. The
//! master runs it.

use std::os::fd::AsFd;

use crate::listen_queue::{ListenQueue, QueueWatch};
use crate::listeners::Listeners;

/// Time between two looks, in milliseconds.
const LOOK_MS: u64 = 1000;
/// Time between two lines about a full queue, in milliseconds.
const TOLD_MS: u64 = 60_000;

/// The listen queues of the instance, as of the last look.
#[derive(Debug, Default)]
pub struct QueueAlarm {
    watch: QueueWatch,
    queues: Vec<ListenQueue>,
    errors: u64,
    next_ms: u64,
    told_ms: Option<u64>,
}

impl QueueAlarm {
    /// Those of all sockets, in the order of the settings.
    pub fn queues(&self) -> &[ListenQueue] {
        &self.queues
    }

    /// How often one was full when it was looked at.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// When to look again.
    pub fn wake_ms(&self) -> u64 {
        self.next_ms
    }

    /// Looks without counting: somebody asks.
    pub fn refresh(&mut self, listeners: &Listeners) {
        let sockets = listeners.sockets();
        self.queues = (0..listeners.endpoints().len())
            .map(|number| sockets.get(number).map_or(ListenQueue::default(), |socket| self.watch.look(socket.as_fd())))
            .collect();
    }

    /// Looks if it is time. Gives the line to write, if there is one.
    pub fn look(&mut self, listeners: &Listeners, now_ms: u64) -> Option<String> {
        if now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + LOOK_MS;
        self.refresh(listeners);
        let full = self.queues.iter().zip(listeners.endpoints()).filter(|(queue, _)| queue.is_full());
        let full: Vec<(&ListenQueue, String)> = full.map(|(queue, endpoint)| (queue, endpoint.bound.clone())).collect();
        self.errors += full.len() as u64;
        let (queue, bound) = full.first()?;
        if self.told_ms.is_some_and(|told| now_ms < told.saturating_add(TOLD_MS)) {
            return None;
        }
        self.told_ms = Some(now_ms);
        Some(format!(
            "listen queue of socket \"{bound}\" full ({}/{}): further clients are kept waiting or turned away, for there are more than the \
             workers can take; more of them (processes, threads) take more, a longer queue (listen, net.core.somaxconn) bridges a burst",
            queue.length, queue.most
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_full_queue_is_counted_each_second_and_told_once_a_minute() {
        let mut settings = crate::testing::settings();
        settings.listeners[0].backlog = 1;
        let listeners = Listeners::bind(&settings.listeners, Vec::new(), None).expect("bound");
        let mut alarm = QueueAlarm::default();
        assert_eq!(alarm.look(&listeners, 5_000), None);
        let address = listeners.endpoints()[0].bound.clone();
        let _waiting = [TcpStream::connect(&address), TcpStream::connect(&address)].map(|stream| stream.expect("connected"));
        // A client is connected when it is answered, and in the queue when its own acknowledgement has come.
        while alarm.queues().iter().all(|queue| queue.length < 2) {
            alarm.refresh(&listeners);
        }
        assert_eq!((alarm.look(&listeners, 5_500), alarm.errors()), (None, 0));
        let line = alarm.look(&listeners, 6_000).expect("it is full");
        assert!(line.starts_with(&format!("listen queue of socket \"{address}\" full (2/1): ")), "{line}");
        assert_eq!((alarm.look(&listeners, 7_000), alarm.errors()), (None, 2));
        assert!(alarm.look(&listeners, 66_000).is_some());
        assert_eq!((alarm.queues().len(), alarm.wake_ms()), (1, 67_000));
    }
}
