//! Files that the application names in its answer: `X-Sendfile` with a path, `X-Accel-Redirect` with a location. They are looked
//! up like all files, through the same cache and with the same checks, but only in directories that the configuration allows for
//! this.
//!
//! It must not know the application's answer. Workers run it.

use crate::answer::Answer;
use crate::entry::Head;
use crate::lookup::{FileRequest, Files, Lookup};
use crate::paths;
use crate::sources::SendfileHeader;

impl Files {
    /// Whether the application may name a file in this header. Otherwise it is an ordinary field.
    pub fn allows(&self, header: SendfileHeader) -> bool {
        !self.x_sendfile.of(header).is_empty()
    }

    /// Whether it may name one in any header.
    pub fn allows_any_sendfile(&self) -> bool {
        self.allows(SendfileHeader::Path) || self.allows(SendfileHeader::Location)
    }

    /// Returns the answer with a file that the application has named; `request` has that name as its path. A name that is not
    /// allowed or does not exist is a 404, and the log says which. The disk is checked every time, because the application may
    /// have written the file just now.
    pub fn answer_named(&self, header: SendfileHeader, request: &FileRequest<'_>, complain: &mut dyn FnMut(&str)) -> Answer {
        let missing = || Answer::plain_text(404, "Not Found", Head::default(), "There is no such file.");
        let named = self
            .x_sendfile
            .of(header)
            .iter()
            .find_map(|(prefix, source)| Some((prefix, source, paths::below(request.path, prefix)?)));
        let Some((prefix, source, relative)) = named.filter(|(_, _, relative)| paths::is_plain(relative, true)) else {
            let (field, name) = (header.field(), request.path.escape_ascii());
            complain(&format!(
                "the application's {field} refers to {name}, which is not in a directory that the configuration allows for it"
            ));
            return missing();
        };
        // No path of a request begins with a NUL, so this key is unique.
        let key = [&b"\0"[..], header.field().as_bytes(), prefix, b"\0", relative].concat();
        let mut looked = Lookup::Redirect;
        // A file that has changed since it was last checked is looked up once more.
        for _ in 0..2 {
            let known = self.lock_cache().get(&key).cloned();
            looked = self.look_up_on_disk(source, &key, relative, known.as_ref(), request, complain);
            let Lookup::Entry(entry) = &looked else { break };
            let answer = self.answer_with(entry, request);
            if answer.is_current() {
                return answer;
            }
            self.lock_cache().remove(&key);
        }
        let found = match looked {
            // A directory is not a file, with or without an index.
            Lookup::Redirect => None,
            looked => self.answer_to(looked, source, request, complain),
        };
        found.unwrap_or_else(|| {
            complain(&format!(
                "the application's {} refers to {}, which does not exist",
                header.field(),
                request.path.escape_ascii()
            ));
            missing()
        })
    }
}
