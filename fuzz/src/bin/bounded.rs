//! Runs every fuzz target for a bounded time on stable Rust: `bounded --seconds 10`.
//!
//! There is no coverage to guide it: an input is kept, and mutated again, if its outcome is of a new kind. For each target it
//! prints how many inputs it tried. A broken invariant, a panic or an endless loop ends it with status 1. It then prints the
//! input in hexadecimal digits, which `--target NAME --input DIGITS` tries again.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bolide_fuzz::mutate::{Chance, mutated};
use bolide_fuzz::{Kind, TARGETS, Target};

const USAGE: &str = "usage: bounded [--seconds N] [--seed N] [--target NAME [--input HEX]]
    --seconds  how long each target runs (10)
    --seed     number that decides which inputs are made (1)
    --target   run this target only
    --input    try this input only, given as hexadecimal digits";

/// Inputs that are kept for mutation; beyond that a new one replaces an old one.
const MAX_CORPUS: usize = 4096;

/// Inputs tried between two looks at the clock.
const BATCH: u64 = 64;

/// An input that takes longer than this counts as endless, however slow the machine is.
const STUCK_SECONDS: u64 = 60;

struct Plan {
    seconds: u64,
    seed: u64,
    targets: Vec<&'static Target>,
    input: Option<Vec<u8>>,
}

/// The state that the watching thread reads from the trying one.
#[derive(Default)]
struct Watched {
    input: Mutex<Vec<u8>>,
    tried: AtomicU64,
}

struct Tally {
    tried: u64,
    kinds: usize,
}

struct Violation {
    message: String,
    input: Vec<u8>,
}

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    for target in plan.targets {
        let outcome = match &plan.input {
            Some(input) => check(target, input).map(|_| Tally { tried: 1, kinds: 1 }),
            None => watch(target, Duration::from_secs(plan.seconds), plan.seed),
        };
        match outcome {
            Ok(tally) => println!("{:16} {:10} inputs tried, {} kinds of outcome", target.name, tally.tried, tally.kinds),
            Err(violation) => {
                let digits: String = violation.input.iter().map(|byte| format!("{byte:02x}")).collect();
                println!("{}: {}", target.name, violation.message);
                println!("input: {}", violation.input.escape_ascii());
                println!("again: bounded --target {} --input {digits}", target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn plan(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan { seconds: 10, seed: 1, targets: TARGETS.iter().collect(), input: None };
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} has no value."))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} {value} is not a number."));
        match name.as_str() {
            "--seconds" => plan.seconds = number()?,
            "--seed" => plan.seed = number()?,
            "--target" => {
                let target = TARGETS.iter().find(|target| target.name == value);
                plan.targets = vec![target.ok_or(format!("There is no target {value}."))?];
            }
            "--input" => plan.input = Some(bytes_of(&value).ok_or(format!("{value} is not hexadecimal."))?),
            _ => return Err(format!("There is no option {name}.")),
        }
    }
    if plan.input.is_some() && plan.targets.len() != 1 {
        return Err("--input needs a --target.".to_owned());
    }
    Ok(plan)
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Tries inputs on another thread, so that an endless loop is detected too.
fn watch(target: &'static Target, length: Duration, seed: u64) -> Result<Tally, Violation> {
    let watched = Arc::new(Watched::default());
    let (sender, receiver) = channel();
    let trying = Arc::clone(&watched);
    thread::spawn(move || {
        // The receiver is gone only after an endless loop was reported.
        let _ = sender.send(try_inputs(target, length, seed, &trying));
    });
    let mut tried_before = u64::MAX;
    loop {
        let message = match receiver.recv_timeout(Duration::from_secs(STUCK_SECONDS)) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => {
                let tried = watched.tried.load(Relaxed);
                if std::mem::replace(&mut tried_before, tried) != tried {
                    continue;
                }
                format!("no end after {STUCK_SECONDS} seconds")
            }
            Err(RecvTimeoutError::Disconnected) => "the thread that tried it has died".to_owned(),
        };
        return Err(Violation { message, input: locked(&watched.input).clone() });
    }
}

fn try_inputs(target: &Target, length: Duration, seed: u64, watched: &Watched) -> Result<Tally, Violation> {
    let mut chance = Chance::new(seed);
    let mut corpus = (target.seeds)();
    let mut kinds: HashSet<Kind> = HashSet::new();
    let mut tried = 0;
    let mut attempt = |input: &[u8]| {
        let mut shown = locked(&watched.input);
        shown.clear();
        shown.extend_from_slice(input);
        drop(shown);
        let kind = check(target, input)?;
        watched.tried.fetch_add(1, Relaxed);
        Ok(kinds.insert(kind))
    };
    for input in &corpus {
        attempt(input)?;
        tried += 1;
    }
    let start = Instant::now();
    while start.elapsed() < length {
        for _ in 0..BATCH {
            let input = mutated(&mut chance, &corpus, target.words);
            tried += 1;
            if attempt(&input)? {
                if corpus.len() < MAX_CORPUS {
                    corpus.push(input);
                } else {
                    let place = chance.below(MAX_CORPUS);
                    corpus[place] = input;
                }
            }
        }
    }
    Ok(Tally { tried, kinds: kinds.len() })
}

fn check(target: &Target, input: &[u8]) -> Result<Kind, Violation> {
    let violation = |message| Violation { message, input: input.to_vec() };
    match catch_unwind(|| (target.check)(input)) {
        Ok(outcome) => outcome.map_err(violation),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
            Err(violation(format!("panic: {}", text.unwrap_or("of an unknown kind"))))
        }
    }
}

fn locked(input: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}
