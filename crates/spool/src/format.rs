//! The bytes of a job: a uwsgi packet with modifier1 17 whose variables describe the job, and the job's body after it.
//!
//! It does not know files. Every process that writes or reads a job uses it.

use std::ops::Range;

/// The packet's type, which says that it is a job.
pub const MODIFIER: u8 = 17;
/// Bytes before the variables: modifier1, their length in little-endian order, modifier2.
pub const HEAD_BYTES: usize = 4;
/// Most bytes of a job's variables, with their lengths: the packet's length has 16 bits.
pub const MAX_VARIABLES_BYTES: usize = 0xffff;
/// Most bytes of a job's body, which is read into memory as a whole.
pub const MAX_BODY_BYTES: u64 = 1 << 30;

/// Where the parts of a whole job are in its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Names and values, in their order.
    pub variables: Vec<(Range<usize>, Range<usize>)>,
    /// From the end of the packet to the end of the file.
    pub body: Range<usize>,
}

/// What some bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    Job(Layout),
    /// The packet ends before the length that it states: it is being written, or its writer died.
    Unfinished,
    /// It can't become a job by more bytes. The reason completes "it is not a job: ".
    Junk(&'static str),
}

/// Why variables can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    /// uWSGI can't read a variable without a name.
    Nameless,
    /// More than [`MAX_VARIABLES_BYTES`].
    TooLarge,
}

/// Reads a job. `bytes` are all bytes of its file, or as many of them as there are.
pub fn read(bytes: &[u8]) -> Reading {
    let Some((modifier, rest)) = bytes.split_first() else { return Reading::Unfinished };
    if *modifier != MODIFIER {
        return Reading::Junk("its first byte is not 17, the modifier of a spooler's packet");
    }
    let [low, high, _, rest @ ..] = rest else { return Reading::Unfinished };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let Some(block) = rest.get(..length) else { return Reading::Unfinished };
    let end = HEAD_BYTES + length;
    let mut variables = Vec::new();
    let mut at = 0;
    while at < block.len() {
        let Some(name) = counted(block, at) else { return Reading::Junk("the name of a variable leads beyond the packet") };
        if name.is_empty() {
            return Reading::Junk("a variable has no name");
        }
        let Some(value) = counted(block, name.end) else {
            return Reading::Junk("the value of a variable leads beyond the packet");
        };
        at = value.end;
        variables.push((moved(name), moved(value)));
    }
    Reading::Job(Layout { variables, body: end..bytes.len() })
}

/// Appends a variable to a block of variables.
///
/// # Errors
/// The variable can't be written; the block is unchanged.
pub fn push_variable(block: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Unwritable> {
    if name.is_empty() {
        return Err(Unwritable::Nameless);
    }
    let length = |text: &[u8]| u16::try_from(text.len()).map_err(|_| Unwritable::TooLarge);
    let (name_length, value_length) = (length(name)?, length(value)?);
    if block.len() + 4 + name.len() + value.len() > MAX_VARIABLES_BYTES {
        return Err(Unwritable::TooLarge);
    }
    for (length, text) in [(name_length, name), (value_length, value)] {
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(text);
    }
    Ok(())
}

/// The packet's head before a block of this many bytes. `None`: the block is larger than a packet can be.
pub fn head(block_bytes: usize) -> Option<[u8; HEAD_BYTES]> {
    let [low, high] = u16::try_from(block_bytes).ok()?.to_le_bytes();
    Some([MODIFIER, low, high, 0])
}

/// The bytes after a length of two bytes at `at`, if they are inside of the block.
fn counted(block: &[u8], at: usize) -> Option<Range<usize>> {
    let [low, high, rest @ ..] = block.get(at..)? else { return None };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    (length <= rest.len()).then(|| at + 2..at + 2 + length)
}

/// A range of the block, as one of the file.
fn moved(range: Range<usize>) -> Range<usize> {
    range.start + HEAD_BYTES..range.end + HEAD_BYTES
}
