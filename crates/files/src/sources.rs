//! The configured directories that files are served from: for paths of requests, and for files that an application names. It must
//! not know requests. Workers run it.

use std::path::PathBuf;

use bolide_contract::files::{MapKind, XSendfile as Settings};

use crate::roots::Root;

/// A directory that files are served from. Several may contain the same path.
pub(crate) struct FileSource {
    /// Its identity.
    pub number: usize,
    pub kind: MapKind,
    pub root: Root,
    /// A route names it, and decides how the request's path maps to it.
    pub is_routed: bool,
}

/// The response header by which an application names a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendfileHeader {
    /// `X-Sendfile`: the file's own path.
    Path,
    /// `X-Accel-Redirect`: a path that maps to a directory. Already percent-decoded, without a query.
    Location,
}

impl SendfileHeader {
    pub fn field(self) -> &'static str {
        match self {
            SendfileHeader::Path => "X-Sendfile",
            SendfileHeader::Location => "X-Accel-Redirect",
        }
    }
}

/// The directories, each with the prefix of the names that lead into it.
pub(crate) struct XSendfileDirectories {
    by_path: Vec<(Vec<u8>, FileSource)>,
    by_location: Vec<(Vec<u8>, FileSource)>,
}

impl XSendfileDirectories {
    pub fn new(settings: &Settings) -> XSendfileDirectories {
        let source = |directory: &PathBuf| FileSource {
            number: usize::MAX,
            kind: MapKind::Replace,
            root: Root::new(directory.clone()),
            is_routed: false,
        };
        let path = |directory: &PathBuf| directory.as_os_str().as_encoded_bytes().to_vec();
        let location = |(prefix, directory): &(String, PathBuf)| (prefix.clone().into_bytes(), source(directory));
        XSendfileDirectories {
            by_path: settings.by_path.iter().map(|directory| (path(directory), source(directory))).collect(),
            by_location: settings.by_location.iter().map(location).collect(),
        }
    }

    pub fn of(&self, header: SendfileHeader) -> &[(Vec<u8>, FileSource)] {
        match header {
            SendfileHeader::Path => &self.by_path,
            SendfileHeader::Location => &self.by_location,
        }
    }
}
