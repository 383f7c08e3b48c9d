//! Request bodies that are collected before the application is called: in memory up to `post-buffering` bytes, and beyond that in
//! an unlinked temporary file. Slow clients use memory, but never a thread. The bodies of a worker have common limits, see
//! [`BodyStore`].
//!
//! It does not know about sockets or the application. Worker threads run it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bolide_protocol::Fault;
use bolide_protocol::http1::Framing;

/// Maximum number of bytes to allocate for a body with a Content-Length before any of it has arrived.
const FIRST_CLAIM_BYTES: u64 = 64 * 1024;

/// Maximum size in bytes of all incomplete bodies in a worker's memory. Beyond it a body goes to a file from its first byte on,
/// as if `post-buffering` were 0.
const MAX_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// A complete body.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    Memory(Vec<u8>),
    /// The file is at offset 0; no other process can open it.
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

/// Why a body can't be collected.
#[derive(Debug)]
pub enum Refusal {
    /// An error of the client.
    Fault(Fault),
    /// An error of the disk.
    Spill(io::Error),
}

/// The limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    pub bytes: u64,
    pub memory_bytes: usize,
    pub store: &'static BodyStore,
}

/// The storage that all bodies of a worker use together, while they arrive and while they are served.
#[derive(Debug)]
pub struct BodyStore {
    /// `limit-post-disk`
    disk_most_bytes: u64,
    disk_bytes: AtomicU64,
    memory_bytes: AtomicU64,
}

impl BodyStore {
    /// Allocated for the life of the process, because bodies refer to it.
    pub fn lasting(disk_most_bytes: u64) -> &'static BodyStore {
        Box::leak(Box::new(BodyStore { disk_most_bytes, disk_bytes: AtomicU64::new(0), memory_bytes: AtomicU64::new(0) }))
    }
}

/// The part of a [`BodyStore`] that one body uses, returned on drop.
#[derive(Debug)]
pub struct Share {
    store: &'static BodyStore,
    disk_bytes: u64,
    memory_bytes: u64,
}

impl Share {
    /// Reserves more bytes on the disk. Returns false beyond the limit.
    fn grow_on_disk(&mut self, bytes: u64) -> bool {
        let before = self.store.disk_bytes.fetch_add(bytes, Relaxed);
        self.disk_bytes += bytes;
        before + bytes <= self.store.disk_most_bytes
    }

    /// Sets the reserved memory to this size. Returns false beyond the limit.
    fn set_memory(&mut self, bytes: u64) -> bool {
        self.store.memory_bytes.fetch_add(bytes, Relaxed);
        let sum = self.store.memory_bytes.fetch_sub(self.memory_bytes, Relaxed) - self.memory_bytes;
        self.memory_bytes = bytes;
        sum <= MAX_MEMORY_BYTES
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.store.disk_bytes.fetch_sub(self.disk_bytes, Relaxed);
        self.store.memory_bytes.fetch_sub(self.memory_bytes, Relaxed);
    }
}

/// An incomplete body.
pub struct Collector {
    limits: BodyLimits,
    memory: Vec<u8>,
    file: Option<File>,
    received: u64,
    share: Share,
}

const TOO_LARGE: Fault = Fault::new(413, "the body is larger than limit-post allows");
const TOO_LARGE_FOR_DISK: Fault = Fault::new(413, "the body is larger than limit-post-disk allows");

/// RFC 4918 section 11.5: a condition that is considered temporary.
const NO_ROOM: Fault = Fault::new(507, "the temporary files of this worker hold as many bytes as limit-post-disk allows");

impl Collector {
    /// Begins to collect; returns `None` if there is no body.
    ///
    /// # Errors
    /// 413 if the announced length exceeds the limit.
    pub fn new(framing: Framing, limits: BodyLimits) -> Result<Option<Collector>, Fault> {
        let claim = match framing {
            Framing::None | Framing::Length(0) => return Ok(None),
            Framing::Length(length) if length > limits.bytes => return Err(TOO_LARGE),
            Framing::Length(length) if length > limits.store.disk_most_bytes.max(limits.memory_bytes as u64) => {
                return Err(TOO_LARGE_FOR_DISK);
            }
            Framing::Length(length) => length.min(FIRST_CLAIM_BYTES).min(limits.memory_bytes as u64) as usize,
            Framing::Chunked => 0,
        };
        let share = Share { store: limits.store, disk_bytes: 0, memory_bytes: 0 };
        Ok(Some(Collector { limits, memory: Vec::with_capacity(claim), file: None, received: 0, share }))
    }

