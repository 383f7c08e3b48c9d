//! Lines for a destination that may not accept them, or may be out of reach: written in atomic pieces, queued up to a bound,
//! dropped and counted beyond it. It does not know other logs. Every process runs it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bolide_contract::logging::Packing;
use nix::errno::Errno;

use crate::destination::{self, ATOMIC_BYTES, Destination};
use crate::packing::Packer;
use crate::{flow, losses};

/// Bytes of waiting lines, in each process; more lines are dropped.
pub const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// The lines of one process.
#[derive(Debug)]
pub struct Writer {
    /// The number of the log.
    number: usize,
    destination: &'static Destination,
    /// The master opens the destination again when it is out of reach: lines wait for that.
    is_reopened: &'static AtomicBool,
    /// Lines that were not accepted yet. The first may have been written in part.
    waiting: Vec<u8>,
    /// Compresses each line when it is written; waiting lines are not compressed.
    packer: Option<Packer>,
    /// The rest of a compressed line whose beginning was written.
    begun: Vec<u8>,
    /// Dropped lines that the log has not reported yet.
    lost: u64,
    /// Those of them that are not in the instance's count yet.
    uncounted: u64,
    /// Why the destination refused the last of them; `None` if it was not ready for too long.
    refusal: Option<Errno>,
    /// Why the destination is out of reach, which the master opens again: lines wait for it.
    away: Option<Errno>,
    /// The destination failed after the beginning of a line: the next line must begin with a newline.
    is_torn: bool,
}

impl Writer {
    pub fn new(
        number: usize,
        destination: &'static Destination,
        is_reopened: &'static AtomicBool,
        packing: Option<&Packing>,
    ) -> Writer {
        let (packer, begun, waiting) = (packing.map(Packer::new), Vec::new(), Vec::new());
        Writer {
            number,
            destination,
            is_reopened,
            packer,
            begun,
            waiting,
            lost: 0,
            uncounted: 0,
            refusal: None,
            away: None,
            is_torn: false,
        }
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.begun.is_empty()
    }

    /// Whether lines wait until the master has opened the destination again.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The destination was replaced: the rest of a compressed line is of no use there.
    pub fn discard_begun(&mut self) {
        if !self.begun.is_empty() {
            self.begun = Vec::new();
            self.count_lost(1);
        }
    }

    /// Puts a line before those that wait. The destination was replaced, and this is its first line.
    pub fn put_first(&mut self, line: &[u8]) {
        self.waiting.splice(0..0, line.iter().copied());
    }

    /// Lines that were dropped since the last call.
    pub fn take_uncounted(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    /// The process exits: lines that still wait are lost.
    pub fn give_up(&mut self) {
        let lines = count_lines(&self.waiting) + u64::from(!self.begun.is_empty());
        (self.waiting, self.begun) = (Vec::new(), Vec::new());
        self.uncounted += lines;
    }

    fn count_lost(&mut self, lines: u64) {
        self.lost += lines;
        self.uncounted += lines;
    }

    /// Writes whole lines, or queues those that are not accepted.
    pub fn write(&mut self, lines: &[u8]) {
        self.flush();
        if !self.is_waiting() && self.lost > 0 {
            // The destination still fails, or it would have accepted the notice: these lines are lost like those before them.
            self.count_lost(count_lines(lines));
            return;
        }
        let begun = if self.is_waiting() { 0 } else { self.send(lines) };
        let rest = &lines[begun..];
        if rest.is_empty() {
            return;
        }
        // The rest of a line that was begun is queued whatever room there is, so that other lines can be written between its
        // parts for as short a time as possible.
        let is_torn = begun > 0 && lines[begun - 1] != b'\n';
        let torn = if is_torn { end_of_line(rest) } else { 0 };
        self.waiting.extend_from_slice(&rest[..torn]);
        self.keep(&rest[torn..]);
    }

    /// Writes waiting lines, as many as are accepted.
    pub fn flush(&mut self) {
        if !self.finish_begun() {
            return;
        }
        if !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            let sent = self.send(&waiting);
            self.waiting = waiting;
            self.waiting.drain(..sent);
        }
        let lost = self.lost;
        if !self.is_waiting() && lost > 0 {
            let line_end: &[u8] = if self.is_torn { b"\n" } else { b"" };
            let notice = [line_end, &self.notice()].concat();
            let sent = self.send(&notice);
            self.waiting.extend_from_slice(&notice[sent..]);
            // A destination that still fails has refused the notice as well, which does not count as a lost line.
            let is_broken = self.lost > lost;
            if is_broken {
                self.uncounted -= self.lost - lost;
                self.lost = lost;
            } else {
                (self.lost, self.refusal, self.is_torn) = (0, None, false);
            }
        }
        if self.waiting.is_empty() && self.waiting.capacity() > ATOMIC_BYTES {
            self.waiting = Vec::new();
        }
    }

