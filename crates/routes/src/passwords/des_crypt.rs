//! Traditional crypt(3): 25 iterations of DES over a block of zeros, with the password as key and a salt that changes the
//! expansion table. `htpasswd -d` and old files for uWSGI's `basicauth` use it. It is weak (eight characters, quickly tried) and
//! only here for existing files; no maintained library has it with the salt.
//!
//! Pure and stateless. Workers run it, for requests with credentials.

/// Alphabet of salts and hashes; a character's value is its position.
pub const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Significant characters of a password.
const PASSWORD_BYTES: usize = 8;

/// Iterations of the cipher.
const ITERATIONS: usize = 25;

/// Returns the hash of a password, 13 characters of which the first two are the salt. `None`: the salt is invalid.
pub fn hash(password: &[u8], salt: [u8; 2]) -> Option<String> {
    let keys = key_schedule(password);
    let expansion = salted_expansion(salt)?;
    let mut block = [0; 64];
    for _ in 0..ITERATIONS {
        block = encipher(&block, &keys, &expansion);
    }
    let mut made = String::from_utf8_lossy(&salt).into_owned();
    // Six bits for each character, the highest first; the last one has four, and two zeros.
    for bits in block.chunks(6) {
        let value = (0..6).fold(0, |value, index| value << 1 | usize::from(bits.get(index).copied().unwrap_or(0)));
        made.push(ALPHABET[value] as char);
    }
    Some(made)
}

// Tables of FIPS 46-3. Bits are counted from one, as there.

const INITIAL: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32, 24, 16, 8,
    57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];
const FINAL: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27, 34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];
const EXPANSION: [u8; 48] = [
    32, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17, 16, 17, 18, 19, 20, 21, 20, 21, 22, 23,
    24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32, 1,
];
const PERMUTATION: [u8; 32] =
    [16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25];
const CHOICE_1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36, 63, 55, 47, 39,
    31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
const CHOICE_2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52, 31, 37, 47, 55, 30, 40, 51,
    45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
const SHIFTS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
/// Each box has four rows of sixteen.
const BOXES: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8, 4, 1, 14, 8,
        13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5, 0, 14, 7, 11,
        10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1, 13, 6, 4, 9,
        8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9, 10, 6, 9, 0,
        12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6, 4, 2, 1, 11,
        10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8, 9, 14, 15, 5,
        2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6, 1, 4, 11, 13,
        12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2, 7, 11, 4, 1,
        9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

/// Returns the cipher's key for each of its rounds. Seven bits of each character of the password count.
fn key_schedule(password: &[u8]) -> [[u8; 48]; 16] {
    let mut key = [0; 64];
    for (index, byte) in password.iter().take(PASSWORD_BYTES).enumerate() {
        for bit in 0..7 {
            key[8 * index + bit] = byte >> (6 - bit) & 1;
        }
    }
    let mut halves: [u8; 56] = pick(&key, &CHOICE_1);
    SHIFTS.map(|shift| {
        let (left, right) = halves.split_at_mut(28);
        left.rotate_left(shift);
        right.rotate_left(shift);
        pick(&halves, &CHOICE_2)
    })
}

/// Each of the salt's twelve bits swaps two entries of the expansion table.
fn salted_expansion(salt: [u8; 2]) -> Option<[u8; 48]> {
    let mut table = EXPANSION;
    for (number, letter) in salt.into_iter().enumerate() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        for bit in (0..6).filter(|bit| value >> bit & 1 == 1) {
            table.swap(6 * number + bit, 6 * number + bit + 24);
        }
    }
    Some(table)
}

