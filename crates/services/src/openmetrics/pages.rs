//! A page with all families, in each of its forms. It does not know families. The master and the emperor run it.

use super::source::SampleSource;
use super::text::PageForm;
use super::{protobuf, text};

/// Returns all families in a form.
pub fn page(source: &impl SampleSource, form: PageForm) -> Vec<u8> {
    match form {
        PageForm::Protobuf => protobuf::protobuf(source),
        form => text::text(source, form).into_bytes(),
    }
}
