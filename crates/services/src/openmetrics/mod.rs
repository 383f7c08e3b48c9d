//! The numbers of an instance for Prometheus. Each family of series is a row of a table: its name, its kind, its help and the
//! function that makes its samples. The forms of the text and the table of the documentation are made from the rows. It knows
//! neither processes nor sockets. The master runs it.

mod families;
mod of_exporter;
mod protobuf;
mod table;
mod text;

pub use crate::family::Facts;
pub use text::PageForm;

/// Returns all families in a form.
pub fn page(facts: &Facts, form: PageForm) -> Vec<u8> {
    match form {
        PageForm::Protobuf => protobuf::protobuf(facts),
        form => text::text(facts, form).into_bytes(),
    }
}
