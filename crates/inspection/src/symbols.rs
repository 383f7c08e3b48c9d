//! Symbols that a program or a library exports, from the parts of the ELF file that are in memory: so the file itself need not be
//! readable, and may have been replaced or deleted since. Pure.

use crate::memory::{Memory, Read, Unreadable};

const MAX_PROGRAM_HEADERS: u16 = 64;
const MAX_DYNAMIC_ENTRIES: u64 = 128;
/// Entries of one chain of the hash table that are looked at.
const MAX_CHAIN: u64 = 4096;
const SYMBOL_BYTES: u64 = 24;
/// Where tables of a process may be.
const PLACES: std::ops::Range<u64> = 0x1000..1 << 56;

const TYPE_DYNAMIC: u32 = 2;
const TYPE_LOAD: u32 = 1;
const TAG_STRINGS: u64 = 5;
const TAG_SYMBOLS: u64 = 6;
const TAG_GNU_HASH: u64 = 0x6fff_fef5;
const TAG_HASH: u64 = 4;

/// The symbols of one file.
#[derive(Debug, Clone, Copy)]
pub struct Symbols {
    /// The difference between an address in the file and in memory.
    base: u64,
    strings: u64,
    symbols: u64,
    hash: Hash,
}

#[derive(Debug, Clone, Copy)]
enum Hash {
    Gnu(u64),
    SystemV(u64),
}

