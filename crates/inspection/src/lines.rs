//! The line of an instruction, by the table of its code object. CPython has three formats: that of 3.9 (`co_lnotab`), of 3.10
//! (PEP 626) and of 3.11 and newer (Objects/locations.md of CPython). Pure.

/// Returns the line of the instruction at `offset` (in bytes from the code's start), `None` if it has none. A table that ends too
/// early counts as far as it goes.
pub fn line_of(minor: u32, table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    match minor {
        ..=9 => Some(line_of_3_9(table, first_line, offset)),
        10 => line_of_3_10(table, first_line, offset),
        _ => line_of_3_11(table, first_line, offset),
    }
}

/// Pairs of an increment of the address and of the line.
fn line_of_3_9(table: &[u8], first_line: i64, offset: u64) -> i64 {
    let (mut line, mut address) = (first_line, 0u64);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// Pairs of the length of a range and of the difference to the line before; -128 is a range without a line.
fn line_of_3_10(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first_line, 0u64);
    for pair in table.chunks_exact(2) {
        let delta = pair[1] as i8;
        end += u64::from(pair[0]);
        if delta != i8::MIN {
            line += i64::from(delta);
        }
        if offset < end {
            return (delta != i8::MIN).then_some(line);
        }
    }
    None
}

/// Entries of a first byte with the form and the number of code units, and the bytes of the form.
fn line_of_3_11(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    let unit = offset / 2;
    let (mut line, mut end) = (first_line, 0u64);
    let mut rest = table.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let form = first >> 3 & 0b1111;
        end += u64::from(first & 0b111) + 1;
        let delta = match form {
            15 => 0,
            13 | 14 => signed(variable(&mut rest)),
            10..=12 => i64::from(form - 10),
            _ => 0,
        };
        line = line.saturating_add(delta);
        if unit < end {
            return (form != 15).then_some(line);
        }
        // The rest of the entry has columns. Only first bytes have the high bit.
        while rest.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// Six bits a byte, the lowest first; the seventh bit says that more follow.
fn variable(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes.by_ref() {
        value |= u64::from(byte & 0x3f) << shift;
        shift += 6;
        if byte & 0x40 == 0 || shift > 54 {
            break;
        }
    }
    value
}

fn signed(value: u64) -> i64 {
    let magnitude = (value >> 1) as i64;
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_format_tells_the_line() {
        // def f(): (line 1)  a = 1 (line 2)  b = 2 (line 3)  return a + b (line 4), as each version compiles it.
        let old = [0, 1, 4, 1, 4, 1];
        assert_eq!([0, 2, 4, 8, 14].map(|at| line_of(9, &old, 1, at)), [Some(2), Some(2), Some(3), Some(4), Some(4)]);
        let newer = [4, 1, 4, 1, 8, 1];
        assert_eq!(
            [0, 2, 4, 8, 14, 16].map(|at| line_of(10, &newer, 1, at)),
            [2, 2, 3, 4, 4, 0].map(|line| (line > 0).then_some(line))
        );
        // RESUME of line 1, then three lines, in the form with one line and columns.
        let new = [0x80, 0x00, 0xd9, 0x08, 0x09, 0xd9, 0x08, 0x09, 0xdb, 0x0b, 0x10];
        let lines = [0, 2, 4, 6, 8, 10, 14, 20].map(|at| line_of(11, &new, 1, at));
        assert_eq!(lines, [Some(1), Some(2), Some(2), Some(3), Some(3), Some(4), Some(4), None]);
        // Long entries, back to an earlier line, and an instruction without a line.
        let long = [0xf0, 0x03, 0x00, 0x00, 0x00, 0xf8, 0xe8, 0x42, 0x01];
        assert_eq!([0, 2, 4].map(|at| line_of(12, &long, 10, at)), [Some(9), None, Some(10 + 32)]);
    }

    proptest! {
        #[test]
        fn no_table_makes_trouble(
            minor in 8u32..16,
            table in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<u64>(),
        ) {
            let _ = line_of(minor, &table, i64::from(i32::MAX), at);
        }
    }
}
