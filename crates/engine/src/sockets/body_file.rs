//! A part of a file as a body, or as a part of one: how much of it is left, and which version of the file the head describes.
//!
//! It does not know about sockets or protocols. Worker threads run it.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bolide_files::roots::FileVersion;

pub struct BodyFile {
    pub file: Arc<File>,
    pub offset: i64,
    pub left: u64,
    /// The version of the file that the answer's head describes: if the file changes before the end, the answer is broken off.
    pub promised: Option<FileVersion>,
    /// A part of the answer was sent in an earlier call.
    pub has_begun: bool,
}

/// Bytes, and the file that follows them.
pub struct QueuedPart {
    pub before: Vec<u8>,
    pub file: Option<Box<BodyFile>>,
}

/// The files that follow one, in order, each behind its bytes.
pub struct Queue(pub VecDeque<QueuedPart>);

impl BodyFile {
    pub fn promised(file: Arc<File>, bytes: Range<u64>, version: FileVersion) -> BodyFile {
        let left = bytes.end - bytes.start;
        BodyFile { file, offset: bytes.start.cast_signed(), left, promised: Some(version), has_begun: false }
    }

    /// Whether the last byte must not be sent, because the bytes before it had different content.
    pub fn has_changed(&self) -> bool {
        self.has_begun
            && self.promised.is_some_and(|version| !FileVersion::now(&self.file).is_ok_and(|now| now.is_same_content(&version)))
    }
}