impl Symbols {
    /// Finds the symbols of the file that is mapped from `start` on.
    ///
    /// # Errors
    /// It is not an ELF file of 64 bits, or exports nothing.
    pub fn of_file(memory: &impl Memory, start: u64) -> Read<Symbols> {
        if memory.array::<5>(start)? != *b"\x7fELF\x02" {
            return Err(Unreadable::Nothing);
        }
        let headers = start.wrapping_add(memory.word(start + 32)?);
        let size = u64::from(u16::from_ne_bytes(memory.array(start + 54)?));
        let number = u16::from_ne_bytes(memory.array(start + 56)?).min(MAX_PROGRAM_HEADERS);
        let (mut base, mut dynamic) = (None, None);
        for header in (0..u64::from(number)).map(|number| headers.wrapping_add(number * size)) {
            let address = memory.word(header + 16)?;
            match memory.number(header)? {
                // The file's first byte is in its first segment.
                TYPE_LOAD if base.is_none() => base = Some(start.wrapping_sub(address)),
                TYPE_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let (base, dynamic) = base.zip(dynamic).ok_or(Unreadable::Nothing)?;
        Symbols::of_dynamic(memory, base, base.wrapping_add(dynamic))
    }

    fn of_dynamic(memory: &impl Memory, base: u64, dynamic: u64) -> Read<Symbols> {
        let (mut strings, mut symbols, mut gnu, mut system_v) = (None, None, None, None);
        for entry in (0..MAX_DYNAMIC_ENTRIES).map(|number| dynamic.wrapping_add(number * 16)) {
            let value = memory.word(entry + 8)?;
            // glibc's loader has added the base already; musl's leaves the table as it is in the file.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match memory.word(entry)? {
                0 => break,
                TAG_STRINGS => strings = Some(address),
                TAG_SYMBOLS => symbols = Some(address),
                TAG_GNU_HASH => gnu = Some(Hash::Gnu(address)),
                TAG_HASH => system_v = Some(Hash::SystemV(address)),
                _ => {}
            }
        }
        let hash = gnu.or(system_v).ok_or(Unreadable::Nothing)?;
        let (strings, symbols) = strings.zip(symbols).ok_or(Unreadable::Nothing)?;
        let (Hash::Gnu(table) | Hash::SystemV(table)) = hash;
        if [table, strings, symbols].iter().any(|address| !PLACES.contains(address)) {
            return Err(Unreadable::Nothing);
        }
        Ok(Symbols { base, strings, symbols, hash })
    }

    /// Returns the address of a symbol, `None` if the file does not export it.
    ///
    /// # Errors
    /// The tables can't be read.
    pub fn find(&self, memory: &impl Memory, name: &str) -> Read<Option<u64>> {
        match self.hash {
            Hash::Gnu(table) => self.find_by_gnu_hash(memory, table, name),
            Hash::SystemV(table) => self.find_by_hash(memory, table, name),
        }
    }

    fn find_by_gnu_hash(&self, memory: &impl Memory, table: u64, name: &str) -> Read<Option<u64>> {
        let hash = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let (buckets, first) = (memory.number(table)?, memory.number(table + 4)?);
        let bloom_words = u64::from(memory.number(table + 8)?);
        if buckets == 0 {
            return Ok(None);
        }
        let bucket_list = table + 16 + bloom_words * 8;
        let mut symbol = memory.number(bucket_list + u64::from(hash % buckets) * 4)?;
        if symbol < first {
            return Ok(None);
        }
        let chains = bucket_list + u64::from(buckets) * 4;
        for _ in 0..MAX_CHAIN {
            let of_chain = memory.number(chains + u64::from(symbol - first) * 4)?;
            if of_chain | 1 == hash | 1
                && let Some(address) = self.address_of(memory, u64::from(symbol), name)?
            {
                return Ok(Some(address));
            }
            if of_chain & 1 == 1 {
                return Ok(None);
            }
            symbol = symbol.wrapping_add(1);
        }
        Ok(None)
    }

    fn find_by_hash(&self, memory: &impl Memory, table: u64, name: &str) -> Read<Option<u64>> {
        let hash = name.bytes().fold(0u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(u32::from(byte));
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        let buckets = memory.number(table)?;
        if buckets == 0 {
            return Ok(None);
        }
        let mut symbol = memory.number(table + 8 + u64::from(hash % buckets) * 4)?;
        for _ in 0..MAX_CHAIN {
            if symbol == 0 {
                break;
            }
            if let Some(address) = self.address_of(memory, u64::from(symbol), name)? {
                return Ok(Some(address));
            }
            symbol = memory.number(table + 8 + u64::from(buckets) * 4 + u64::from(symbol) * 4)?;
        }
        Ok(None)
    }

    /// Returns the address of the symbol of this number if it has the name and is defined here.
    fn address_of(&self, memory: &impl Memory, number: u64, name: &str) -> Read<Option<u64>> {
        let symbol = self.symbols.wrapping_add(number.wrapping_mul(SYMBOL_BYTES));
        let found = memory.c_string(self.strings.wrapping_add(u64::from(memory.number(symbol)?)), name.len() as u64 + 1)?;
        let is_defined = u16::from_ne_bytes(memory.array(symbol + 6)?) != 0;
        if found != name || !is_defined {
            return Ok(None);
        }
        Ok(Some(self.base.wrapping_add(memory.word(symbol + 8)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pieces, ProcessMemory};

    #[test]
    fn a_symbol_of_the_c_library_is_found_in_this_process_memory() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let memory = ProcessMemory::of(std::process::id() as i32);
        let is_library = |file: &&crate::maps::MappedFile| file.path.contains("/libc.so") || file.path.contains("/libc-2");
        let library = crate::maps::files(&maps).iter().find(is_library).cloned().expect("a C library");
        let symbols = Symbols::of_file(&memory, library.start).expect("symbols");
        let address = symbols.find(&memory, "getpid").expect("readable").expect("there");
        assert!((library.start..library.end).contains(&address));
        assert_eq!(symbols.find(&memory, "no_such_function_here"), Ok(None));
    }

    #[test]
    fn a_file_that_is_no_program_has_no_symbols() {
        let mut pieces = Pieces::default();
        pieces.put(0x10000, &[0; 4096]);
        assert!(Symbols::of_file(&pieces, 0x10000).is_err());
        let mut torn = Vec::from(*b"\x7fELF\x02");
        torn.resize(4096, 0xff);
        pieces.put(0x20000, &torn);
        assert!(Symbols::of_file(&pieces, 0x20000).is_err());
    }
}
