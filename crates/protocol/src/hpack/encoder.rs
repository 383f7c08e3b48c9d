//! Encodes the fields of answers as header blocks (RFC 7541 section 6). Must not know streams. Workers run it.
//!
//! The encoder does not keep a table: answers are written in any order, and no state of a connection affects them. Names in the
//! static table take one or two bytes. Values are not Huffman-coded: for the head of a small answer that is a third of the
//! encoder's work, and saves 15 bytes.

use super::static_table::index_of_name;

/// Longest name of answers in the static table.
const KNOWN_NAME_BYTES: usize = 27;

/// Sets the table size to 0, in front of the first field. A peer that has reduced its table size expects this update (RFC 7541
/// section 4.2); for other peers it changes nothing.
const NO_TABLE: u8 = 0x20;

/// Begins the header block of an answer.
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

/// Adds a field. Its name must be a token.
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
    // No intermediary may store a cookie in a table, where its bytes could be guessed one by one (RFC 7541 section 7.1.3).
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
