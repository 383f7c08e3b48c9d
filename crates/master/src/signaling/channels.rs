//! The ways of signals to the processes of a generation: for a pool a pipe that its members share, of which the first that is
//! free reads a byte, and for a single process orders, of which those that it has not begun go to its replacement. It decides no
//! target. The master runs it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use bolide_contract::children::Task;
use bolide_contract::message::{self, Order};
use bolide_contract::settings::Settings;
use bolide_contract::uwsgi_signals::{MAX_PENDING, Pool};
use bolide_scoreboard::Scoreboard;
use bolide_supervision::processes::process_attributes::with_descriptors_in_flight;
use nix::fcntl::OFlag;

use crate::children::Children;
use crate::children::child::{Child, Role, State};

/// A single process: a worker or a helper by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recipient {
    Worker(u32),
    Helper(u32),
}

/// The channels of a generation.
#[derive(Debug, Default)]
pub struct Channels {
    pools: BTreeMap<Pool, PoolPipe>,
    queues: BTreeMap<Recipient, Waiting>,
}

#[derive(Debug)]
struct PoolPipe {
    take: OwnedFd,
    put: OwnedFd,
    /// The children that have the pipe.
    members: BTreeSet<u64>,
}

/// The signals that a process has not begun to handle.
#[derive(Debug, Default)]
struct Waiting {
    waiting: VecDeque<u8>,
    /// The child that the first of them were sent to, how many these are, and how many it had begun before.
    sent_to: Option<u64>,
    sent: usize,
    begun: u32,
}

impl Channels {
    /// Puts a signal into a pool. Returns false if it is full: the signal is dropped.
    pub fn put_into_pool(&mut self, pool: Pool, number: u8, generation: u32, children: &Children, settings: &Settings) -> bool {
        if let Entry::Vacant(vacant) = self.pools.entry(pool) {
            let Ok((take, put)) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK) else { return false };
            vacant.insert(PoolPipe { take, put, members: BTreeSet::new() });
            self.admit_members(generation, children, settings);
        }
        let Some(pipe) = self.pools.get(&pool) else { return false };
        pipe.waiting() < MAX_PENDING && nix::unistd::write(&pipe.put, &[number]) == Ok(1)
    }

    /// Puts a signal into the queue of one process. Returns false if it is full: the signal is dropped.
    pub fn put_into_queue(&mut self, recipient: Recipient, number: u8, generation: u32, children: &Children) -> bool {
        let queue = self.queues.entry(recipient).or_default();
        queue.settle(children);
        let has_room = queue.waiting.len() < MAX_PENDING as usize;
        if has_room {
            queue.waiting.push_back(number);
            queue.send(recipient, generation, children);
        }
        has_room
    }

    /// Sends what waits to processes that have been started since, and gives them the pipes of their pools.
    pub fn advance(&mut self, generation: u32, children: &Children, settings: &Settings) {
        self.admit_members(generation, children, settings);
        for (recipient, queue) in &mut self.queues {
            queue.settle(children);
            queue.send(*recipient, generation, children);
        }
    }

    /// A child exits. The signals that it has not begun are for its replacement.
    pub fn note_end(&mut self, child: &Child, scoreboard: &Scoreboard) {
        for pool in self.pools.values_mut() {
            pool.members.remove(&child.id);
        }
        for queue in self.queues.values_mut().filter(|queue| queue.sent_to == Some(child.id)) {
            queue.settle_with(child, scoreboard);
            (queue.sent_to, queue.sent) = (None, 0);
        }
    }

    /// Takes the signals out that no process has begun to handle, for another generation.
    pub fn take_waiting(&mut self) -> Vec<u8> {
        let mut waiting = Vec::new();
        for pool in self.pools.values() {
            let mut bytes = [0; MAX_PENDING as usize];
            let count = nix::unistd::read(&pool.take, &mut bytes).unwrap_or(0);
            waiting.extend_from_slice(&bytes[..count]);
        }
        for queue in self.queues.values_mut() {
            waiting.extend(queue.waiting.drain(queue.sent.min(queue.waiting.len())..));
        }
        waiting
    }

    /// How many signals wait altogether.
    pub fn waiting(&self) -> u32 {
        let queues = self.queues.values().map(|queue| queue.waiting.len() as u32);
        self.pools.values().map(PoolPipe::waiting).chain(queues).sum()
    }

    /// How many signals wait in a pool.
    pub fn waiting_in_pool(&self, pool: Pool) -> u32 {
        self.pools.get(&pool).map_or(0, PoolPipe::waiting)
    }

    /// How many signals wait for one process.
    pub fn waiting_for(&self, recipient: Recipient) -> u32 {
        self.queues.get(&recipient).map_or(0, |queue| queue.waiting.len() as u32)
    }

    fn admit_members(&mut self, generation: u32, children: &Children, settings: &Settings) {
        for (pool, pipe) in &mut self.pools {
            for child in children.iter() {
                if child.generation != generation || pipe.members.contains(&child.id) || !is_member(child, *pool, settings) {
                    continue;
                }
                let Some(channel) = child.channel.as_ref().filter(|_| child.state.is_active()) else { continue };
                // If the child has exited, its end is reported; if its socket is full, a later turn tries again.
                let order = Order::JoinPool { pool: *pool };
                let send = || message::send(channel.as_fd(), &order, Some(pipe.take.as_raw_fd()));
                if with_descriptors_in_flight(send).is_ok() {
                    pipe.members.insert(child.id);
                    children.wake_helper(child);
                }
            }
        }
    }
}

