//! What was sampled: each distinct frame, stack, thread and route once, and the samples as numbers of them. Bounded, and it says
//! how much was left out. Pure.

use std::collections::HashMap;
use std::hash::Hash;

use bolide_inspection::frames::{Frame, Stack};

use crate::server_frames::ServerFrames;

/// Samples of a profile, in memory of 16 bytes each.
const MAX_SAMPLES: usize = 4_000_000;
/// Distinct stacks.
const MAX_STACKS: usize = 200_000;

/// The route of samples without a request.
pub const NO_REQUEST: &str = "no request";

/// A list without repetitions.
#[derive(Debug)]
pub struct Distinct<Item> {
    items: Vec<Item>,
    numbers: HashMap<Item, u32>,
}

impl<Item> Default for Distinct<Item> {
    fn default() -> Self {
        Distinct { items: Vec::new(), numbers: HashMap::new() }
    }
}

impl<Item: Clone + Eq + Hash> Distinct<Item> {
    fn number(&mut self, item: Item) -> u32 {
        let next = self.items.len() as u32;
        *self.numbers.entry(item).or_insert_with_key(|item| {
            self.items.push(item.clone());
            next
        })
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }
}

/// A thread at one moment, by numbers in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub thread: u32,
    pub route: u32,
    pub stack: u32,
    pub is_running: bool,
}

/// All samples.
#[derive(Debug, Default)]
pub struct Samples {
    pub frames: Distinct<Frame>,
    /// Numbers of frames, from the outermost one inwards.
    pub stacks: Distinct<Vec<u32>>,
    pub threads: Distinct<String>,
    pub routes: Distinct<String>,
    pub taken: Vec<Taken>,
    /// Samples that had no room.
    pub left_out: u64,
    /// Samples whose stack changed while it was read: they have the inner part of it.
    pub partial: u64,
}

impl Samples {
    /// Adds a thread's sample.
    pub fn add(&mut self, thread: &str, route: &str, stack: &Stack, is_running: bool) {
        let numbers: Vec<u32> = stack.frames.iter().rev().map(|frame| self.frames.number(frame.clone())).collect();
        let is_full = self.taken.len() >= MAX_SAMPLES || self.stacks.items.len() >= MAX_STACKS;
        if is_full {
            self.left_out += 1;
            return;
        }
        self.partial += u64::from(stack.is_partial);
        let (thread, route) = (self.threads.number(thread.to_owned()), self.routes.number(route.to_owned()));
        self.taken.push(Taken { thread, route, stack: self.stacks.number(numbers), is_running });
    }

    /// Removes the server's own functions in front of the application, so that equal calls of several threads are one.
    pub fn cut_server(&mut self) {
        let file = |frame: &u32| self.frames.items[*frame as usize].file.as_str();
        let server = ServerFrames::of(self.stacks.items.iter().filter_map(|stack| stack.first()).map(file));
        let mut cut = Distinct::default();
        let numbers: Vec<u32> =
            self.stacks.items.iter().map(|stack| cut.number(stack[server.leading(stack.iter().map(file))..].to_vec())).collect();
        self.taken.iter_mut().for_each(|sample| sample.stack = numbers[sample.stack as usize]);
        self.stacks = cut;
    }

    /// The routes with their numbers of samples, and of those whose thread ran; the largest first.
    pub fn shares(&self) -> Vec<(&str, u64, u64)> {
        let mut counts = vec![(0u64, 0u64); self.routes.items.len()];
        for sample in &self.taken {
            let (all, running) = &mut counts[sample.route as usize];
            *all += 1;
            *running += u64::from(sample.is_running);
        }
        let named = self.routes.items.iter().zip(counts);
        let mut shares: Vec<_> = named.map(|(name, (all, running))| (name.as_str(), all, running)).collect();
        shares.sort_by_key(|(name, all, _)| (std::cmp::Reverse(*all), *name));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_calls_of_two_threads_are_one_without_the_servers_functions() {
        let frame = |file: &str| Frame { file: file.into(), line: 1, function: "f".into(), locals: Vec::new() };
        let stack = |files: [&str; 3]| Stack { frames: files.map(frame).to_vec(), ..Stack::default() };
        let mut samples = Samples::default();
        samples.add("main", "GET /", &stack(["/srv/app.py", "/env/bolide/prototype.py", "/env/bolide/prototype.py"]), true);
        samples.add("thread", "GET /", &stack(["/srv/app.py", "/env/bolide/threads.py", "/usr/lib/threading.py"]), true);
        samples.cut_server();
        assert_eq!(samples.stacks.items().len(), 1);
        assert_eq!(samples.taken[0].stack, samples.taken[1].stack);
        assert_eq!(samples.frames.items()[samples.stacks.items()[0][0] as usize].file, "/srv/app.py");
    }

    #[test]
    fn equal_stacks_are_kept_once_and_shares_are_of_routes() {
        let frame = |function: &str| Frame { file: "a.py".into(), line: 1, function: function.into(), locals: Vec::new() };
        let stack = Stack { frames: vec![frame("inner"), frame("outer")], ..Stack::default() };
        let mut samples = Samples::default();
        samples.add("worker 1", "GET /", &stack, true);
        samples.add("worker 1", "GET /", &stack, false);
        samples.add("worker 2", NO_REQUEST, &stack, true);
        assert_eq!((samples.frames.items().len(), samples.stacks.items().len(), samples.taken.len()), (2, 1, 3));
        assert_eq!(samples.shares(), [("GET /", 2, 1), (NO_REQUEST, 1, 1)]);
        // The outermost frame comes first.
        assert_eq!(samples.frames.items()[samples.stacks.items()[0][0] as usize].function, "outer");
    }
}
