//! Password hashes in every format of `htpasswd` and crypt(3): detects the format and verifies passwords.
//!
//! Pure and stateless. Workers run it, for requests with credentials; bcrypt takes tens of milliseconds, on purpose.

use base64::Engine as _;
use base64::alphabet::BCRYPT;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use md5::{Digest as _, Md5};
use sha_crypt::{Params, sha256_crypt, sha512_crypt};
use sha1::Sha1;

use crate::passwords::des_crypt::{self, ALPHABET};

/// Bytes of a password, with its NUL, that bcrypt uses.
const BCRYPT_BYTES: usize = 72;

/// Costs of bcrypt, which are base-2 logarithms of its rounds.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;

/// bcrypt's own base64. The last character of a salt may have bits beyond its sixteen bytes, as crypt(3) allows.
const BCRYPT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &BCRYPT,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Verifies a password, which must not contain a NUL, against a hash. `None`: the hash has no known format.
pub fn verify(password: &[u8], hash: &str) -> Option<bool> {
    if let Some(encoded) = hash.strip_prefix("{SHA}") {
        return Some(equal_in_constant_time(STANDARD.encode(Sha1::digest(password)).as_bytes(), encoded.as_bytes()));
    }
    let Some((form, rest)) = hash.strip_prefix('$').and_then(|rest| rest.split_once('$')) else {
        return is_des(hash).then(|| verify_des(password, hash));
    };
    let is_right = match form {
        "apr1" => verify_md5(password, "$apr1$", rest),
        "1" => verify_md5(password, "$1$", rest),
        "5" => verify_sha(rest, |salt, params| encode_sha256(&sha256_crypt(password, salt, params))),
        "6" => verify_sha(rest, |salt, params| encode_sha512(&sha512_crypt(password, salt, params))),
        "2a" | "2b" | "2y" => verify_bcrypt(password, rest),
        _ => return None,
    };
    Some(is_right.unwrap_or(false))
}

/// Whether two texts are equal; the time depends on their lengths only.
pub fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// Traditional DES: a salt of two characters and eleven more. Besides `{SHA}` it is the only format that uWSGI itself supports.
fn is_des(hash: &str) -> bool {
    hash.len() == 13 && hash.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn verify_des(password: &[u8], hash: &str) -> bool {
    let [first, second, ..] = *hash.as_bytes() else { return false };
    des_crypt::hash(password, [first, second]).is_some_and(|made| equal_in_constant_time(made.as_bytes(), hash.as_bytes()))
}

/// `SALT$DIGEST`. `None`, here and below: the format is invalid, and no password matches.
fn verify_md5(password: &[u8], magic: &str, rest: &str) -> Option<bool> {
    let (salt, digest) = rest.split_once('$')?;
    Some(equal_in_constant_time(md5_crypt(password, magic, salt.as_bytes()).as_bytes(), digest.as_bytes()))
}

/// `SALT$DIGEST` or `rounds=NUMBER$SALT$DIGEST`.
fn verify_sha(rest: &str, make: impl FnOnce(&[u8], Params) -> String) -> Option<bool> {
    let (params, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$')?;
            (Params::new(rounds.parse().ok()?).ok()?, rest)
        }
        None => (Params::default(), rest),
    };
    let (salt, digest) = rest.split_once('$')?;
    Some(equal_in_constant_time(make(salt.as_bytes(), params).as_bytes(), digest.as_bytes()))
}

/// `COST$`, 22 characters of salt and 31 of digest.
fn verify_bcrypt(password: &[u8], rest: &str) -> Option<bool> {
    let (cost, rest) = rest.split_once('$')?;
    let cost = cost.parse().ok().filter(|number| cost.len() == 2 && BCRYPT_COSTS.contains(number))?;
    let (salt, digest) = rest.split_at_checked(22)?;
    let salt = BCRYPT_BASE64.decode(salt).ok()?.try_into().ok()?;
    let mut key = [password, b"\0"].concat();
    key.truncate(BCRYPT_BYTES);
    // The first implementation dropped the last of the 24 bytes, and the format has kept that.
    let made = BCRYPT_BASE64.encode(&bcrypt::bcrypt(cost, salt, &key)[..23]);
    Some(equal_in_constant_time(made.as_bytes(), digest.as_bytes()))
}

