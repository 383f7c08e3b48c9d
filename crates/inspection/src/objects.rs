//! Objects of Python as they lie in memory: strings, the names of types, dictionaries, and short descriptions of values. No code
//! of the process is called, so `repr` is not: an object without a simple value is described by its type. Pure.

use crate::codes::Codes;
use crate::layout::Layout;
use crate::memory::{Memory, Read, Unreadable, is_plausible};

/// A name of a type, in bytes.
const MAX_TYPE_NAME_BYTES: u64 = 128;
/// Characters of a string that are read.
pub const MAX_TEXT: u64 = 4096;
/// Entries of a dictionary, items of a list that are read.
pub const MAX_ENTRIES: u64 = 100_000;

/// Flags of types (Include/object.h): the type is derived from the built-in one.
const IS_LONG: u64 = 1 << 24;
const IS_LIST: u64 = 1 << 25;
const IS_TUPLE: u64 = 1 << 26;
const IS_BYTES: u64 = 1 << 27;
const IS_TEXT: u64 = 1 << 28;
const IS_DICT: u64 = 1 << 29;
const IS_TYPE: u64 = 1 << 31;
const HAS_INLINE_VALUES: u64 = 1 << 2;
const HAS_MANAGED_DICT: u64 = 1 << 4;
/// The place of a cell's value, after its head.
const CELL_VALUE: u64 = 16;
const IS_HEAP_TYPE: u64 = 1 << 9;

/// What is needed to read objects: the memory and the places of the fields.
#[derive(Debug)]
pub struct Objects<'a, M> {
    pub memory: &'a M,
    pub layout: &'a Layout,
    pub codes: &'a Codes,
}

impl<M> Clone for Objects<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Objects<'_, M> {}

