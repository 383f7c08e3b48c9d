//! A part of a file as a body, or as a part of one: what is left of it, and the state in which it was promised.
//!
//! It knows no sockets and no protocol. Worker threads run it.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bolide_files::roots::FileVersion;

pub struct BodyFile {
    pub file: Arc<File>,
    pub offset: i64,
    pub left: u64,
    /// The state of the file that the answer's head is about: when it has changed before the end, the answer is broken off.
    pub promised: Option<FileVersion>,
    /// Something of the answer was sent earlier than now.
    pub has_begun: bool,
}

/// Bytes, and the file that follows them.
pub struct QueuedPart {
    pub before: Vec<u8>,
    pub file: Option<Box<BodyFile>>,
}

/// The files that follow one, in their order, each behind its bytes.
pub struct Queue(pub VecDeque<QueuedPart>);

impl BodyFile {
    pub fn promised(file: Arc<File>, bytes: Range<u64>, version: FileVersion) -> BodyFile {
        let left = bytes.end - bytes.start;
        BodyFile { file, offset: bytes.start.cast_signed(), left, promised: Some(version), has_begun: false }
    }

    /// Whether the last byte must not leave, because those before it were of another content.
    pub fn has_changed(&self) -> bool {
        self.has_begun
            && self.promised.is_some_and(|version| !FileVersion::now(&self.file).is_ok_and(|now| now.is_same_content(&version)))
    }
}