/// crypt(3) by MD5, and Apache's variant, which differs in its name only: a thousand salted rounds.
fn md5_crypt(password: &[u8], magic: &str, salt: &[u8]) -> String {
    const ROUNDS: usize = 1000;
    const SALT_BYTES: usize = 8;
    let salt = &salt[..salt.len().min(SALT_BYTES)];
    let inner: [u8; 16] = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut outer = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for start in (0..password.len()).step_by(16) {
        outer.update(&inner[..(password.len() - start).min(16)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { [0] } else { [password[0]] });
        bits >>= 1;
    }
    let mut state: [u8; 16] = outer.finalize().into();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(state)
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(state)
        } else {
            next.update(password)
        }
        state = next.finalize().into();
    }
    encode_md5(&state)
}

// Each format has its own byte order. Bytes are written as characters of six bits, the lowest first.

fn encode_md5(digest: &[u8; 16]) -> String {
    let triples = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    encode(digest, triples, &[11], 2)
}

fn encode_sha256(digest: &[u8; 32]) -> String {
    let next = |[a, b, c]: &[usize; 3]| Some([c + 1, a + 1, b + 1]);
    encode(digest, std::iter::successors(Some([0, 10, 20]), next).take(10), &[31, 30], 3)
}

fn encode_sha512(digest: &[u8; 64]) -> String {
    let next = |[a, b, c]: &[usize; 3]| Some([b + 1, c + 1, a + 1]);
    encode(digest, std::iter::successors(Some([0, 21, 42]), next).take(21), &[63], 2)
}