    /// Begins to collect a body whose length is known at its end, for an adapter whose application needs it first.
    pub fn of_unknown_length(limits: BodyLimits) -> Collector {
        let share = Share { store: limits.store, disk_bytes: 0, memory_bytes: 0 };
        Collector { limits, memory: Vec::new(), file: None, received: 0, share }
    }

    /// Adds bytes of the body.
    ///
    /// # Errors
    /// A body beyond its limit, or an error of the disk.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.received += bytes.len() as u64;
        if self.received > self.limits.bytes {
            return Err(Refusal::Fault(TOO_LARGE));
        }
        if self.will_spill(bytes.len()) {
            return self.spill(bytes);
        }
        self.memory.extend_from_slice(bytes);
        Ok(())
    }

    /// The rest of the body arrives later, so the part in memory counts towards the worker's limit. Bodies that arrive in one
    /// piece are served without being counted.
    ///
    /// # Errors
    /// There is no room in memory, and the disk can't store the body.
    pub fn wait(&mut self) -> Result<(), Refusal> {
        if !self.share.set_memory(self.memory.capacity() as u64) {
            self.spill(b"")?;
            self.memory = Vec::new();
            self.share.set_memory(0);
        }
        Ok(())
    }

    /// The rest of the body is not read yet: the part that is here takes only the memory that it needs.
    pub fn shrink(&mut self) {
        self.memory.shrink_to_fit();
    }

    /// Whether this many more bytes will go to the disk, as far as can be predicted: a slow operation.
    pub fn will_spill(&self, bytes: usize) -> bool {
        self.memory.len() + bytes > self.limits.memory_bytes
    }

    /// Part of the body is on the disk.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the complete body, and its share of the storage, which must be kept until the body has been served.
    ///
    /// # Errors
    /// The end of the body can't be written to the disk, or the temporary file can't be rewound.
    pub fn finish(mut self) -> Result<(Body, Share), Refusal> {
        if self.file.is_some() {
            self.spill(b"")?;
        }
        let body = match self.file {
            Some(mut file) => {
                file.seek(SeekFrom::Start(0)).map_err(Refusal::Spill)?;
                Body::File { file, length: self.received }
            }
            None if self.memory.is_empty() => Body::Empty,
            None => Body::Memory(self.memory),
        };
        Ok((body, self.share))
    }

    /// Writes the bytes in memory, followed by `bytes`, to the file.
    fn spill(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let count = self.memory.len() + bytes.len();
        if count == 0 {
            return Ok(());
        }
        if !self.share.grow_on_disk(count as u64) {
            return Err(Refusal::Fault(NO_ROOM));
        }
        let file = match &mut self.file {
            Some(file) => file,
            place => place.insert(temporary_file().map_err(Refusal::Spill)?),
        };
        file.write_all(&self.memory).map_err(Refusal::Spill)?;
        file.write_all(bytes).map_err(Refusal::Spill)?;
        self.memory.clear();
        Ok(())
    }
}

