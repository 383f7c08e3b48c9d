//! Files that a route names: their directories are known at startup, and the route gives the path within them.
//!
//! They are looked up like all files, through the same cache and with the same checks. It must not know route rules. Workers run
//! it.

use std::path::PathBuf;

use bolide_contract::files::MapKind;

use crate::answer::{self, Answer};
use crate::entry::{Head, Variant};
use crate::lookup::{FileRequest, Files, Lookup};
use crate::mime_types::UNKNOWN;
use crate::paths;
use crate::roots::{Refusal, Root};
use crate::sources::FileSource;

/// The file that a route names for a request.
pub struct Routed<'a> {
    /// The index of its directory.
    pub directory: usize,
    /// The path below it; empty for the directory itself, which may be a single file.
    pub relative: &'a [u8],
    /// The file is the page of another answer, which has its own status.
    pub page: Option<Page<'a>>,
}

#[derive(Clone, Copy)]
pub struct Page<'a> {
    pub status: u16,
    pub reason: &'a str,
    pub content_type: &'a str,
    /// The type follows from the file's name, if that has a known extension.
    pub type_by_name: bool,
}

impl Page<'_> {
    fn type_of<'a>(&'a self, variant: &'a Variant) -> &'a str {
        if self.type_by_name && variant.content_type != UNKNOWN { &variant.content_type } else { self.content_type }
    }
}

impl Files {
    /// Adds the directories that routes name, by index.
    #[must_use]
    pub fn with_directories(mut self, directories: &[PathBuf]) -> Files {
        let first = self.maps_count();
        let source = |(number, directory): (usize, &PathBuf)| FileSource {
            number: first + number,
            kind: MapKind::Replace,
            root: Root::new(directory.clone()),
            is_routed: true,
        };
        self.routed = directories.iter().enumerate().map(source).collect();
        self
    }

    /// Returns the answer to a request for which a route has named a file.
    pub fn find_routed(&self, routed: &Routed<'_>, request: &FileRequest<'_>, complain: &mut dyn FnMut(&str)) -> Answer {
        let Some(source) = self.routed.get(routed.directory) else { return self.answer_for_missing(b"GET") };
        // No path contains a NUL, so this key is unique.
        let key = [routed.directory.to_string().as_bytes(), b"\0\0", routed.relative].concat();
        match &routed.page {
            Some(page) => self.page(source, &key, routed.relative, *page, request, complain),
            None if !matches!(request.method, b"GET" | b"HEAD") => self.answer_for_missing(request.method),
            None => self
                .answer_from(source, &key, routed.relative, request, complain)
                .unwrap_or_else(|| self.answer_for_missing(request.method)),
        }
    }

    /// The whole file, whatever the request's method and conditions. Without the file, the answer is the status in plain text.
    fn page(
        &self,
        source: &FileSource,
        key: &[u8],
        relative: &[u8],
        page: Page<'_>,
        request: &FileRequest<'_>,
        complain: &mut dyn FnMut(&str),
    ) -> Answer {
        if paths::is_plain(relative, self.has_dot_files()) {
            // A file that has changed since it was last checked is looked up once more.
            for _ in 0..2 {
                match self.look_up(source, key, relative, request, complain) {
                    Lookup::Entry(entry) => {
                        let answer = answer::page(&entry, page.status, page.reason, page.type_of(&entry.variants[0]));
                        if answer.is_current() {
                            return answer;
                        }
                        self.lock_cache().remove(key);
                    }
                    Lookup::Refused(Refusal::Missing) | Lookup::Redirect => break,
                    Lookup::Refused(refusal) => {
                        complain(&format!("the page for {} can't be used: {refusal:?}", request.path.escape_ascii()));
                        break;
                    }
                }
            }
        }
        match page.status {
            400.. => Answer::plain_text(page.status, page.reason, Head::default(), page.reason),
            _ => self.answer_for_missing(b"GET"),
        }
    }
}
