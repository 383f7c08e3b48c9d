//! The numbers of an instance for Prometheus. Each family of series is a row of a table: its name, its kind, its help and the
//! function that makes its samples. The forms of the text and the table of the documentation are made from the rows. It knows
//! neither processes nor sockets. The master runs it.

mod collected;
mod families;
mod of_emperor;
mod of_exporter;
mod pages;
mod protobuf;
mod source;
mod table;
mod text;

pub use crate::family::{Facts, VassalFacts};
pub use collected::Collected;
pub use pages::{page, page_of_sites};
pub use text::PageForm;
