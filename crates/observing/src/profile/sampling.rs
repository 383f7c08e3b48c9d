//! Takes the samples of an instance: which processes it has, asked once a second, and what their threads do at each moment, read
//! from their memory. The requests in flight are read from the scoreboard, so the master is not asked for them. The command-line
//! process runs it.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use bolide_inspection::memory::Unreadable;
use bolide_inspection::python::NoPython;
use bolide_inspection::trace::{Reader, Sample};
use bolide_scoreboard::Scoreboard;
use bolide_services::route_names::route_name;
use serde_json::{Value, json};

use crate::access::Access;
use crate::instances::{Refusal, ask_about};
use crate::profile::samples::{NO_REQUEST, Samples};

/// Which samples count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only threads that hold the GIL.
    pub gil: bool,
    /// Also threads that wait without a request.
    pub idle: bool,
}

/// A process of the instance.
struct Process {
    name: String,
    row: Option<u32>,
    reader: Reader,
    /// Names of threads by their ident.
    names: HashMap<u64, String>,
}

/// An instance that is sampled.
pub struct Sampling {
    instance: Option<String>,
    access: Access,
    processes: HashMap<i32, Process>,
    /// Processes that can't be read, with the reason.
    unreadable: HashMap<i32, String>,
    scoreboard: Option<Scoreboard>,
    pub samples: Samples,
}

impl Sampling {
    /// Finds the instance and opens its processes.
    ///
    /// # Errors
    /// There is no such instance.
    pub fn of(instance: Option<&str>) -> Result<(i32, Sampling), Refusal> {
        let (master, answer) = ask_about(instance, &json!({"ask": "trace"}))?;
        // From now on by its pid: another instance may start in this directory.
        let instance = master.to_string();
        let mut sampling = Sampling {
            access: Access::to(Some(&instance)),
            instance: Some(instance),
            processes: HashMap::new(),
            unreadable: HashMap::new(),
            scoreboard: scoreboard(master, &answer["scoreboard"]),
            samples: Samples::default(),
        };
        sampling.adopt(&answer);
        Ok((master, sampling))
    }

    /// Whether the requests in flight are known.
    pub fn knows_requests(&self) -> bool {
        self.scoreboard.is_some()
    }

    /// The number of processes that are read.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Why a process can't be read, if there is one.
    pub fn trouble(&self) -> Option<&str> {
        self.unreadable.values().next().map(String::as_str)
    }

    /// Follows the instance: processes that are new, and names of threads.
    pub fn refresh(&mut self) {
        // After a change of the user the master refuses to answer; the processes stay as they are.
        if let Ok((_, answer)) = ask_about(self.instance.as_deref(), &json!({"ask": "trace"})) {
            self.adopt(&answer);
        }
        for process in self.processes.values_mut() {
            process.names = process.reader.thread_names().into_iter().collect();
        }
    }

    fn adopt(&mut self, answer: &Value) {
        for entry in answer["processes"].as_array().into_iter().flatten() {
            let Some(pid) = entry["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()) else { continue };
            if self.processes.contains_key(&pid) || self.unreadable.contains_key(&pid) {
                continue;
            }
            match self.access.open(pid) {
                Ok(reader) => {
                    let name = entry["name"].as_str().unwrap_or("process").to_owned();
                    let row = entry["row"].as_u64().and_then(|row| u32::try_from(row).ok());
                    let names = reader.thread_names().into_iter().collect();
                    self.processes.insert(pid, Process { name, row, reader, names });
                }
                Err(why) => drop(self.unreadable.insert(pid, why)),
            }
        }
    }

    /// Takes one sample of each thread.
    pub fn take(&mut self, choice: Choice) {
        let mut lost = Vec::new();
        for (pid, process) in &self.processes {
            let in_flight = self.scoreboard.zip(process.row).map(|(board, row)| board.in_flight(row)).unwrap_or_default();
            let request = |sample: &Sample| in_flight.iter().find(|request| request.thread == sample.id && sample.id != 0);
            let is_wanted = |sample: &Sample| {
                let is_busy = sample.is_running || sample.holds_gil || request(sample).is_some();
                if choice.gil { sample.holds_gil } else { choice.idle || is_busy }
            };
            match process.reader.sample(is_wanted, |sample| request(sample).is_none()) {
                Ok(found) => {
                    for sample in found.iter().filter(|sample| !sample.stack.frames.is_empty()) {
                        // A thread of an event loop serves the request of the task or greenlet that runs on it now.
                        let request = request(sample).map(|request| &request.text).or(sample.stack.request.as_ref());
                        let route = request.map_or(NO_REQUEST.to_owned(), |request| route(request));
                        let thread = process.names.get(&sample.ident).map_or("another thread", String::as_str);
                        let thread = format!("{}, {thread}", process.name);
                        self.samples.add(&thread, &route, &sample.stack, sample.is_running);
                    }
                }
                // Another reader may have the permission now: it is asked for again with the next list of processes.
                Err(NoPython::Unreadable(Unreadable::Ended | Unreadable::Forbidden)) => lost.push(*pid),
                // Changed while it was read: the next sample may succeed.
                Err(_) => self.samples.left_out += 1,
            }
        }
        for pid in lost {
            self.processes.remove(&pid);
            self.access.renew();
        }
    }
}

/// Maps the scoreboard of the master, `None` if that is not possible, or if its program has another layout.
fn scoreboard(master: i32, place: &Value) -> Option<Scoreboard> {
    let number = |key: &str| place[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let (descriptor, rows, slots) = (number("descriptor")?, number("rows")?, number("slots")?);
    if place["bytes"].as_u64() != Some(Scoreboard::bytes(rows, slots) as u64) {
        return None;
    }
    let file = File::open(format!("/proc/{master}/fd/{descriptor}")).ok()?;
    Scoreboard::watch(&OwnedFd::from(file), rows, slots).ok()
}

/// `GET /orders/:id` for `GET /orders/17?page=2`.
fn route(request: &str) -> String {
    match request.split_once(' ') {
        Some((method, target)) => format!("{method} {}", route_name(target)),
        None => route_name(request),
    }
}
