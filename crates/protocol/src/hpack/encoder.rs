//! Fields of answers become header blocks (RFC 7541 section 6). Workers run it.
//!
//! The encoder keeps no table: answers are written by whoever has them, in any order, and no memory of a connection goes into it. Names that
//! every decoder knows are one or two bytes. Values are not in Huffman code: for the head of a small answer it is a third of the encoder's
//! work, and saves 15 bytes.

use super::static_table::index_of_name;

/// Longest name that every decoder knows and answers have.
const KNOWN_NAME_BYTES: usize = 27;

/// Says that the table has no room, in front of the first field. A peer that has made its table smaller waits for it (RFC 7541 section
/// 4.2), and to the others it says nothing new.
const NO_TABLE: u8 = 0x20;

/// Begins a header block of an answer.
pub fn begin(status: u16, out: &mut Vec<u8>) {
    out.push(NO_TABLE);
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let [hundreds, tens, ones] = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
            out.extend_from_slice(&[0x08, 3, hundreds, tens, ones]);
            return;
        }
    };
    out.push(0x80 | index);
}

/// Begins a header block of trailer fields.
pub fn begin_trailers(out: &mut Vec<u8>) {
    out.push(NO_TABLE);
}

/// Adds a field. Its name is a token in any case.
#[inline]
pub fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let mut small = [0u8; KNOWN_NAME_BYTES];
    let index = match small.get_mut(..name.len()) {
        Some(small) => {
            small.copy_from_slice(name);
            small.make_ascii_lowercase();
            index_of_name(small)
        }
        None => None,
    };
    match index {
        Some(index) => known(index, value, out),
        None => {
            out.push(0);
            integer(name.len(), 7, 0, out);
            let start = out.len();
            out.extend_from_slice(name);
            if let Some(written) = out.get_mut(start..) {
                written.make_ascii_lowercase();
            }
            string(value, out);
        }
    }
}

/// Adds a field whose name has an index.
#[inline]
fn known(index: u8, value: &[u8], out: &mut Vec<u8>) {
    const SET_COOKIE: u8 = 55;
    // Nobody on the way may keep a cookie in a table, where its bytes could be guessed one by one (RFC 7541 section 7.1.3).
    let form = if index == SET_COOKIE { 0x10 } else { 0 };
    integer(usize::from(index), 4, form, out);
    string(value, out);
}

#[inline]
fn string(text: &[u8], out: &mut Vec<u8>) {
    integer(text.len(), 7, 0, out);
    out.extend_from_slice(text);
}

/// RFC 7541 section 5.1.
#[inline]
fn integer(number: usize, prefix: u32, form: u8, out: &mut Vec<u8>) {
    let most = (1usize << prefix) - 1;
    if number < most {
        out.push(form | number as u8);
        return;
    }
    out.push(form | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
