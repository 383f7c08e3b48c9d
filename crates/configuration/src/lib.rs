//! uWSGI's configuration language, below the options: the sources of pairs (files, environment), placeholders and conditions,
//! where a pair was written and who may change that place, and the messages about it.
//!
//! It must not know any option. Runs in the process that is started; it opens configuration files and nothing else.

pub mod bounded;
pub mod certificates;
pub mod conditionals;
pub mod diagnostic;
pub mod documentation;
pub mod dotenv;
pub mod expand;
pub mod host_info;
pub mod instance_commands;
pub mod known_files;
pub mod launcher;
pub mod pair;
pub mod pem;
pub mod sources;
pub mod suggest;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trust;
pub mod values;
pub mod words;
