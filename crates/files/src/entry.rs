//! A file as a lookup found it: its content or descriptor, its validators, and prebuilt heads of its answers.
//!
//! It must not know requests. Workers keep it in their cache.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cache::Weight;
use crate::dates;
use crate::mime_types::MimeType;
use crate::roots::{FileVersion, OpenedRoot, Refusal, ResolvedPath};
use crate::rules::Expires;
use bolide_contract::answering::Coding;

/// Files up to this size are kept in memory and sent with one call. Beyond it, sendfile costs less than a copy.
pub const MEMORY_BYTES: u64 = 16 * 1024;

/// Upper estimate of the bytes of an entry besides its content: its heads and its slot in the table.
const ENTRY_BYTES: u64 = 1536;

/// A file that changes while it is being read is read once more, and then sent from its descriptor.
const READ_TRIES: u32 = 2;

/// Two changes in the same tick of the file system's clock leave the same version. Content that was read within this many seconds
/// of a change is therefore read again.
pub const SETTLED_SECONDS: i64 = 2;

/// A file as a lookup found it.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundFile {
    pub resolved: ResolvedPath,
    pub version: FileVersion,
    /// The compressed forms that lie beside it.
    pub beside: Vec<(Coding, ResolvedPath, FileVersion)>,
}

pub struct Entry {
    /// The index of its [`crate::sources::FileSource`].
    pub source: usize,
    pub found: FoundFile,
    /// Monotonic milliseconds at which it was last found unchanged.
    pub checked_ms: AtomicU64,
    /// The original first.
    pub variants: Vec<Variant>,
    pub expires: Expires,
    /// The content in memory was read so long after its last change that any later change shows in the version.
    is_settled: bool,
}

/// One form in which the content may be sent.
pub struct Variant {
    pub coding: Option<Coding>,
    pub content: Content,
    pub version: FileVersion,
    pub etag: String,
    pub last_modified: Option<i64>,
    /// Complete except for the connection's fields and the empty line.
    pub whole: Head,
    pub not_modified: Head,
    /// The fields that the answers to ranges share with the whole, without Content-Type and Content-Length.
    pub common: Head,
    pub content_type: String,
}

#[derive(Clone)]
pub enum Content {
    Memory(Arc<[u8]>),
    File(Arc<File>),
}

/// Lines of a head, and the number of its fields.
#[derive(Debug, Default, Clone)]
pub struct Head {
    pub bytes: Vec<u8>,
    pub fields: u32,
}

impl Head {
    /// Begins with a status and its reason.
    pub fn status(line: &str) -> Head {
        Head { bytes: [line.as_bytes(), b"\r\n"].concat(), fields: 0 }
    }

    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Head {
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value.as_ref());
        self.bytes.extend_from_slice(b"\r\n");
        self.fields += 1;
        self
    }

    pub fn with_number(self, name: &str, number: u64) -> Head {
        self.with(name, itoa::Buffer::new().format(number))
    }

    pub fn and(mut self, other: &Head) -> Head {
        self.bytes.extend_from_slice(&other.bytes);
        self.fields += other.fields;
        self
    }
}

/// Header values that all forms of a file share.
pub struct Description<'a> {
    pub kind: MimeType,
    pub cache_control: Option<&'a str>,
    pub expires: Expires,
}

