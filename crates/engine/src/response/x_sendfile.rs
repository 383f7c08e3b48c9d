//! The part of [`Response`] for an answer whose body is a file that the application has named. The file's head and the application's become
//! one; what the application says as a body is not sent.

use bolide_files::{Answer, SendfileHeader};

use super::{Response, Stage};
use crate::response_filters::Body;
use crate::x_sendfile::XSendfile;

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

    /// Answers with the file, in the words that the application has chosen.
    pub(super) fn hand_over(&mut self, x_sendfile: XSendfile) {
        let own = std::mem::take(&mut self.out.bytes);
        let (status, has_date, has_server) = (self.status, self.has_date, self.has_server);
        let answer = if self.is_bodiless_status() { None } else { x_sendfile.run(status) };
        let Some(answer) = answer else {
            self.out.bytes = own;
            return self.close_head();
        };
        if let Some((content_type, bytes, is_compressed)) = answer.unmodified() {
            self.note_unmodified(content_type, bytes, is_compressed);
        }
        // What became of the file is said in the server's own words when it is not the file.
        if matches!(answer.status, 200 | 206 | 304) {
            let (lines, fields) = merged(&own, status, &answer);
            let said = if answer.status == 200 { status } else { answer.status };
            self.ready_head(said, &[&lines], fields, answer.length);
            (self.has_date, self.has_server) = (has_date, has_server);
        } else {
            self.ready_head(answer.status, &answer.head(), answer.fields(), answer.length);
        }
        self.give_body(answer.body);
        if self.stage == Stage::Head {
            self.filter_head(Body::Nothing);
            self.close_head();
        }
        self.file_replaces_body = true;
    }
}

/// The lines of a head with the fields of both, and how many they are: validators and lengths are the file's, the rest is as the application
/// says where it says it.
fn merged(own: &[u8], status: u16, answer: &Answer) -> (Vec<u8>, u32) {
    let own: Vec<&[u8]> = lines(own).collect();
    let theirs: Vec<&[u8]> = answer.head().into_iter().flat_map(lines).collect();
    let has = |head: &[&[u8]], name: &[u8]| head.iter().skip(1).any(|line| name_of(line).eq_ignore_ascii_case(name));
    // The parts of several ranges have types of their own.
    let is_parts = theirs.iter().any(|line| line.starts_with(b"Content-Type: multipart/"));
    let is_kept = |line: &&&[u8]| {
        let name = name_of(line).to_ascii_lowercase();
        match name.as_slice() {
            name if OF_THE_FILE.contains(&name) => false,
            b"content-type" => !is_parts && answer.status != 304,
            b"content-encoding" => !has(&theirs, b"content-encoding") && answer.status != 304,
            _ => true,
        }
    };
    let kept: Vec<&[u8]> = own.iter().skip(1).filter(is_kept).copied().collect();
    let says_itself = |name: &[u8]| kept.iter().any(|line| name_of(line).eq_ignore_ascii_case(name));
    let is_theirs = |line: &&&[u8]| {
        let name = name_of(line).to_ascii_lowercase();
        !matches!(name.as_slice(), b"content-type" | b"cache-control" | b"expires") || !says_itself(&name)
    };
    let first = if status == 200 { theirs.first() } else { own.first() };
    let fields: Vec<&[u8]> = theirs.iter().skip(1).filter(is_theirs).copied().chain(kept.iter().copied()).collect();
    let count = u32::try_from(fields.len()).unwrap_or(u32::MAX);
    (first.into_iter().copied().chain(fields).flatten().copied().collect(), count)
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split_inclusive(|byte| *byte == b'\n')
}

fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or_default()
}
