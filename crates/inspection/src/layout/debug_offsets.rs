//! `_Py_DebugOffsets`: from 3.13 on, `_PyRuntime` begins with the places of its own fields. The structure grows at each version,
//! so its fields are listed here for 3.13 and for 3.14. Pure.
//!
//! Both are tested with the interpreters themselves.

use super::tables::Layout;

/// The structure's first bytes.
pub const COOKIE: &[u8; 8] = b"xdebugpy";
/// Bytes of the structure that are read.
pub const BYTES: usize = 1024;

/// The fields after cookie, version and `free_threaded`, in words of 8 bytes. A name is read; `_` is not.
const WORDS_3_13: &str = "
    _ _ runtime_interpreters_head
    _ _ interpreter_next interpreter_threads_head interpreter_gc interpreter_modules _ _ interpreter_gil gil _ gil_locked \
    gil_holder
    _ _ thread_next _ thread_frame thread_id thread_native_id _ _
    _ frame_previous frame_code frame_instruction frame_locals frame_owner
    _ code_filename _ code_name code_lines code_first_line _ code_local_names _ code_bytes
    _ object_type
    _ type_name _ type_flags
    _ tuple_items variable_size
    _ list_items _
    _ dict_keys dict_values
    _ float_value
    _ long_size long_digits
    _ _ bytes_data
    _ unicode_state unicode_length unicode_ascii_data";
const WORDS_3_14: &str = "
    _ _ runtime_interpreters_head
    _ _ interpreter_next interpreter_threads_head _ _ interpreter_modules _ _ interpreter_gil gil _ gil_locked gil_holder _ _
    _ _ thread_next _ thread_frame thread_id thread_native_id _ _
    _ frame_previous frame_code frame_instruction frame_locals frame_owner _ _
    _ code_filename _ code_name code_lines code_first_line _ code_local_names _ code_bytes _
    _ object_type
    _ type_name _ type_flags
    _ tuple_items variable_size
    _ list_items _
    _ set_used set_table set_mask
    _ dict_keys dict_values
    _ float_value
    _ long_size long_digits
    _ _ bytes_data
    _ unicode_state unicode_length unicode_ascii_data
    _ _
    _ _ generator_frame generator_state";
/// Offset of the first of these words.
const FIRST_WORD: usize = 24;
/// An offset beyond this is not one: the structure is another one than described here. In bytes.
const MAX_OFFSET: u64 = 16 * 1024 * 1024;

/// The version that the structure states, as `(major, minor)`. `None`: the bytes are not the structure.
pub fn version_of(bytes: &[u8]) -> Option<(u32, u32)> {
    let version = word(bytes, 8).filter(|_| bytes.starts_with(COOKIE))? as u32;
    Some((version >> 24, version >> 16 & 0xff))
}

/// Returns whether the interpreter was built without the GIL: its objects are laid out differently.
pub fn is_free_threaded(bytes: &[u8]) -> bool {
    word(bytes, 16).is_some_and(|word| word != 0)
}

/// Replaces the offsets of `layout` by those of the process.
///
/// # Errors
/// The name of the first field that has no plausible offset.
pub fn complete(layout: Layout, bytes: &[u8]) -> Result<Layout, &'static str> {
    let mut layout = layout;
    let words = if layout.minor >= 14 { WORDS_3_14 } else { WORDS_3_13 };
    let (mut gil, mut locked, mut holder) = (0, 0, 0);
    for (number, name) in words.split_whitespace().enumerate().filter(|(_, name)| *name != "_") {
        let value = word(bytes, FIRST_WORD + number * 8).filter(|value| *value < MAX_OFFSET).ok_or(name)?;
        match name {
            "gil" => gil = value,
            "gil_locked" => locked = value,
            "gil_holder" => holder = value,
            _ => *layout.field(name).ok_or(name)? = value,
        }
    }
    // Both are stated from the start of the interpreter's state, and the GIL in use may be that of another interpreter.
    layout.gil_locked = locked.checked_sub(gil).ok_or("gil_locked")?;
    layout.gil_holder = holder.checked_sub(gil).ok_or("gil_holder")?;
    Ok(layout)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::of_minor;
    use super::*;

    /// The structure as a process would have it, with the table's own offsets.
    fn described(minor: u32, words: &str) -> Vec<u8> {
        let mut layout = of_minor(minor).expect("a table");
        let mut bytes = Vec::from(*COOKIE);
        bytes.extend((0x0300_00f0_u64 | u64::from(minor) << 16).to_ne_bytes());
        bytes.extend(0u64.to_ne_bytes());
        for name in words.split_whitespace() {
            let value = match name {
                "_" => 1,
                "gil" => 5000,
                "gil_locked" => 5000 + layout.gil_locked,
                "gil_holder" => 5000 + layout.gil_holder,
                name => *layout.field(name).expect("a field"),
            };
            bytes.extend(value.to_ne_bytes());
        }
        bytes.resize(BYTES, 0);
        bytes
    }

    #[test]
    fn a_process_describes_its_own_layout() {
        for (minor, words) in [(13, WORDS_3_13), (14, WORDS_3_14)] {
            let bytes = described(minor, words);
            let table = of_minor(minor).expect("a table");
            assert_eq!(version_of(&bytes), Some((3, minor)));
            assert!(!is_free_threaded(&bytes));
            let emptied = Layout { thread_frame: 0, gil_locked: 0, gil_holder: 0, code_lines: 0, ..table };
            assert_eq!(complete(emptied, &bytes), Ok(table));
        }
    }

    #[test]
    fn bytes_that_are_not_the_structure_are_refused() {
        assert_eq!(version_of(b"xdebugp"), None);
        assert_eq!(version_of(&[0; 64]), None);
        let mut bytes = described(13, WORDS_3_13);
        bytes[FIRST_WORD + 16..FIRST_WORD + 24].fill(0xff);
        assert_eq!(complete(of_minor(13).expect("a table"), &bytes), Err("runtime_interpreters_head"));
        assert!(complete(of_minor(13).expect("a table"), &bytes[..100]).is_err());
    }
}