/// Creates an unnamed file in the directory for temporary files: it is deleted with its last descriptor.
fn temporary_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let directory = std::env::temp_dir();
    let unnamed = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(&directory);
    match unnamed {
        // Not every file system supports O_TMPFILE (open(2)): in this case the file is named for a moment.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let template = directory.join("bolide-body-XXXXXX");
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

    fn collect(limits: BodyLimits, body: &[u8], step: usize) -> Body {
        let framing = Framing::Length(body.len() as u64);
        let mut collector = Collector::new(framing, limits).expect("within limits").expect("a body");
        for piece in body.chunks(step) {
            collector.keep(piece).expect("room");
            collector.wait().expect("room");
        }
        collector.finish().expect("finished").0
    }

    fn limits(bytes: u64, memory_bytes: usize, disk_bytes: u64) -> BodyLimits {
        BodyLimits { bytes, memory_bytes, store: BodyStore::lasting(disk_bytes) }
    }

    fn roomy() -> BodyLimits {
        limits(1 << 20, 1 << 16, 1 << 20)
    }

    fn begun(length: u64, limits: BodyLimits) -> Collector {
        Collector::new(Framing::Length(length), limits).expect("within limits").expect("a body")
    }

    fn status(refused: Result<(), Refusal>) -> u16 {
        match refused {
            Err(Refusal::Fault(fault)) => fault.status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_is_the_same_whole_and_byte_by_byte() {
        for step in [1, 2, 5, 100] {
            let Body::Memory(bytes) = collect(roomy(), b"hello", step) else { panic!("kept in memory") };
            assert_eq!(bytes, b"hello");
        }
    }

    #[test]
    fn a_body_beyond_post_buffering_goes_to_a_file_and_comes_back_whole() {
        let wire: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let limits = limits(1 << 20, 1000, 1 << 20);
        let body = collect(limits, &wire, 777);
        let Body::File { mut file, length } = body else { panic!("spilled to a file") };
        let mut back = Vec::new();
        file.read_to_end(&mut back).expect("read");
        assert_eq!((length as usize, back), (wire.len(), wire));
    }

    #[test]
    fn a_body_beyond_its_limit_is_refused_by_its_announcement_or_as_it_comes() {
        let limits = limits(4, 1000, 1000);
        assert_eq!(Collector::new(Framing::Length(5), limits).err().map(|fault| fault.status), Some(413));
        let mut chunked = Collector::new(Framing::Chunked, limits).expect("begun").expect("a body");
        assert_eq!(status(chunked.keep(b"hello")), 413);
    }

    #[test]
    fn a_body_that_the_disk_may_never_hold_is_refused_by_its_announcement() {
        let limits = limits(u64::MAX, 100, 1000);
        assert_eq!(Collector::new(Framing::Length(1001), limits).err().map(|fault| fault.status), Some(413));
        assert!(Collector::new(Framing::Length(1000), limits).is_ok());
        assert!(Collector::new(Framing::Length(1000), self::limits(u64::MAX, 2000, 0)).is_ok(), "in memory there is room");
    }

    #[test]
    fn bodies_on_the_disk_have_a_bound_together_and_give_their_room_back() {
        let limits = limits(u64::MAX, 100, 1000);
        let mut first = begun(600, limits);
        first.keep(&[0; 600]).expect("room");
        let (_, share) = first.finish().expect("room");
        let mut second = begun(600, limits);
        assert_eq!(status(second.keep(&[0; 600])), 507);
        drop(second);
        drop(share);
        begun(600, limits).keep(&[0; 600]).expect("room again");
        assert_eq!((limits.store.disk_bytes.load(Relaxed), limits.store.memory_bytes.load(Relaxed)), (0, 0));
    }

    #[test]
    fn unfinished_bodies_go_to_the_disk_where_memory_is_full_of_them() {
        let limits = limits(u64::MAX, 1 << 20, 1 << 30);
        let mut waiting = Vec::new();
        for _ in 0..70 {
            let mut body = begun(1 << 20, limits);
            body.keep(&[7; 1_000_000]).expect("room");
            body.wait().expect("room");
            waiting.push(body);
            assert!(limits.store.memory_bytes.load(Relaxed) <= MAX_MEMORY_BYTES);
        }
        assert!(limits.store.disk_bytes.load(Relaxed) > 0);
        let last = waiting.last_mut().expect("one");
        last.keep(&[7; 48_576]).expect("room");
        let (body, _share) = waiting.pop().expect("one").finish().expect("finished");
        let Body::File { mut file, length } = body else { panic!("spilled to a file") };
        let mut back = Vec::new();
        file.read_to_end(&mut back).expect("read");
        assert_eq!((length, back), (1 << 20, vec![7; 1 << 20]));
    }
}