impl PoolPipe {
    /// Bytes in the pipe: a process that is free takes them immediately.
    fn waiting(&self) -> u32 {
        rustix::io::ioctl_fionread(&self.take).map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

impl Waiting {
    /// Removes the signals that their process has begun to handle.
    fn settle(&mut self, children: &Children) {
        if let Some(child) = self.sent_to.and_then(|id| children.find(id)) {
            self.settle_with(child, children.scoreboard());
        }
    }

    fn settle_with(&mut self, child: &Child, scoreboard: &Scoreboard) {
        let Some(row) = child.row().and_then(|row| scoreboard.row(row)) else { return };
        let begun = row.signals_taken.load(Relaxed);
        // The process writes the number, which may be any.
        let count = (begun.wrapping_sub(self.begun) as usize).min(self.sent);
        self.waiting.drain(..count.min(self.waiting.len()));
        (self.sent, self.begun) = (self.sent - count, begun);
    }

    fn send(&mut self, recipient: Recipient, generation: u32, children: &Children) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(child) = chosen(recipient, generation, children, self.sent_to) else { return };
        if self.sent_to != Some(child.id) {
            (self.sent_to, self.sent, self.begun) = (Some(child.id), 0, 0);
        }
        let Some(channel) = &child.channel else { return };
        while let Some(number) = self.waiting.get(self.sent) {
            // If the child has exited, its end is reported; if its socket is full, a later turn tries again.
            if message::send(channel.as_fd(), &Order::Signal { number: *number }, None).is_err() {
                break;
            }
            self.sent += 1;
            children.wake_helper(child);
        }
    }
}

/// Returns the process of this number: the one that has signals already, as long as it works, or else the latest.
fn chosen(recipient: Recipient, generation: u32, children: &Children, before: Option<u64>) -> Option<&Child> {
    let is_meant = |child: &&Child| {
        child.generation == generation
            && child.state.is_active()
            && match (recipient, child.role) {
                (Recipient::Worker(wanted), Role::Worker { number, .. }) => wanted == number,
                (Recipient::Helper(wanted), Role::Helper { number, .. }) => wanted == number,
                _ => false,
            }
    };
    let rank = |child: &&Child| (Some(child.id) == before && child.state != State::Worn, child.state.is_serving(), child.id);
    children.iter().filter(is_meant).max_by_key(rank)
}

/// Whether a child takes signals from this pool.
fn is_member(child: &Child, pool: Pool, settings: &Settings) -> bool {
    let task = child.helper.as_ref().map(|helper| &helper.task);
    match (pool, task) {
        // The script of `pyrun` is the only worker if nothing listens.
        (Pool::Workers, Some(Task::Script { .. })) => settings.listeners.is_empty(),
        (Pool::Workers, _) => child.is_request_worker(),
        (Pool::Mules, Some(Task::Mule { .. })) | (Pool::Spoolers, Some(Task::Spooler { .. })) => true,
        (Pool::Farm(farm), Some(Task::Mule { number, .. })) => is_in_farm(*number, farm, settings),
        _ => false,
    }
}

/// Whether a mule is in the farm of this number.
fn is_in_farm(mule: u32, farm: u32, settings: &Settings) -> bool {
    settings.mules.farms.get(farm as usize - 1).is_some_and(|farm| farm.mules.contains(&mule))
}
