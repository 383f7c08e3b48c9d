//! A file that the application names instead of a body (`X-Sendfile`, `X-Accel-Redirect`): the data of the request that is needed
//! to serve it, and the resulting answer.
//!
//! It is only used if the configuration allows directories for it. It does not know about responses. The thread that runs the
//! application runs it.

use std::time::{SystemTime, UNIX_EPOCH};

use bolide_contract::clock::now_ms;
use bolide_files::{Answer, Conditions, FileRequest, Files, SendfileHeader};
use bolide_protocol::http1::target::percent_decode;

use crate::logging::access_log::complain;

pub struct XSendfile {
    files: &'static Files,
    worker: u32,
    method: Vec<u8>,
    uri: Vec<u8>,
    /// The request's conditions, its ranges, and the codings that the client accepts.
    conditions: Vec<(&'static [u8], Vec<u8>)>,
    /// The file that the application has named.
    pub named: Option<(SendfileHeader, Vec<u8>)>,
}

impl XSendfile {
    pub fn of(files: &'static Files, worker: u32, ask: &FileRequest<'_>) -> XSendfile {
        let (method, uri) = (ask.method.to_vec(), ask.uri.to_vec());
        XSendfile { files, worker, method, uri, conditions: ask.conditions.fields(), named: None }
    }

    /// Notes the name of a file. Returns false if the application may not use this header, which is then an ordinary field.
    pub fn note(&mut self, by: SendfileHeader, name: &[u8]) -> bool {
        let may = self.files.allows(by);
        if may {
            self.named = Some((by, name.to_vec()));
        }
        may
    }

    /// Returns the answer with the file. Conditions and ranges apply to a plain 200 and a GET or HEAD request; otherwise the
    /// whole file is sent with the application's status.
    pub fn run(&self, status: u16) -> Option<Answer> {
        let (by, name) = self.named.as_ref()?;
        let is_read = self.method == b"GET" || self.method == b"HEAD";
        let mut conditions = Conditions::default();
        for (field, value) in self.conditions.iter().filter(|_| is_read && status == 200) {
            conditions.note(field, value);
        }
        let mut decoded = Vec::new();
        let path = match by {
            SendfileHeader::Path => name,
            SendfileHeader::Location => {
                let path = name.split(|byte| *byte == b'?').next().unwrap_or_default();
                match percent_decode(path, &mut decoded) {
                    Ok(true) => &decoded,
                    // A path that can't be decoded does not belong to any file.
                    Ok(false) | Err(_) => path,
                }
            }
        };
        let ask = FileRequest {
            method: if is_read { &self.method } else { b"GET" },
            path,
            uri: &self.uri,
            document_root: b"",
            conditions,
            now_ms: now_ms(),
            // The application's own thread names the file while it answers, so it does not release the language.
            aside: &|work| work(),
            now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed()),
        };
        Some(self.files.answer_named(*by, &ask, &mut |text| complain(self.worker, text)))
    }
}
