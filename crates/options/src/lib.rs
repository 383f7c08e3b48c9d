//! The options: a row for each of uWSGI's and Bolide's own (`catalog`), the configuration that contains them (`reader`), and the
//! [`bolide_contract::settings::Settings`] that they make (`resolve`).
//!
//! `reader` puts pairs in uWSGI's order, applies those that take effect immediately, and fills in placeholders. `resolve`
//! converts them to typed settings, by the rows of the catalog. It must not know the command line or other servers. Runs in the
//! process that is started; it opens configuration files and nothing else.

pub mod address;
pub mod catalog;
pub mod compatibility;
pub mod configuration;
pub mod context;
pub mod descriptions;
pub mod development;
pub mod draft;
pub mod imports;
pub mod project;
pub mod reader;
pub mod renewal;
pub mod resolve;
pub mod row;
pub mod server;
pub mod start_words;
pub mod topics;
pub mod values;
