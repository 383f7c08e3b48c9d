//! A request's body: collected by the event loop before the application is called, in memory up to
//! `post-buffering` bytes and beyond that in an unlinked temporary file. Slow clients cost memory, never a thread.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use bolide_protocol::Fault;
use bolide_protocol::http1::Framing;
use bolide_protocol::http1::chunked::{ChunkedDecoder, ChunkedStep};

/// Bytes that a body announced by Content-Length may claim from memory before any of it has come.
const FIRST_CLAIM_BYTES: u64 = 64 * 1024;

/// A whole body.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Memory(Vec<u8>),
    /// The file is at its beginning; nobody else can open it.
    File {
        file: File,
        length: u64,
    },
}

impl Body {
    pub fn length(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File { length, .. } => *length,
        }
    }
}

/// Why a body is not collected further.
#[derive(Debug)]
pub enum Refusal {
    /// The client's mistake.
    Fault(Fault),
    /// Our disk's.
    Spill(io::Error),
}

/// How much a body may take.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    pub bytes: u64,
    pub memory_bytes: usize,
}

/// A body that is still coming.
pub struct Collector {
    framing: Incoming,
    limits: BodyLimits,
    memory: Vec<u8>,
    file: Option<File>,
    received: u64,
}

enum Incoming {
    Length(u64),
    Chunked(ChunkedDecoder),
}

const TOO_LARGE: Fault = Fault { status: 413, reason: "the body is larger than limit-post allows" };

impl Collector {
    /// Begins to collect; `None` when there is no body.
    ///
    /// # Errors
    /// 413 when the announced length is already too much.
    pub fn new(framing: Framing, limits: BodyLimits) -> Result<Option<Collector>, Fault> {
        let incoming = match framing {
            Framing::None | Framing::Length(0) => return Ok(None),
            Framing::Length(length) if length > limits.bytes => return Err(TOO_LARGE),
            Framing::Length(length) => Incoming::Length(length),
            Framing::Chunked => Incoming::Chunked(ChunkedDecoder::default()),
        };
        let claim = match incoming {
            Incoming::Length(length) => length.min(FIRST_CLAIM_BYTES).min(limits.memory_bytes as u64) as usize,
            Incoming::Chunked(_) => 0,
        };
        Ok(Some(Collector { framing: incoming, limits, memory: Vec::with_capacity(claim), file: None, received: 0 }))
    }

    /// Takes what belongs to the body from the start of `input`. Returns the bytes used, and whether the body is complete.
    ///
    /// # Errors
    /// A malformed chunk, a body beyond its limit, or a disk that can't hold it.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, bool), Refusal> {
        if let Incoming::Length(length) = self.framing {
            let wanted = length - self.received;
            let taken = wanted.min(input.len() as u64) as usize;
            self.keep(&input[..taken])?;
            return Ok((taken, self.received == length));
        }
        let mut used = 0;
        while used < input.len() {
            let Incoming::Chunked(decoder) = &mut self.framing else { break };
            match decoder.step(&input[used..]).map_err(Refusal::Fault)? {
                ChunkedStep::Data { data, used: step } => {
                    let bytes = data.of(&input[used..]);
                    used += step;
                    if self.received + bytes.len() as u64 > self.limits.bytes {
                        return Err(Refusal::Fault(TOO_LARGE));
                    }
                    self.keep(bytes)?;
                }
                ChunkedStep::More { used: step } => return Ok((used + step, false)),
                ChunkedStep::Done { used: step } => return Ok((used + step, true)),
            }
        }
        Ok((used, false))
    }

    /// The body, once `feed` has said that it is complete.
    ///
    /// # Errors
    /// The temporary file can't be rewound.
    pub fn finish(self) -> io::Result<Body> {
        match self.file {
            Some(mut file) => {
                file.write_all(&self.memory)?;
                file.seek(SeekFrom::Start(0))?;
                Ok(Body::File { file, length: self.received })
            }
            None if self.memory.is_empty() => Ok(Body::Empty),
            None => Ok(Body::Memory(self.memory)),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.received += bytes.len() as u64;
        if self.memory.len() + bytes.len() > self.limits.memory_bytes {
            let file = match &mut self.file {
                Some(file) => file,
                place => place.insert(temporary_file().map_err(Refusal::Spill)?),
            };
            file.write_all(&self.memory).map_err(Refusal::Spill)?;
            file.write_all(bytes).map_err(Refusal::Spill)?;
            self.memory.clear();
            return Ok(());
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }
}

/// A file without a name in the folder for temporary files: it ends with its last descriptor.
fn temporary_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = std::env::temp_dir();
    let unnamed = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(&folder);
    match unnamed {
        // Not every file system has O_TMPFILE (open(2)): there the name lives for a moment.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let template = folder.join("bolide-body-XXXXXX");
            let (descriptor, path) = nix::unistd::mkstemp(&template)?;
            std::fs::remove_file(path)?;
            Ok(File::from(descriptor))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn collect(framing: Framing, limits: BodyLimits, input: &[u8], step: usize) -> (Body, usize) {
        let mut collector = Collector::new(framing, limits).expect("within limits").expect("a body");
        let mut position = 0;
        let mut complete = false;
        while !complete {
            let end = (position + step).min(input.len());
            let (used, done) = collector.feed(&input[position..end]).expect("well-formed");
            assert!(used > 0, "no progress at {position}");
            position += used;
            complete = done;
        }
        (collector.finish().expect("finished"), position)
    }

    const ROOMY: BodyLimits = BodyLimits { bytes: 1 << 20, memory_bytes: 1 << 16 };

    #[test]
    fn a_body_is_the_same_whole_byte_by_byte_and_with_a_request_behind_it() {
        let cases: [(Framing, &[u8], &[u8]); 2] = [
            (Framing::Length(5), b"hello", b"hello"),
            (Framing::Chunked, b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n", b"hello"),
        ];
        for (framing, wire, meaning) in cases {
            for step in [1, 2, wire.len(), wire.len() + 100] {
                let mut input = wire.to_vec();
                input.extend_from_slice(b"GET / HTTP/1.1\r\n");
                let (body, used) = collect(framing, ROOMY, &input, step);
                assert_eq!(used, wire.len(), "step {step}");
                let Body::Memory(bytes) = body else { panic!("kept in memory") };
                assert_eq!(bytes, meaning);
            }
        }
    }

    #[test]
    fn a_body_beyond_post_buffering_goes_to_a_file_and_comes_back_whole() {
        let wire: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let limits = BodyLimits { bytes: 1 << 20, memory_bytes: 1000 };
        let (body, _) = collect(Framing::Length(wire.len() as u64), limits, &wire, 777);
        let Body::File { mut file, length } = body else { panic!("spilled to a file") };
        let mut back = Vec::new();
        file.read_to_end(&mut back).expect("read");
        assert_eq!((length as usize, back), (wire.len(), wire));
    }

    #[test]
    fn a_body_beyond_its_limit_is_refused_by_its_announcement_or_as_it_comes() {
        let limits = BodyLimits { bytes: 4, memory_bytes: 1000 };
        assert_eq!(Collector::new(Framing::Length(5), limits).err().map(|fault| fault.status), Some(413));
        let mut chunked = Collector::new(Framing::Chunked, limits).expect("begun").expect("a body");
        assert!(matches!(chunked.feed(b"5\r\nhello\r\n"), Err(Refusal::Fault(fault)) if fault.status == 413));
    }
}
