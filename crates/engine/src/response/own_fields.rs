//! Fields that an answer gets from the identity of its request, unless the application has set them itself. It does not know
//! about the log. Workers run it, if the settings ask for such fields.

use crate::response::Response;

impl Response {
    /// Sets the fields of this answer, before anything of it is there.
    pub(crate) fn set_own_fields(&mut self, fields: Vec<(&'static str, String)>) {
        self.own_fields = fields;
    }

    /// Adds the fields to the complete head.
    pub(crate) fn add_own_fields(&mut self) {
        for (name, value) in std::mem::take(&mut self.own_fields) {
            if self.head.value(name.as_bytes()).is_none() {
                self.head.add(name.as_bytes(), value.as_bytes());
            }
        }
    }
}
