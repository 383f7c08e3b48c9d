//! Which request a stack serves, where no thread is said to serve it: tasks of asyncio and greenlets. An application is called
//! with the request's `environ` or `scope`, so a function of the stack has it among its local variables. Pure.

use crate::codes::Code;
use crate::memory::{Memory, Read, Unreadable};
use crate::objects::Objects;

/// Names under which applications and frameworks keep it.
const NAMES: [&str; 3] = ["environ", "env", "scope"];
/// Local variables of a function that are looked at by their names.
const MAX_NAMES: u64 = 64;
/// Without such a name: the arguments of the outermost function.
const ARGUMENTS: u64 = 2;
/// A path, in characters.
const MAX_PATH: usize = 1_000;
/// Entries of a `scope`, and of an `environ` with its headers.
const MAX_ENTRIES: usize = 1_000;
/// The place of a cell's value, after its head.
const CELL_VALUE: u64 = 16;

/// Finds requests among the objects of a process.
#[derive(Debug)]
pub struct Requests<'a, 'b, M>(pub &'a Objects<'b, M>);

impl<M: Memory> Requests<'_, '_, M> {
    /// The numbers of a function's local variables that may be the request's.
    pub fn places(&self, code: u64) -> Vec<u64> {
        let names = self.0.memory.pointer(code.wrapping_add(self.0.layout.code_local_names));
        let names = names.and_then(|names| self.0.tuple(names, MAX_NAMES)).unwrap_or_default();
        let is_one = |name: u64| self.0.text(name).is_ok_and(|name| NAMES.contains(&name.as_str()));
        (0..).zip(names).filter(|(_, name)| is_one(*name)).map(|(place, _)| place).collect()
    }

    /// The request of a frame, `GET /orders/17`, by the names of its variables.
    pub fn of_frame(&self, frame: u64, code: &Code) -> Option<String> {
        code.request_places.iter().find_map(|place| self.at(frame, *place).ok())
    }

    /// The request of the outermost frame, by its arguments.
    pub fn of_arguments(&self, frame: u64) -> Option<String> {
        (0..ARGUMENTS).find_map(|place| self.at(frame, place).ok())
    }

    fn at(&self, frame: u64, place: u64) -> Read<String> {
        let value = self.0.memory.pointer(frame.wrapping_add(self.0.layout.frame_locals + place * 8))?;
        match self.0.type_name(value)?.as_str() {
            "cell" => self.of(self.0.memory.pointer(value.wrapping_add(CELL_VALUE))?),
            _ => self.of(value),
        }
    }

    /// The request of an `environ` or a `scope`.
    fn of(&self, dict: u64) -> Read<String> {
        let (mut method, mut prefix, mut path, mut kind) = (None, None, None, None);
        for (key, value) in self.0.entries(dict)?.into_iter().take(MAX_ENTRIES) {
            let Ok(key) = self.0.text(key) else { continue };
            let place = match key.as_str() {
                "REQUEST_METHOD" | "method" => &mut method,
                "SCRIPT_NAME" => &mut prefix,
                "PATH_INFO" | "path" => &mut path,
                "type" => &mut kind,
                _ => continue,
            };
            *place = self.0.text(value).ok();
        }
        let method = match (method, kind.as_deref()) {
            (Some(method), _) => method,
            (None, Some("websocket")) => "GET".to_owned(),
            (None, _) => return Err(Unreadable::Nothing),
        };
        let path = path.ok_or(Unreadable::Nothing)?;
        let whole = prefix.unwrap_or_default() + &path;
        let path: String = of_latin_1(&whole).unwrap_or(whole).chars().take(MAX_PATH).collect();
        Ok(format!("{method} {path}"))
    }
}

/// WSGI has bytes of UTF-8 as characters.
fn of_latin_1(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_wsgi_is_read_as_utf_8() {
        assert_eq!(of_latin_1("/caf\u{c3}\u{a9}").as_deref(), Some("/café"));
        assert_eq!(of_latin_1("/café"), None);
        assert_eq!(of_latin_1("/привет"), None);
    }
}
