//! The invariants for all inputs, as functions, which both the libFuzzer targets in `fuzz_targets/` and the bounded runner on
//! stable Rust (`src/bin/bounded.rs`) call.
//!
//! A new target is a module here with a `TARGET`, a row in [`TARGETS`], a file in `fuzz_targets/` that begins with the invariant
//! and calls the module, and its `[[bin]]` in Cargo.toml. A test checks that none of the four is missing.
//!
//! `cargo run --release --bin bounded -- --seconds 10` runs all targets for ten seconds each. `cargo +nightly fuzz run http1_head
//! --features libfuzzer` uses coverage to guide the search, and needs nightly, `cargo-fuzz` and a C++ compiler. The feature also
//! builds on stable, but libFuzzer then does not get coverage and finds little: the bounded runner is meant for stable.

use std::hash::{DefaultHasher, Hash, Hasher};

#[path = "../../crates/protocol/tests/cases/mod.rs"]
mod cases;
pub mod cgi_head;
pub mod connection;
pub mod connection_queue;
pub mod fastcgi;
pub mod forwarded;
pub mod http1_chunked;
pub mod http1_head;
pub mod http1_response;
pub mod http2;
pub mod mutate;
pub mod options_parsers;
pub mod proxy_header;
pub mod redis_answer;
pub mod routes;
pub mod scgi;
pub mod session;
#[path = "../../crates/spool/tests/cases/mod.rs"]
mod spool_cases;
pub mod spool_job;
pub mod target_decode;
pub mod tls;
pub mod uwsgi_packet;
mod variables;
pub mod websocket;
pub mod websocket_offer;

/// All targets, in the order in which the bounded runner runs them.
pub const TARGETS: &[Target] = &[
    http1_head::TARGET,
    http1_chunked::TARGET,
    http1_response::TARGET,
    uwsgi_packet::TARGET,
    cgi_head::TARGET,
    scgi::TARGET,
    fastcgi::TARGET,
    session::TARGET,
    spool_job::TARGET,
    redis_answer::TARGET,
    http2::TARGET,
    proxy_header::TARGET,
    forwarded::TARGET,
    target_decode::TARGET,
    options_parsers::TARGET,
    routes::TARGET,
    websocket::TARGET,
    websocket_offer::TARGET,
    connection::TARGET,
    connection_queue::TARGET,
    tls::TARGET,
];

/// One codec under test.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Returns the kind of the outcome, or the broken invariant. An input with a new kind of outcome is worth mutating again,
    /// which is all the guidance that the bounded runner has.
    pub check: fn(&[u8]) -> Result<Kind, String>,
    /// The initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that a random search would take long to find.
    pub words: &'static [&'static [u8]],
}

impl Target {
    /// For libFuzzer.
    ///
    /// If the invariant does not hold: that is how libFuzzer detects it.
    /// When the invariant does not hold: that is how libFuzzer is told.
    pub fn assert_holds(&self, input: &[u8]) {
        if let Err(violation) = (self.check)(input) {
            panic!("{}: {violation}", self.name);
        }
    }
}

/// The kind of an outcome, as a hash of the facts that distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(u64);

impl Kind {
    pub fn of(facts: impl Hash) -> Kind {
        let mut hasher = DefaultHasher::new();
        facts.hash(&mut hasher);
        Kind(hasher.finish())
    }
}

/// Checks an invariant. The message is formatted only if it is broken.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_target_has_its_file_its_invariant_and_its_binary() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz_targets");
        let manifest = include_str!("../Cargo.toml");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the directory of targets")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .collect();
        files.sort();
        let mut expected: Vec<String> = TARGETS.iter().map(|target| format!("{}.rs", target.name)).collect();
        expected.sort();
        assert_eq!(files, expected);
        for target in TARGETS {
            let text = std::fs::read_to_string(format!("{directory}/{}.rs", target.name)).expect("a target");
            assert!(text.starts_with("// Invariant: "), "{}", target.name);
            assert!(text.contains(&format!("bolide_fuzz::{}::TARGET.assert_holds", target.name)), "{}", target.name);
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)), "{}", target.name);
        }
    }

    #[test]
    fn test_the_invariants_hold_for_every_seed() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(seeds.len() > 20, "{} has few seeds", target.name);
            for seed in seeds {
                if let Err(violation) = (target.check)(&seed) {
                    panic!("{}: {violation}: {}", target.name, seed.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn test_seeds_have_outcomes_of_many_kinds() {
        for target in TARGETS {
            let kinds: std::collections::HashSet<Kind> =
                (target.seeds)().iter().filter_map(|seed| (target.check)(seed).ok()).collect();
            assert!(kinds.len() >= 5, "{}: {} kinds", target.name, kinds.len());
        }
    }
}