    /// Writes pieces until one is not accepted. Returns the number of bytes that are done. Lines that a failing destination
    /// refuses count as lost.
    fn send(&mut self, lines: &[u8]) -> usize {
        if self.packer.is_some() {
            return self.send_packed(lines);
        }
        let mut done = 0;
        while done < lines.len() {
            let rest = &lines[done..];
            let piece = &rest[..self.piece_length(rest)];
            match self.write_piece(piece) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(count) => done += count,
                Err(Errno::EINTR) => {}
                // Only this line is longer than a datagram.
                Err(error @ Errno::EMSGSIZE) => {
                    self.count_lost(count_lines(piece));
                    self.refusal = Some(error);
                    done += piece.len();
                }
                // The reader is gone, or the disk is full. There is no other place to report it.
                Err(error) => {
                    self.count_lost(count_lines(rest));
                    self.refusal = Some(error);
                    self.is_torn |= done > 0 && lines[done - 1] != b'\n';
                    return lines.len();
                }
            }
        }
        done
    }

    /// [`Writer::send`] for a log whose lines are compressed when they are written.
    fn send_packed(&mut self, lines: &[u8]) -> usize {
        let mut done = 0;
        while done < lines.len() && self.finish_begun() {
            let rest = &lines[done..];
            let line = &rest[..end_of_line(rest)];
            // The line in a datagram has no newline.
            let text = if self.destination.takes_single_lines() { line.strip_suffix(b"\n").unwrap_or(line) } else { line };
            let Some(record) = self.packer.as_mut().and_then(|packer| packer.pack(text)) else {
                self.count_lost(1);
                done += line.len();
                continue;
            };
            match self.write_piece(&record) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(count) => {
                    self.begun.extend_from_slice(&record[count..]);
                    done += line.len();
                }
                Err(Errno::EINTR) => {}
                Err(error @ Errno::EMSGSIZE) => {
                    self.count_lost(1);
                    self.refusal = Some(error);
                    done += line.len();
                }
                Err(error) => {
                    self.count_lost(count_lines(rest));
                    self.refusal = Some(error);
                    return lines.len();
                }
            }
        }
        done
    }

    /// Writes the rest of a compressed line. Returns whether it is written. Without the rest no later line could be read, so a
    /// full disk is waited for.
    fn finish_begun(&mut self) -> bool {
        while !self.begun.is_empty() {
            match self.destination.write(&self.begun) {
                Ok(0) | Err(Errno::EAGAIN | Errno::ENOSPC | Errno::EDQUOT) => return false,
                Ok(count) => drop(self.begun.drain(..count)),
                Err(Errno::EINTR) => {}
                // Without its beginning the rest can't be read.
                Err(_) => self.discard_begun(),
            }
        }
        true
    }

    /// Writes to the destination. One that is out of reach, and that the master opens again, counts as not ready.
    fn write_piece(&mut self, piece: &[u8]) -> nix::Result<usize> {
        let written = self.destination.write(piece);
        self.away = written.err().filter(|error| self.is_reopened.load(Relaxed) && destination::is_out_of_reach(*error));
        if self.away.is_some() { Err(Errno::EAGAIN) } else { written }
    }

    /// Bytes up to the end of the last line that fits in an atomic write, or of the first line if that is longer or if lines are
    /// written singly.
    fn piece_length(&self, text: &[u8]) -> usize {
        if self.destination.takes_single_lines() {
            return end_of_line(text);
        }
        if text.len() <= ATOMIC_BYTES {
            return text.len();
        }
        memchr::memrchr(b'\n', &text[..ATOMIC_BYTES]).map_or_else(|| end_of_line(text), |end| end + 1)
    }

    fn keep(&mut self, lines: &[u8]) {
        let mut rest = lines;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(end_of_line(rest));
            let notice = if self.lost > 0 { self.notice() } else { Vec::new() };
            if self.waiting.len() + notice.len() + line.len() > MAX_WAITING_BYTES {
                let lines = count_lines(rest);
                // The master writes how many of all processes were lost when it has opened the destination again.
                match self.away.is_some() && losses::are_shared() {
                    true => self.uncounted += lines,
                    false => self.count_lost(lines),
                }
                return;
            }
            (self.lost, self.refusal) = (0, None);
            self.waiting.extend_from_slice(&notice);
            self.waiting.extend_from_slice(line);
            rest = after;
        }
    }

    /// The line about the lines that are lost at this place.
    fn notice(&self) -> Vec<u8> {
        let lines = if self.lost == 1 { "1 line".to_owned() } else { format!("{} lines", self.lost) };
        let why = self.refusal.map_or("the reader did not take them", Errno::desc);
        flow::framed(self.number, &format!("{lines} of process {} are lost here: {why}", std::process::id()))
    }
}

fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

fn end_of_line(text: &[u8]) -> usize {
    memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolide_contract::logging::PackedForm;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    const PIPE_BYTES: usize = 4096;
    /// Whether the master opens the destination of a test again.
    static NEVER: AtomicBool = AtomicBool::new(false);
    static ALWAYS: AtomicBool = AtomicBool::new(true);

    /// A writer whose destination is a small pipe, and the pipe's other end.
    fn small_pipe() -> (Writer, File) {
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES as i32)).expect("a small pipe");
        for end in [&reader, &writer] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("non-blocking");
        }
        let destination = Box::leak(Box::new(Destination::of(writer).expect("a destination")));
        (Writer::new(1, destination, &NEVER, None), reader.into())
    }

    fn read_all(writer: &mut Writer, reader: &mut File) -> String {
        let mut text = String::new();
        loop {
            let mut taken = [0; PIPE_BYTES];
            match reader.read(&mut taken) {
                Ok(count) => text += &String::from_utf8_lossy(&taken[..count]),
                Err(_) if !writer.is_waiting() => return text,
                Err(_) => writer.flush(),
            }
        }
    }

    #[test]
    fn unread_lines_wait_and_arrive_whole_and_in_order() {
        let (mut writer, mut reader) = small_pipe();
        let lines: Vec<String> = (0..1000).map(|number| format!("{number} {}\n", "x".repeat(number % 90))).collect();
        for line in &lines {
            writer.write(line.as_bytes());
        }
        assert!(writer.is_waiting());
        assert_eq!(read_all(&mut writer, &mut reader), lines.concat());
    }

    #[test]
    fn beyond_the_bound_lines_are_dropped_and_told_where_they_are_missing() {
        let (mut writer, mut reader) = small_pipe();
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..5 {
            writer.write(line.repeat(1000).as_bytes());
        }
        assert!(writer.waiting.len() <= MAX_WAITING_BYTES);
        let mut first = [0; PIPE_BYTES];
        let taken = reader.read(&mut first).expect("read");
        writer.write(b"after the gap\n");
        let text = String::from_utf8_lossy(&first[..taken]).into_owned() + &read_all(&mut writer, &mut reader);
        let (before, after) = text.split_once("bolide: ").expect("the gap is told");
        let lost = 5000 - before.len() / line.len();
        assert_eq!(before.len() % line.len(), 0);
        let told = format!(
            "{lost} lines of process {} are lost here: the reader did not take them\nafter the gap\n",
            std::process::id()
        );
        assert_eq!(after, told);
    }

    #[test]
    fn a_line_longer_than_the_pipe_is_finished_before_the_next() {
        let (mut writer, mut reader) = small_pipe();
        let monster = format!("{}\n", "y".repeat(3 * PIPE_BYTES));
        writer.write(monster.as_bytes());
        writer.write(b"next\n");
        assert_eq!(read_all(&mut writer, &mut reader), monster + "next\n");
    }

    #[test]
    fn a_reader_that_has_gone_costs_lines_and_nothing_else() {
        let (mut writer, reader) = small_pipe();
        drop(reader);
        writer.write(b"one\ntwo\n");
        writer.flush();
        assert_eq!((writer.is_waiting(), writer.lost), (false, 2));
        for _ in 0..5 {
            writer.write(b"three\n");
        }
        assert_eq!((writer.is_waiting(), writer.lost), (false, 7));
    }

    #[test]
    fn lines_refused_by_a_full_disk_are_all_counted_and_the_next_one_starts_a_new_line() {
        let full = File::options().write(true).open("/dev/full").expect("opened");
        let mut writer = Writer::new(1, Box::leak(Box::new(Destination::of(full.into()).expect("a destination"))), &NEVER, None);
        for _ in 0..1000 {
            writer.write(b"refused\nrefused\n");
            writer.flush();
        }
        let (file, path) = nix::unistd::mkstemp(&std::env::temp_dir().join("bolide-full-XXXXXX")).expect("made");
        let file = File::from(file);
        writer.destination.replace_by(&file.into()).expect("replaced");
        writer.write(b"taken\n");
        let text = std::fs::read_to_string(&path).expect("read");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(
            text,
            format!("bolide: 2000 lines of process {} are lost here: No space left on device\ntaken\n", std::process::id())
        );
    }

    #[test]
    fn a_line_that_a_full_disk_takes_in_part_ends_before_the_next() {
        use nix::fcntl::SealFlag;
        use nix::sys::memfd::{MFdFlags, memfd_create};
        let full = File::from(memfd_create(c"full", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("made"));
        full.set_len(PIPE_BYTES as u64).expect("set");
        fcntl(&full, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).expect("sealed");
        let mut writer = Writer::new(1, Box::leak(Box::new(Destination::of(full.into()).expect("a destination"))), &NEVER, None);
        writer.write(format!("{}\n", "x".repeat(PIPE_BYTES - 6)).as_bytes());
        writer.write(b"taken in part\n");
        assert!(writer.is_torn);
        let (reader, other) = nix::unistd::pipe().expect("a pipe");
        writer.destination.replace_by(&other).expect("replaced");
        writer.write(b"next\n");
        let mut text = [0; 200];
        let length = File::from(reader).read(&mut text).expect("read");
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        assert!(text.starts_with("\nbolide: 1 line of process ") && text.ends_with("\nnext\n"), "{text:?}");
    }

    /// The decompressed output of a gzip log.
    fn unpacked(writer: &mut Writer, reader: &mut File) -> String {
        let mut packed = Vec::new();
        loop {
            let mut taken = [0; PIPE_BYTES];
            match reader.read(&mut taken) {
                Ok(count) => packed.extend_from_slice(&taken[..count]),
                Err(_) if !writer.is_waiting() => break,
                Err(_) => writer.flush(),
            }
        }
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("gzip");
        text
    }

    #[test]
    fn unread_compressed_lines_wait_and_dropped_ones_are_reported_in_a_compressed_line() {
        let (plain, mut reader) = small_pipe();
        let gzip = Packing { form: PackedForm::Gzip, before: String::new(), after: String::new() };
        let mut writer = Writer::new(1, plain.destination, &NEVER, Some(&gzip));
        // Hardly compressible, each is longer than what the pipe accepts at a time.
        let mut noise = 1u32;
        let mut digit = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + (noise >> 24) as u8 % 90)
        };
        let lines: Vec<String> = (0..130).map(|_| (0..9_999).map(|_| digit()).chain(['\n']).collect()).collect();
        for line in &lines {
            writer.write(line.as_bytes());
        }
        assert!(writer.waiting.len() <= MAX_WAITING_BYTES);
        let text = unpacked(&mut writer, &mut reader);
        let (before, after) = text.split_once("bolide: ").expect("the gap is told");
        let taken = before.len() / 10_000;
        assert_eq!(before, lines[..taken].concat());
        let lost = lines.len() - taken;
        assert_eq!(
            after,
            format!("{lost} lines of process {} are lost here: the reader did not take them\n", std::process::id())
        );
        writer.write(b"after\n");
        assert_eq!(unpacked(&mut writer, &mut reader), "after\n");
    }

    #[test]
    fn the_rest_of_a_compressed_line_is_not_written_into_what_takes_the_place_of_its_destination() {
        let (plain, _reader) = small_pipe();
        let gzip = Packing { form: PackedForm::Gzip, before: "<".repeat(2 * PIPE_BYTES), after: String::new() };
        let mut writer = Writer::new(1, plain.destination, &NEVER, Some(&gzip));
        writer.write(b"begun\n");
        assert!(!writer.begun.is_empty());
        writer.discard_begun();
        assert_eq!((writer.is_waiting(), writer.lost), (false, 1));
    }

    #[test]
    fn a_long_text_is_written_in_pieces_that_are_whole_lines() {
        let (writer, _reader) = small_pipe();
        let line = format!("{}\n", "x".repeat(1500));
        let text = line.repeat(10).into_bytes();
        let length = writer.piece_length(&text);
        assert!(length <= ATOMIC_BYTES && length.is_multiple_of(line.len()) && length > 0);
        let monster = format!("{}\n{line}", "y".repeat(9000)).into_bytes();
        assert_eq!(writer.piece_length(&monster), 9001);
    }

    #[test]
    fn lines_for_a_datagram_socket_without_a_reader_wait_and_come_after_the_first_line() {
        let directory = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-log-XXXXXX")).expect("made");
        let path = directory.join("socket");
        let read = |socket: &UnixDatagram| {
            let mut text = [0; 100];
            let length = socket.recv(&mut text).expect("a line");
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        let socket = |is_connected: bool| {
            let socket = UnixDatagram::unbound().expect("made");
            assert!(!is_connected || socket.connect(&path).is_ok());
            OwnedFd::from(socket)
        };
        let destination = Box::leak(Box::new(Destination::of(socket(false)).expect("a destination")));
        let mut writer = Writer::new(1, destination, &ALWAYS, None);
        writer.write(b"one\ntwo\n");
        assert!(writer.is_waiting() && writer.is_away());
        let reader = UnixDatagram::bind(&path).expect("bound");
        destination.replace_by(&socket(true)).expect("replaced");
        writer.put_first(b"first\n");
        writer.flush();
        assert_eq!([read(&reader), read(&reader), read(&reader)], ["first", "one", "two"]);
        drop(reader);
        writer.write(b"three\n");
        assert!(writer.is_away());
        writer.give_up();
        assert_eq!((writer.is_waiting(), writer.take_uncounted()), (false, 1));
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_line_that_is_too_long_for_a_datagram_is_lost_alone() {
        let (socket, reader) = UnixDatagram::pair().expect("made");
        let room = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::SndBuf).expect("read");
        let mut writer =
            Writer::new(1, Box::leak(Box::new(Destination::of(socket.into()).expect("a destination"))), &NEVER, None);
        writer.write(format!("one\n{}\ntwo\n", "x".repeat(room)).as_bytes());
        writer.flush();
        let lines = std::array::from_fn::<String, 3, _>(|_| {
            let mut text = [0; 100];
            let length = reader.recv(&mut text).expect("a line");
            String::from_utf8_lossy(&text[..length]).into_owned()
        });
        assert_eq!([&*lines[0], &*lines[1]], ["one", "two"]);
        assert!(lines[2].contains("1 line of process") && lines[2].contains("Message too long"), "{}", lines[2]);
    }
}