/// Encodes groups of three bytes, then the remaining ones, as this many characters.
fn encode(digest: &[u8], triples: impl IntoIterator<Item = [usize; 3]>, rest: &[usize], characters: usize) -> String {
    let number = |indexes: &[usize]| indexes.iter().fold(0, |value, &index| value << 8 | usize::from(digest[index]));
    let mut made = String::new();
    let mut write = |value: usize, count: usize| {
        made.extend((0..count).map(|place| ALPHABET[value >> (6 * place) & 0x3f] as char));
    };
    for triple in triples {
        write(number(&triple), 4);
    }
    write(number(rest), characters);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_htpasswd_and_crypt_is_known() {
        // Made by `openssl passwd`, `htpasswd` and crypt(3).
        for hash in HASHES {
            assert_eq!(verify(b"secret", hash), Some(true), "{hash}");
            assert_eq!(verify(b"Secret", hash), Some(false), "{hash}");
        }
    }

    const HASHES: &[&str] = &[
        "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
        "$1$abcdefgh$cHJi5PXp/ki/ktXzqlk6I1",
        "$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM.",
        "$5$rounds=1500$saltsaltsaltsalt$/zEc0IO4lyS9V1Ih0ImynySJZY0kUSMp0bLrvRLdyeD",
        "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.",
        "$6$rounds=1000$./x$mIBlGNqx7fIuEOTdoI6REnU21h95vTj1Koz.aTaSm3lc7hSZRomJMDvDx2cjLJLAYZcX4sGjelcdJ3RS4eruI0",
        "$2b$04$hMK6t.8maSXSDfM4n/5CtuoXFwrU63gepOcajaWu/C/KAv16FoALa",
        "$2a$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
        "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        "abNANd1rDfiNc",
        "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    ];

    #[test]
    fn an_unknown_format_is_reported_and_a_broken_hash_matches_no_password() {
        for hash in ["secret", "$9$x$y", "", "$", "{SSHA}x", "abNANd1rDfiN!", "$2x$04$hMK6t.8maSXSDfM4n/5CtuoXFwrU63gepOcajaWu"] {
            assert_eq!(verify(b"secret", hash), None, "{hash}");
        }
        for hash in [
            "$1$",
            "$1$abcdefgh",
            "$5$rounds=1$abcdefgh$x",
            "$5$rounds=x$a$b",
            "$6$abcdefgh",
            "$2b$04$short",
            "$2b$99$x",
            "$2b$4$x",
            "$2b$03$hMK6t.8maSXSDfM4n/5CtuoXFwrU63gepOcajaWu/C/KAv16FoALa",
            "$2b$04$éééééééééééé",
        ] {
            assert_eq!(verify(b"secret", hash), Some(false), "{hash}");
        }
    }

    #[test]
    fn an_empty_password_and_a_long_one_are_hashed_as_crypt_does() {
        for (text, times, hash) in EXTREMES {
            assert_eq!(verify(text.repeat(*times).as_bytes(), hash), Some(true), "{text} and {hash}");
        }
    }

    /// A text, how often it is repeated, and the hash.
    const EXTREMES: &[(&str, usize, &str)] = &[
        ("", 1, "$1$abcdefgh$M55TzYaaccxVGbptZWaxX/"),
        ("0123456789", 12, "$1$abcdefgh$srejKDGavKepZZKsACIFS1"),
        ("päss", 20, "$1$abcdefgh$dlWjYphNynpHWuLY9JZ01."),
        ("", 1, "$1$ab$rn6aQS/o7141mj179E/zA."),
        ("0123456789", 12, "$1$ab$iPkAgDiQzcIw0govtSo8G0"),
        ("päss", 20, "$1$ab$Oib6JCoJbPFu4Mk.bwje51"),
        ("", 1, "$5$abcdefgh$mnv0N8gJGuJiQCFVlADjwwxPyRiUO8rGuljjETTLqw9"),
        ("0123456789", 12, "$5$abcdefgh$KzsYUkHBZ0/LiFM7GOLv5MF5h7befotPZHR0hzQ4Vh5"),
        ("päss", 20, "$5$abcdefgh$RDmk.LF/e91y3Mp2cQX0yZwd7sEFSh3m5QaW0F2ikjC"),
        ("", 1, "$6$abcdefgh$v7sYNA18/BerGOYQLppYLyjH4yJilp8kqe/ef3KYMK9hOIdzH1yzcmP74Ay.m51y1jP3QqxM7Jl75S4CxDhBq."),
        ("0123456789", 12, "$6$abcdefgh$a0rvSzlCt3wZfFMIcCb.Dx1GZfV0rsNe82S8t0z5K7DwmQoo1bLvlZMQ.gzNL6x7EKPNnRwzZujLj6uj5gm2K1"),
        ("päss", 20, "$6$abcdefgh$3ganB0bi7Tst/nPqBqekf05KrIWCfRP6M8NzPdmHySpeNZxWJBAaS/6fEvqx/FNZaQ8kfN7hTEbF.uWMQPKH.."),
        ("", 1, "$2b$04$hMK6t.8maSXSDfM4n/5Ctus6SegCprAzl/kexvtykvW2TXFbTfCkO"),
        ("0123456789", 12, "$2b$04$hMK6t.8maSXSDfM4n/5CtuGgZyC5cAYUkdQ0mKQ2ScjwcClT8rhtm"),
        ("päss", 20, "$2b$04$hMK6t.8maSXSDfM4n/5CtuUCUAB9dxneGWYAVQ5u/.F5BvGZPEk9C"),
        ("", 1, "abmF1QH4PEr.E"),
        ("0123456789", 12, "ab2wHQ4RTFVKI"),
        ("päss", 20, "abn9CSawKSYdc"),
        ("", 1, "$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ."),
        ("0123456789", 3, "$apr1$ab$s9viZAkYUUQ6bmbGz8UG60"),
    ];
}