impl Entry {
    /// Opens a file that was found, and reads it if it is small.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn load(
        root: &OpenedRoot,
        source: usize,
        found: FoundFile,
        description: &Description<'_>,
        now_ms: u64,
        now: i64,
        keep: bool,
    ) -> Result<Entry, Refusal> {
        let has_variants = !found.beside.is_empty();
        let mut variants = vec![Variant::load(root, &found.resolved, None, description, has_variants, now, keep)?];
        for (coding, resolved, _) in &found.beside {
            variants.push(Variant::load(root, resolved, Some(*coding), description, has_variants, now, keep)?);
        }
        let is_settled = variants
            .iter()
            .all(|variant| matches!(variant.content, Content::File(_)) || variant.version.is_settled(now, SETTLED_SECONDS));
        Ok(Entry { source, found, checked_ms: AtomicU64::new(now_ms), variants, expires: description.expires, is_settled })
    }

    pub fn weight(&self) -> Weight {
        self.variants.iter().fold(Weight { bytes: ENTRY_BYTES, descriptors: 0 }, |sum, variant| match &variant.content {
            Content::Memory(bytes) => Weight { bytes: sum.bytes + bytes.len() as u64, ..sum },
            Content::File(_) => Weight { descriptors: sum.descriptors + 1, ..sum },
        })
    }

    /// Whether the entry is of the file that was found now: the versions are the same, and no change can hide between the two.
    pub fn is_of(&self, found: &FoundFile) -> bool {
        let versions = std::iter::once(&found.version).chain(found.beside.iter().map(|(_, _, version)| version));
        self.is_settled && self.found == *found && self.variants.iter().map(|variant| &variant.version).eq(versions)
    }

    pub fn is_fresh(&self, now_ms: u64, most_ms: u64) -> bool {
        now_ms.saturating_sub(self.checked_ms.load(Relaxed)) < most_ms
    }
}

impl Variant {
    fn load(
        root: &OpenedRoot,
        resolved: &ResolvedPath,
        coding: Option<Coding>,
        description: &Description<'_>,
        varies: bool,
        now: i64,
        keep: bool,
    ) -> Result<Variant, Refusal> {
        let (content, version) = read(root, resolved, keep)?;
        let etag = etag(&version);
        // RFC 9110 section 8.8.2.1: Last-Modified must not be later than the answer.
        let last_modified = Some(version.changed.0).filter(|changed| *changed <= now && *changed >= 0);
        let mut always = Head::default().with("ETag", &etag);
        if let Some(value) = description.cache_control {
            always = always.with("Cache-Control", value);
        }
        if varies {
            always = always.with("Vary", "Accept-Encoding");
        }
        let mut common = Head::default();
        if let Some(seconds) = last_modified {
            common = common.with("Last-Modified", dates::format(seconds));
        }
        common = common.and(&always).with("Accept-Ranges", "bytes");
        if let Some(coding) = coding {
            common = common.with("Content-Encoding", coding.name());
        }
        let content_type = description.kind.full.clone();
        let whole =
            Head::status("200 OK").with("Content-Type", &content_type).and(&common).with_number("Content-Length", version.bytes);
        // RFC 9110 section 15.4.5: a 304 has only the metadata that guides cache updates.
        let not_modified = Head::status("304 Not Modified").and(&always);
        Ok(Variant { coding, content, version, etag, last_modified, whole, not_modified, common, content_type })
    }
}

/// Strong, because it changes with every change that the file system records.
fn etag(version: &FileVersion) -> String {
    let (seconds, nanoseconds) = version.changed;
    let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    format!("\"{:x}-{:x}-{:x}\"", version.inode, version.bytes, changed)
}

/// Opens a file, and reads it into memory if it is small and does not change in the meantime.
fn read(root: &OpenedRoot, resolved: &ResolvedPath, keep: bool) -> Result<(Content, FileVersion), Refusal> {
    let (mut file, mut version) = root.read(resolved)?;
    for _ in 0..READ_TRIES {
        if !keep || version.bytes > MEMORY_BYTES {
            break;
        }
        if let Some(bytes) = read_whole(&mut file, version).map_err(broken)? {
            return Ok((Content::Memory(bytes.into()), version));
        }
        (file, version) = root.read(resolved)?;
    }
    Ok((Content::File(Arc::new(file)), version))
}

/// Returns `None` if the file changed while it was read.
pub(crate) fn read_whole(file: &mut File, version: FileVersion) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(version.bytes as usize + 1);
    Read::by_ref(file).take(version.bytes + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == version.bytes && FileVersion::now(file)? == version).then_some(bytes))
}

fn broken(error: io::Error) -> Refusal {
    let errno = error.raw_os_error().map_or(nix::errno::Errno::EIO, nix::errno::Errno::from_raw);
    Refusal::Broken(errno)
}
