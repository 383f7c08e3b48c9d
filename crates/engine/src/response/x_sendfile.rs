//! The part of a response whose body is a file that the application has named (`X-Sendfile`). The file's head and the application's become
//! one; what the application says as a body is not sent.

use bolide_files::SendfileHeader;
use bolide_protocol::response::ResponseHead;

use super::writer::ResponseWriter;
use super::{Response, Stage};
use crate::response::filters::FirstPart;
use crate::response::named_file::XSendfile;

/// Of a file, the server says these itself.
const OF_THE_FILE: [&[u8]; 5] = [b"content-length", b"content-range", b"etag", b"last-modified", b"accept-ranges"];

impl Response {
    /// Lets the application name a file. Between the beginning of an answer and its head.
    pub(crate) fn allow_x_sendfile(&mut self, x_sendfile: XSendfile) {
        self.x_sendfile = Some(Box::new(x_sendfile));
    }

    /// Whether the body that the application sends is none of its answer.
    pub(super) fn names_file(&self) -> bool {
        self.x_sendfile.as_ref().is_some_and(|x_sendfile| x_sendfile.named.is_some())
    }

    /// A field that may name a file. False: it is like any other.
    pub(super) fn note_file(&mut self, by: SendfileHeader, name: &[u8]) -> bool {
        self.x_sendfile.as_mut().is_some_and(|x_sendfile| x_sendfile.note(by, name))
    }
}

impl ResponseWriter<'_> {
    /// Answers with the file, in the words that the application has chosen.
    pub(super) fn serve_named_file(&mut self, x_sendfile: XSendfile) {
        let status = self.head.status();
        let answer = if self.is_bodiless_status() { None } else { x_sendfile.run(status) };
        let Some(answer) = answer else { return self.close_head() };
        let own = std::mem::take(&mut self.head);
        if let Some((content_type, bytes, is_compressed)) = answer.unmodified() {
            self.note_unmodified(content_type, bytes, is_compressed);
        }
        self.ready_head(answer.status, &answer.head(), answer.fields(), answer.length);
        // What became of the file is said in the server's own words when it is not the file.
        if matches!(answer.status, 200 | 206 | 304) {
            let theirs = std::mem::take(&mut self.head);
            self.head = merged(own, theirs);
        }
        self.give_body(answer.body);
        if self.stage == Stage::Head {
            self.filter_head(FirstPart::Nothing);
            self.close_head();
        }
        self.file_replaces_body = true;
    }
}

/// A head with the fields of both: validators and lengths are the file's, the rest is as the application says where it says it.
fn merged(mut own: ResponseHead, mut theirs: ResponseHead) -> ResponseHead {
    let status = if theirs.status() == 200 { own.status() } else { theirs.status() };
    let is_unmodified = theirs.status() == 304;
    // The parts of several ranges have types of their own.
    let is_parts = theirs.value(b"content-type").is_some_and(|text| text.starts_with(b"multipart/"));
    let is_coded = theirs.value(b"content-encoding").is_some();
    let is_kept = |name: &[u8]| match name.to_ascii_lowercase().as_slice() {
        name if OF_THE_FILE.contains(&name) => false,
        b"content-type" => !is_parts && !is_unmodified,
        b"content-encoding" => !is_coded && !is_unmodified,
        _ => true,
    };
    let mut says_itself = |name: &[u8]| is_kept(name) && own.value(name).is_some();
    let is_replaced = [b"content-type".as_slice(), b"cache-control", b"expires"].map(|name| (name, says_itself(name)));
    let mut head = ResponseHead::default();
    let words = if own.status() == 200 { theirs.status_text() } else { own.status_text() };
    head.begin(status, words);
    for (name, value) in theirs.fields() {
        if !is_replaced.iter().any(|(replaced, is_said)| *is_said && name.eq_ignore_ascii_case(replaced)) {
            head.add(name, value);
        }
    }
    for (name, value) in own.fields().filter(|(name, _)| is_kept(name)) {
        head.add(name, value);
    }
    head.content_length = theirs.content_length;
    head.has_date = own.has_date;
    head.has_server = own.has_server;
    head
}
