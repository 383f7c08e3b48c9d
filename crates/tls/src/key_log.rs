//! The log of TLS secrets (`tls-keylog`), in the format of Wireshark (`SSLKEYLOGFILE`). Workers run it if it is configured.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustls::KeyLog;

#[derive(Debug)]
pub struct SecretsLog {
    file: File,
}

impl SecretsLog {
    /// Readable by its owner only: the secrets decrypt the sessions.
    pub fn open(path: &Path) -> io::Result<SecretsLog> {
        Ok(SecretsLog { file: OpenOptions::new().append(true).create(true).mode(0o600).open(path)? })
    }
}

impl KeyLog for SecretsLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        push_hexadecimal(&mut line, client_random);
        line.push(' ');
        push_hexadecimal(&mut line, secret);
        line.push('\n');
        // One write for each line, so lines of several workers do not mix. A full disk loses lines, but no connection.
        let _ = (&self.file).write_all(line.as_bytes());
    }
}

fn push_hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
}
