//! Compression of lines, each by itself (`log-encoder = gzip`): a reader of concatenated gzip members reads all of them as one
//! text. It writes nothing. Every process runs it.

use bolide_contract::logging::{PackedForm, Packing};
use flate2::{Compress, Compression, FlushCompress, Status};

/// The logarithm of the compression window in bytes: lines are short, and each process has a window.
const WINDOW_BITS: u8 = 12;
/// Initial room of a compressed line beyond half of its length, in bytes. It grows if that is too little.
const ROOM_BYTES: usize = 64;

/// The compressor of one log.
#[derive(Debug)]
pub struct Packer {
    compress: Compress,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Packer {
    pub fn new(packing: &Packing) -> Packer {
        let compress = match packing.form {
            PackedForm::Gzip => Compress::new_gzip(Compression::default(), WINDOW_BITS),
            PackedForm::Zlib => Compress::new_with_window_bits(Compression::default(), true, WINDOW_BITS),
        };
        Packer { compress, before: packing.before.clone().into_bytes(), after: packing.after.clone().into_bytes() }
    }

    /// The compressed line, between `before` and `after`. `None` if the compressor fails, which is not expected.
    pub fn pack(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        self.compress.reset();
        let mut record = Vec::with_capacity(self.before.len() + line.len() / 2 + ROOM_BYTES + self.after.len());
        record.extend_from_slice(&self.before);
        loop {
            let taken = usize::try_from(self.compress.total_in()).ok()?;
            match self.compress.compress_vec(&line[taken..], &mut record, FlushCompress::Finish).ok()? {
                Status::StreamEnd => break,
                Status::Ok | Status::BufError => record.reserve(ROOM_BYTES + line.len() / 2),
            }
        }
        record.extend_from_slice(&self.after);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::{MultiGzDecoder, ZlibDecoder};
    use std::io::Read;

    fn packer(form: PackedForm, before: &str, after: &str) -> Packer {
        Packer::new(&Packing { form, before: before.to_owned(), after: after.to_owned() })
    }

    #[test]
    fn lines_one_behind_the_other_are_one_text_whatever_is_in_them() {
        let mut packer = packer(PackedForm::Gzip, "", "");
        let mut noise = 1u32;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(100_000)
        .collect();
        let lines: [&[u8]; 5] = [b"one\n", b"", b"\x1f\x8b\n", &random, &[b'x'; 300_000]];
        let records: Vec<Vec<u8>> = lines.iter().map(|line| packer.pack(line).expect("packed")).collect();
        let mut text = Vec::new();
        MultiGzDecoder::new(records.concat().as_slice()).read_to_end(&mut text).expect("gzip");
        assert_eq!(text, lines.concat());
    }

    #[test]
    fn what_stands_before_and_behind_is_not_compressed() {
        let record = packer(PackedForm::Zlib, "<", ">").pack(b"one\n").expect("packed");
        let packed = record.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">")).expect("both");
        let mut text = String::new();
        ZlibDecoder::new(packed).read_to_string(&mut text).expect("zlib");
        assert_eq!(text, "one\n");
    }
}