fn encipher(block: &[u8; 64], keys: &[[u8; 48]; 16], expansion: &[u8; 48]) -> [u8; 64] {
    let mixed: [u8; 64] = pick(block, &INITIAL);
    let (mut left, mut right) = ([0; 32], [0; 32]);
    left.copy_from_slice(&mixed[..32]);
    right.copy_from_slice(&mixed[32..]);
    for key in keys {
        let mut wide: [u8; 48] = pick(&right, expansion);
        wide.iter_mut().zip(key).for_each(|(bit, key)| *bit ^= key);
        let mut narrow = [0; 32];
        for (number, bits) in wide.chunks(6).enumerate() {
            // The outer bits choose the row, the inner ones the column.
            let row = bits[0] << 1 | bits[5];
            let column = bits[1] << 3 | bits[2] << 2 | bits[3] << 1 | bits[4];
            let value = BOXES[number][usize::from(row << 4 | column)];
            for bit in 0..4 {
                narrow[4 * number + bit] = value >> (3 - bit) & 1;
            }
        }
        let mut next: [u8; 32] = pick(&narrow, &PERMUTATION);
        next.iter_mut().zip(left).for_each(|(bit, left)| *bit ^= left);
        (left, right) = (right, next);
    }
    let mut swapped = [0; 64];
    swapped[..32].copy_from_slice(&right);
    swapped[32..].copy_from_slice(&left);
    pick(&swapped, &FINAL)
}

/// Returns the bits that a table selects, in its order.
fn pick<const COUNT: usize>(bits: &[u8], table: &[u8; COUNT]) -> [u8; COUNT] {
    table.map(|number| bits[usize::from(number) - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_c_library() {
        for (password, wanted) in KNOWN {
            let salt = [wanted.as_bytes()[0], wanted.as_bytes()[1]];
            assert_eq!(hash(password, salt).as_deref(), Some(*wanted), "{}", password.escape_ascii());
        }
        assert_eq!(hash(b"test", *b"!a"), None);
    }

    /// Made with crypt(3) of libxcrypt.
    const KNOWN: &[(&[u8], &str)] = &[
        (b"", "..X8NBuQ4l6uQ"),
        (b"a", "zzJZ5PtvFqi9o"),
        (b"test", "4qJ2CefvLVpOk"),
        (b"secret", "f33Iv.rEmzQsw"),
        (b"12345678", "obJOi7aoWQZV2"),
        (b"123456789 more", "jbHrMcPsoVVN."),
        (b"\xff\x80\x01\x7e", "DLm/d2Hnu4Umo"),
        (b"\x70\xc3\xa4\x73\x73\x77\x6f\x72\x74", "G9D5UwIm7fPN6"),
        (b"\xae\x44\x21", "hdcEe.i8Y75bs"),
        (b"\x4c\x29\xb8\x03\x18", "NwcO106lbizlw"),
        (b"\xe4\x88\xe3\x4b\x6a\x06\x10\x5a", "2Mp08N/5yUkVc"),
        (b"\x9e\xd1\xc6\xab\x1e", "Lf9xFCVw32Z1E"),
        (b"\x08\x2e\x19\xbb\x52\xfc", "tzws2dFa/Bfew"),
        (b"\x52", "hCRrWgjuwUT82"),
        (b"\x8b\xaa\x55", "R1st6FaIcaNXY"),
        (b"\x99\xcf\x3f\x9e\x79\xbd\x4c\xc7", "FMDTJD5os4nWk"),
        (b"\x02", "I29zT0XF4ZgbA"),
        (b"\x30\x96\x3e\x4c\xa0\xd4", "GOEMffSTxNtdU"),
        (b"\x42\x1e\x05\x01\xbd\x29\xcd", "p/rYiQYA976xM"),
        (b"\xf0\x05\x38\x2c\x4e\xa4", "EGRqUT1e6Qu/o"),
        (b"\xad\x69\x6a\xaa\xe9\x3f\x31\x42\x13", "bqf2sA5i7otZI"),
        (b"\xc6\x30\xac\x52\x24\xe2\x12\x0a\x86", "nCi8XuU2PHIlU"),
        (b"\x10\xc2\x3d\x57\x0f\xbd\x97\x14", "WToROImbH4sXo"),
        (b"\x16\xe8", "rak3G7JA2IK7A"),
    ];
}
