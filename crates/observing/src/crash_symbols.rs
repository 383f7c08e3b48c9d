//! The function at an offset of a native module's file: the symbol whose bytes contain it, in the tables of an ELF file. The
//! command-line process runs it, on files that may have changed since: a wrong file leads to a wrong name at most.

use std::path::Path;

use crate::regular_file;

/// Bytes of a module that are read; the tables of larger ones are left out.
const MAX_MODULE_BYTES: u64 = 512 * 1024 * 1024;
const SYMBOL_TABLE: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const LOADED: u32 = 1;
const SYMBOL_BYTES: usize = 24;
/// The low bits of a symbol's kind: a function.
const FUNCTION: u8 = 2;

/// Returns `name+0x15` for an offset in the file. `None` if it is not a 64-bit ELF file, or if no function is there.
pub fn symbol_at(path: &Path, offset: u64) -> Option<String> {
    find(&regular_file::read(path, MAX_MODULE_BYTES).ok()?, offset)
}

fn find(bytes: &[u8], offset: u64) -> Option<String> {
    // 64 bits, little-endian: elf(5).
    (bytes.get(..6)? == b"\x7fELF\x02\x01").then_some(())?;
    let address = address_of(bytes, offset)?;
    let (sections, size, count) = (number(bytes, 40, 8)?, number(bytes, 58, 2)?, number(bytes, 60, 2)?);
    let section = |index: u64| Some(sections.checked_add(index.checked_mul(size)?)? as usize);
    let mut best: Option<(u64, usize)> = None;
    for index in 0..count {
        let head = section(index)?;
        let kind = number(bytes, head + 4, 4)? as u32;
        if kind != SYMBOL_TABLE && kind != DYNAMIC_SYMBOLS {
            continue;
        }
        let (begin, length) = (number(bytes, head + 24, 8)? as usize, number(bytes, head + 32, 8)? as usize);
        let names = number(bytes, section(number(bytes, head + 40, 4)?)? + 24, 8)? as usize;
        let table = bytes.get(begin..begin.checked_add(length)?)?;
        for symbol in table.chunks_exact(SYMBOL_BYTES) {
            let (value, size) = (number(symbol, 8, 8)?, number(symbol, 16, 8)?);
            // Libraries without their own symbols have only the exported ones: another function may lie behind the nearest.
            let is_within = value <= address && address - value < size;
            if symbol[4] & 0xf == FUNCTION && is_within && best.is_none_or(|(found, _)| value > found) {
                best = Some((value, names.checked_add(number(symbol, 0, 4)? as usize)?));
            }
        }
    }
    let (value, name) = best?;
    let name = bytes.get(name..)?.split(|byte| *byte == 0).next()?;
    let name: String = String::from_utf8_lossy(name).chars().filter(|character| !character.is_control()).collect();
    Some(format!("{name}+{:#x}", address - value))
}

/// The address of an offset of the file, as symbols have it: by the parts of the file that are loaded.
fn address_of(bytes: &[u8], offset: u64) -> Option<u64> {
    let (heads, size, count) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    (0..count).find_map(|index| {
        let head = heads.checked_add(index * size)? as usize;
        let (kind, from) = (number(bytes, head, 4)? as u32, number(bytes, head + 8, 8)?);
        let (address, length) = (number(bytes, head + 16, 8)?, number(bytes, head + 32, 8)?);
        let is_inside = kind == LOADED && offset >= from && offset - from < length;
        if is_inside { address.checked_add(offset - from) } else { None }
    })
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let found = bytes.get(at..at.checked_add(length)?)?;
    Some(found.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_are_found_and_broken_files_are_none() {
        let own = std::env::current_exe().expect("known");
        let bytes = std::fs::read(&own).expect("read");
        let entry = number(&bytes, 24, 8).expect("an entry");
        // Code of a position-independent program is at its address's distance from its file's begin, or near it.
        let found = (0..0x4000).step_by(0x1000).find_map(|shift| find(&bytes, entry - shift));
        assert!(found.is_some());
        for length in [0, 5, 64, 200] {
            assert_eq!(find(&bytes[..length], entry), None, "{length}");
        }
        let mut broken = bytes[..4096].to_vec();
        broken[40..48].fill(0xff);
        broken[32..40].fill(0xff);
        assert_eq!(find(&broken, entry), None);
    }
}
