//! The table of a language whose applications get the variables of CGI: names and values, in their order. It is the smallest
//! thing that the engine can set them in. The threads of a test worker run it.

use std::collections::BTreeMap;

use bolide_engine::request::Request;
use bolide_engine::request::variables::{OwnVariable, Variables};

#[derive(Debug, Clone, Default)]
pub struct Table {
    values: BTreeMap<String, Vec<u8>>,
}

impl Table {
    /// The variables that all requests of a listener have.
    pub fn of_listener() -> Table {
        let mut table = Table::default();
        table.set_scheme(false);
        table.set(OwnVariable::ServerName, b"here");
        table.set(OwnVariable::ServerPort, b"80");
        table
    }

    /// All variables of a request of which no header block is kept.
    pub fn of<Memo>(request: &mut Request<'_, Memo>) -> Table {
        let mut table = Table::of_listener();
        let of_block = request.set_connection_variables(&mut table);
        request.set_variables(&mut table, of_block);
        table
    }

    /// `NAME=VALUE`, one a line, sorted by name.
    pub fn lines(&self) -> Vec<u8> {
        self.values.iter().flat_map(|(name, value)| [name.as_bytes(), b"=", value, b"\n"].concat()).collect()
    }
}

impl Variables for Table {
    fn set(&mut self, name: OwnVariable, value: &[u8]) {
        self.set_named(name.name().as_bytes(), value);
    }

    fn set_named(&mut self, name: &[u8], value: &[u8]) {
        self.values.insert(String::from_utf8_lossy(name).into_owned(), value.to_vec());
    }

    fn add_field(&mut self, name: &[u8], value: &[u8], joint: &'static [u8]) {
        let name = String::from_utf8_lossy(name).to_uppercase().replace('-', "_");
        let is_bare = matches!(name.as_str(), "CONTENT_TYPE" | "CONTENT_LENGTH");
        let name = if is_bare { name } else { format!("HTTP_{name}") };
        match self.values.get_mut(&name) {
            Some(before) => before.extend([joint, value].concat()),
            None => self.set_named(name.as_bytes(), value),
        }
    }

    fn remove(&mut self, name: OwnVariable) {
        self.values.remove(name.name());
    }

    fn set_scheme(&mut self, is_https: bool) {
        self.set_named(b"scheme", if is_https { b"https" } else { b"http" });
    }

    fn set_identifier(&mut self, id: &[u8]) {
        self.set_named(b"identifier", id);
    }

    fn length_of(&self, name: OwnVariable) -> u32 {
        self.values.get(name.name()).map_or(0, |value| value.len() as u32)
    }
}
