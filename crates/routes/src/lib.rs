//! uWSGI's internal routing: rules that answer, change or pass on a request before the application sees it, and change its answer
//! before it is sent. Rules are compiled once, and walked for each request.
//!
//! Must not know sockets or protocols: a request is anything that implements [`Values`]. The only files that it reads are those
//! that a rule names (`exists:`, the password file of `basicauth:`); the `files` room opens the files that a rule serves. The
//! process that reads the configuration compiles the rules to report mistakes; workers compile them to walk them.

mod access;
mod action;
mod cache_access;
mod cache_arguments;
mod cached_response;
mod caching;
mod client_limits;
mod compile;
mod compiler;
mod condition;
mod networks;
mod passwords;
mod path_expression;
mod pattern;
mod rate_limiting;
mod served;
mod service_access;
mod service_action;
mod status;
mod template;
#[cfg(test)]
#[path = "tests/testing.rs"]
mod testing;
mod values;
mod verdict;
mod visit;
mod walk;

pub use cache_access::{Cached, CachedForm, Caches, Change, Operator, Store, Write};
pub use cached_response::whole_response;
pub use client_limits::{ClientLimit, ClientLimits};
pub use compile::{Routes, Table};
pub use compiler::{Mistake, NeededLimit, Needs};
pub use networks::{Network, network_of};
pub use path_expression::PathExpression;
pub use pattern::{Pattern, for_lines, pattern};
pub use served::{Form, Page, Served};
pub use service_access::{MetricChange, Services};
pub use status::reason;
pub use values::{ServerValue, Values};
pub use verdict::{Answer, Overrides, Verdict};