impl<M: Memory> Objects<'_, M> {
    pub fn type_of(&self, object: u64) -> Read<u64> {
        self.memory.pointer(object.wrapping_add(self.layout.object_type))
    }

    fn flags_of(&self, object: u64) -> Read<u64> {
        self.memory.word(self.type_of(object)?.wrapping_add(self.layout.type_flags))
    }

    /// The name of an object's type: `coroutine`, `_asyncio.Task`.
    pub fn type_name(&self, object: u64) -> Read<String> {
        self.name_of_type(self.type_of(object)?)
    }

    pub fn name_of_type(&self, kind: u64) -> Read<String> {
        let name = self.memory.word(kind.wrapping_add(self.layout.type_name))?;
        self.memory.c_string(name, MAX_TYPE_NAME_BYTES)
    }

    /// The text of a `str`, at most [`MAX_TEXT`] characters of it.
    pub fn text(&self, object: u64) -> Read<String> {
        if self.flags_of(object)? & IS_TEXT == 0 {
            return Err(Unreadable::Nothing);
        }
        self.text_unchecked(object)
    }

    fn text_unchecked(&self, object: u64) -> Read<String> {
        let layout = self.layout;
        let length = self.memory.word(object.wrapping_add(layout.unicode_length))?.min(MAX_TEXT);
        let state = self.memory.number(object.wrapping_add(layout.unicode_state))?;
        let (kind, is_compact, is_ascii) = (state >> 2 & 0b111, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        let data = match (is_compact, is_ascii) {
            (true, true) => object.wrapping_add(layout.unicode_ascii_data),
            (true, false) => object.wrapping_add(layout.unicode_compact_data),
            (false, _) => self.memory.word(object.wrapping_add(layout.unicode_compact_data))?,
        };
        let bytes = self.memory.bytes(data, length.saturating_mul(u64::from(kind)))?;
        let characters = |size: usize| {
            bytes.chunks_exact(size).map(move |unit| {
                let mut word = [0; 4];
                word[..size].copy_from_slice(unit);
                char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER)
            })
        };
        match kind {
            1 | 2 | 4 => Ok(characters(kind as usize).collect()),
            _ => Err(Unreadable::Nothing),
        }
    }

    /// The bytes of a `bytes`, at most `most` of them.
    pub fn bytes(&self, object: u64, most: u64) -> Read<Vec<u8>> {
        if self.flags_of(object)? & IS_BYTES == 0 {
            return Err(Unreadable::Nothing);
        }
        let length = self.memory.word(object.wrapping_add(self.layout.variable_size))?;
        self.memory.bytes(object.wrapping_add(self.layout.bytes_data), length.min(most))
    }

    /// The addresses of the items of a tuple, at most `most` of them.
    pub fn tuple(&self, object: u64, most: u64) -> Read<Vec<u64>> {
        if self.flags_of(object)? & IS_TUPLE == 0 {
            return Err(Unreadable::Nothing);
        }
        let length = self.memory.word(object.wrapping_add(self.layout.variable_size))?.min(most);
        let first = object.wrapping_add(self.layout.tuple_items);
        (0..length).map(|number| self.memory.word(first.wrapping_add(number * 8))).collect()
    }

    /// Returns whether the object is a dictionary.
    pub fn is_dict(&self, object: u64) -> bool {
        self.flags_of(object).is_ok_and(|flags| flags & IS_DICT != 0)
    }

    /// The entries of a dictionary, as addresses of keys and values.
    ///
    /// # Errors
    /// It is none, or changes in the meantime.
    pub fn entries(&self, dict: u64) -> Read<Vec<(u64, u64)>> {
        if !self.is_dict(dict) {
            return Err(Unreadable::Nothing);
        }
        let keys = self.memory.pointer(dict.wrapping_add(self.layout.dict_keys))?;
        let values = self.memory.word(dict.wrapping_add(self.layout.dict_values))?;
        let first = values.wrapping_add(self.layout.values_first);
        self.entries_of(keys, (values != 0).then_some(first))
    }

    /// The entries of a table of keys, with the values in the table or, if they are split, from `values` on.
    fn entries_of(&self, keys: u64, values: Option<u64>) -> Read<Vec<(u64, u64)>> {
        let layout = self.layout;
        let (index_bytes, entry_words) = if layout.minor >= 11 {
            let log_bytes = self.memory.byte(keys.wrapping_add(layout.keys_size))?;
            let is_general = self.memory.byte(keys.wrapping_add(layout.keys_kind))? == 0;
            (1u64.checked_shl(u32::from(log_bytes)).ok_or(Unreadable::Nothing)?, if is_general { 3 } else { 2 })
        } else {
            let size = self.memory.word(keys.wrapping_add(layout.keys_size))?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                _ => 4,
            };
            (size.saturating_mul(width), 3)
        };
        let number = self.memory.word(keys.wrapping_add(layout.keys_entries))?.min(MAX_ENTRIES);
        let first = keys.wrapping_add(layout.keys_indices).wrapping_add(index_bytes);
        let mut entries = Vec::new();
        for place in 0..number {
            let entry = first.wrapping_add(place * entry_words * 8);
            let key = entry.wrapping_add((entry_words - 2) * 8);
            let value = values.map_or(key.wrapping_add(8), |values| values.wrapping_add(place * 8));
            let (key, value) = (self.memory.word(key)?, self.memory.word(value)?);
            // Entries that were deleted have none.
            if is_plausible(key) && is_plausible(value) {
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    /// The value of a key of text.
    pub fn item(&self, dict: u64, key: &str) -> Read<u64> {
        self.find(self.entries(dict)?, key)
    }

    fn find(&self, entries: Vec<(u64, u64)>, key: &str) -> Read<u64> {
        let is_it = |found: u64| self.has_text(found, key);
        entries.into_iter().find(|(found, _)| is_it(*found)).map(|(_, value)| value).ok_or(Unreadable::Nothing)
    }

    fn has_text(&self, object: u64, text: &str) -> bool {
        // The length first: most keys of a large dictionary have another one.
        self.memory.word(object.wrapping_add(self.layout.unicode_length)) == Ok(text.chars().count() as u64)
            && self.text(object).is_ok_and(|found| found == text)
    }

    /// The value of an attribute of an instance, wherever its version keeps instances' dictionaries.
    pub fn attribute(&self, object: u64, name: &str) -> Read<u64> {
        self.find(self.attributes(object)?, name)
    }

    fn attributes(&self, object: u64) -> Read<Vec<(u64, u64)>> {
        let kind = self.type_of(object)?;
        let flags = self.memory.word(kind.wrapping_add(self.layout.type_flags))?;
        if flags & HAS_MANAGED_DICT == 0 || self.layout.minor < 11 {
            let offset = self.memory.word(kind.wrapping_add(self.layout.type_dict_offset))? as i64;
            if offset <= 0 {
                return Err(Unreadable::Nothing);
            }
            return self.entries(self.memory.pointer(object.wrapping_add(offset as u64))?);
        }
        let of_values = |values: u64| {
            if flags & IS_HEAP_TYPE == 0 {
                return Err(Unreadable::Nothing);
            }
            let keys = self.memory.pointer(kind.wrapping_add(self.layout.type_cached_keys))?;
            self.entries_of(keys, Some(values.wrapping_add(self.layout.values_first)))
        };
        let dict = self.memory.word(object.wrapping_sub(3 * 8))?;
        match self.layout.minor {
            11 => match self.memory.word(object.wrapping_sub(4 * 8))? {
                0 => self.entries(dict),
                values => of_values(values),
            },
            12 if dict & 1 == 1 => of_values(dict + 1),
            12 => self.entries(dict),
            _ if dict == 0 && flags & HAS_INLINE_VALUES != 0 => {
                let size = self.memory.word(kind.wrapping_add(self.layout.type_basic_size))?;
                of_values(object.wrapping_add(size))
            }
            _ => self.entries(dict),
        }
    }

    /// The value of an `int` that fits into 60 bits.
    pub fn integer(&self, object: u64) -> Read<i64> {
        if self.flags_of(object)? & IS_LONG == 0 {
            return Err(Unreadable::Nothing);
        }
        let size = self.memory.word(object.wrapping_add(self.layout.long_size))?;
        let (digits, is_negative) = if self.layout.minor >= 12 {
            (size >> 3, size & 0b11 == 2)
        } else {
            ((size as i64).unsigned_abs(), (size as i64) < 0)
        };
        let mut value = 0i64;
        for place in 0..digits {
            if digits > 2 {
                return Err(Unreadable::TooMuch);
            }
            let digit = self.memory.number(object.wrapping_add(self.layout.long_digits + place * 4))?;
            value |= i64::from(digit & 0x3fff_ffff) << (30 * place);
        }
        Ok(if is_negative { -value } else { value })
    }

    /// The addresses of the members of a `set`.
    pub fn members(&self, set: u64) -> Read<Vec<u64>> {
        let layout = self.layout;
        let size = self.memory.word(set.wrapping_add(layout.set_mask))?.wrapping_add(1).min(MAX_ENTRIES);
        let table = self.memory.pointer(set.wrapping_add(layout.set_table))?;
        let mut members = Vec::new();
        for place in 0..size {
            let key = self.memory.word(table.wrapping_add(place * 16))?;
            let hash = self.memory.word(table.wrapping_add(place * 16 + 8))?;
            // A deleted member leaves a dummy with the hash -1.
            if is_plausible(key) && hash != u64::MAX {
                members.push(key);
            }
        }
        Ok(members)
    }

    /// A short description of a value: `'abc'`, `42`, `[3 items]`, `<Order at 0x7f…>`.
    pub fn describe(&self, object: u64, most: usize) -> String {
        self.described(object, most).unwrap_or_else(|_| "<unreadable>".to_owned())
    }

    fn described(&self, object: u64, most: usize) -> Read<String> {
        let flags = self.flags_of(object)?;
        let name = self.type_name(object)?;
        let size = || self.memory.word(object.wrapping_add(self.layout.variable_size));
        let is_exactly = |built_in: &str| name == built_in;
        Ok(match name.as_str() {
            // A variable that an inner function shares.
            "cell" => match self.memory.word(object.wrapping_add(CELL_VALUE))? {
                0 => "<unset>".to_owned(),
                value if self.type_name(value)? == "cell" => "<cell>".to_owned(),
                value => self.described(value, most)?,
            },
            "NoneType" => "None".to_owned(),
            "bool" => if self.integer(object)? == 0 { "False" } else { "True" }.to_owned(),
            "float" => format!("{:?}", f64::from_ne_bytes(self.memory.array(object.wrapping_add(self.layout.float_value))?)),
            _ if flags & IS_LONG != 0 => {
                self.integer(object).map_or_else(|_| format!("<{name}, long>"), |value| value.to_string())
            }
            _ if flags & IS_TEXT != 0 => shortened(&format!("{:?}", self.text(object)?), most),
            _ if flags & IS_BYTES != 0 => {
                let bytes = self.bytes(object, most as u64)?;
                shortened(&format!("b\"{}\"", bytes.escape_ascii()), most)
            }
            _ if flags & IS_LIST != 0 && is_exactly("list") => format!("[{} items]", size()?),
            _ if flags & IS_TUPLE != 0 && is_exactly("tuple") => format!("({} items)", size()?),
            _ if flags & IS_DICT != 0 => {
                let used = self.memory.word(object.wrapping_add(self.layout.dict_used))?;
                if is_exactly("dict") { format!("{{{used} items}}") } else { format!("<{name} with {used} items>") }
            }
            _ if flags & IS_TYPE != 0 => format!("<class {}>", self.name_of_type(object)?),
            _ => format!("<{name} at {object:#x}>"),
        })
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most).chain(['…']).collect()
}
