//! The socket that a function waits for, if its variables have it: a `socket`, gevent's socket, or an object with a transport of
//! asyncio, such as a `StreamReader`. Pure.
//!
//! Such objects have the socket in places that differ by version, so it is looked for: it is the object of a type that is derived
//! from `_socket.socket`. Whatever is found must have a small number as its descriptor.

use crate::memory::{Memory, Read, Unreadable, is_plausible};
use crate::objects::Objects;

/// Variables that hold what a function waits for.
const VARIABLES: [&str; 2] = ["self", "sock"];
/// Variables of a function, and words of an object, that are looked at; classes between a class and the base of all.
const MAX_VARIABLES: u64 = 64;
const MAX_WORDS: u64 = 40;
const MAX_BASES: u32 = 16;
const BASE_NAME: &str = "_socket.socket";
/// The descriptor is the first field of the structure of such an object.
const DESCRIPTOR: u64 = 16;
const MAX_DESCRIPTOR: i32 = 1 << 24;
/// Tags in the low bits of a reference (3.14).
const TAGS: u64 = 0b111;

/// Finds sockets among the objects of a process.
pub struct Sockets<'a, 'b, M>(pub &'a Objects<'b, M>);

impl<M: Memory> Sockets<'_, '_, M> {
    /// The descriptor of the socket that the function of this frame has at hand.
    pub fn descriptor_of(&self, frame: u64) -> Option<i32> {
        let code = self.0.memory.word(frame.wrapping_add(self.0.layout.frame_code)).ok()? & !TAGS;
        let names = self.0.memory.pointer(code.wrapping_add(self.0.layout.code_local_names)).ok()?;
        let first = frame.wrapping_add(self.0.layout.frame_locals);
        for (place, name) in (0u64..).zip(self.0.tuple(names, MAX_VARIABLES).ok()?) {
            if self.0.text(name).is_ok_and(|name| VARIABLES.contains(&name.as_str())) {
                let value = self.0.memory.word(first.wrapping_add(place * 8)).ok()? & !TAGS;
                if is_plausible(value)
                    && let Ok(descriptor) = self.descriptor_in(value)
                {
                    return Some(descriptor);
                }
            }
        }
        None
    }

    fn descriptor_in(&self, object: u64) -> Read<i32> {
        if self.is_socket(object) {
            return self.descriptor(object);
        }
        if let Ok(transport) = self.0.attribute(object, "_transport") {
            let descriptor = self.0.integer(self.0.attribute(transport, "_sock_fd")?)?;
            return i32::try_from(descriptor).map_err(|_| Unreadable::Nothing);
        }
        let bytes = self.0.memory.word(self.0.type_of(object)?.wrapping_add(self.0.layout.type_basic_size))?;
        let words = (2..(bytes / 8).min(MAX_WORDS)).map(|word| self.0.memory.word(object.wrapping_add(word * 8)));
        let held = words.flatten().find(|word| is_plausible(*word) && self.is_socket(*word));
        self.descriptor(held.ok_or(Unreadable::Nothing)?)
    }

    fn descriptor(&self, socket: u64) -> Read<i32> {
        let descriptor = self.0.memory.number(socket.wrapping_add(DESCRIPTOR))?.cast_signed();
        if (0..MAX_DESCRIPTOR).contains(&descriptor) { Ok(descriptor) } else { Err(Unreadable::Nothing) }
    }

    fn is_socket(&self, object: u64) -> bool {
        let Ok(mut kind) = self.0.type_of(object) else { return false };
        for _ in 0..MAX_BASES {
            if !is_plausible(kind) {
                return false;
            }
            if self.0.name_of_type(kind).is_ok_and(|name| name == BASE_NAME) {
                return true;
            }
            let Ok(base) = self.0.memory.word(kind.wrapping_add(self.0.layout.type_base)) else { return false };
            kind = base;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;
    use crate::memory::Pieces;
    use crate::python::Python;

    #[test]
    fn a_socket_is_found_by_its_type_in_the_object_that_holds_it() {
        let python = Python::at(layout::of_minor(11).expect("a table"), 0x10_0000);
        let layout = python.layout;
        let (base, derived, holding, plain) = (0x20_0000, 0x30_0000, 0x40_0000, 0x50_0000);
        let mut memory = Pieces::default();
        memory.structure(base, &[(layout.type_name, 0x60_0000)]);
        memory.structure(derived, &[(layout.type_name, 0x61_0000), (layout.type_base, base)]);
        memory.structure(holding, &[(layout.type_name, 0x62_0000), (layout.type_basic_size, 40), (layout.type_flags, 0)]);
        memory.structure(plain, &[(layout.type_name, 0x63_0000), (layout.type_basic_size, 40), (layout.type_flags, 0)]);
        let names = ["_socket.socket\0", "_wrefsocket\0", "gevent.socket\0", "object\0"];
        for (place, name) in [0x60_0000, 0x61_0000, 0x62_0000, 0x63_0000].into_iter().zip(names) {
            memory.put(place, name.as_bytes());
        }
        let (socket, holder, other, broken) = (0x70_0000, 0x71_0000, 0x72_0000, 0x73_0000);
        memory.structure(socket, &[(layout.object_type, derived), (DESCRIPTOR, 7)]);
        memory.structure(holder, &[(layout.object_type, holding), (16, 3), (24, other), (32, socket)]);
        memory.structure(other, &[(layout.object_type, plain), (16, 0), (24, other), (32, 0)]);
        memory.structure(broken, &[(layout.object_type, base), (DESCRIPTOR, 0xffff_ffff)]);
        let objects = python.objects(&memory);
        let sockets = Sockets(&objects);
        assert_eq!([socket, holder].map(|object| sockets.descriptor_in(object)), [Ok(7), Ok(7)]);
        assert!([other, broken, 0x99_0000].iter().all(|object| sockets.descriptor_in(*object).is_err()));
    }
}
