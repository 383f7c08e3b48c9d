//! MIME types and charsets by file name. Reads `mime-file` at startup only. Workers run it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// For unknown extensions. Sent explicitly, because a browser that guesses may run an uploaded picture as a page.
pub const UNKNOWN: &str = "application/octet-stream";

/// Corrections where the table's type is outdated or means something else on the web. RFC 9239 has one type for JavaScript.
const CORRECTIONS: &[(&str, &str)] = &[
    ("mjs", "text/javascript"),
    ("cjs", "text/javascript"),
    ("map", "application/json"),
    ("ts", "video/mp2t"),
    ("rst", "text/plain"),
];

/// Most bytes of a `mime-file`; the system's own has 70 thousand.
const MIME_FILE_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Default)]
pub struct MimeTypes {
    own: HashMap<String, String>,
    charset: Option<String>,
}

/// A type without and with its charset.
#[derive(Debug, PartialEq, Eq)]
pub struct MimeType {
    pub bare: String,
    pub full: String,
}

impl MimeTypes {
    /// Reads the files; later ones win. Each file that cannot be read adds a sentence to `problems`.
    pub fn read(files: &[impl AsRef<Path>], charset: Option<&str>, problems: &mut Vec<String>) -> MimeTypes {
        let mut own = HashMap::new();
        for file in files {
            let file = file.as_ref();
            let text = match fs::metadata(file) {
                Ok(facts) if facts.len() > MIME_FILE_BYTES => Err(std::io::Error::other("it is larger than 4 MiB")),
                Ok(_) => fs::read_to_string(file),
                Err(error) => Err(error),
            };
            match text {
                Ok(text) => own.extend(types_of(&text)),
                Err(error) => problems.push(format!("the mime-file {} can't be read: {error}", file.display())),
            }
        }
        MimeTypes { own, charset: charset.map(str::to_owned) }
    }

    pub fn of(&self, path: &Path) -> MimeType {
        let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
        let bare = extension.as_deref().map_or(UNKNOWN, |extension| self.known(extension));
        let full = match &self.charset {
            Some(charset) if is_text(bare) => format!("{bare}; charset={charset}"),
            _ => bare.to_owned(),
        };
        MimeType { bare: bare.to_owned(), full }
    }

    fn known(&self, extension: &str) -> &str {
        if let Some(own) = self.own.get(extension) {
            return own;
        }
        match CORRECTIONS.iter().find(|(corrected, _)| *corrected == extension) {
            Some((_, kind)) => kind,
            None => mime_guess::from_ext(extension).first_raw().unwrap_or(UNKNOWN),
        }
    }
}

fn is_text(kind: &str) -> bool {
    (kind.starts_with("text/") || kind == "application/javascript") && !kind.contains(';')
}

/// `type extension extension …` on each line, `#` for comments: the format of /etc/mime.types.
fn types_of(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.lines().map(|line| line.split('#').next().unwrap_or_default()).flat_map(|line| {
        let mut words = line.split_ascii_whitespace();
        // A type is copied into a header unchanged.
        let kind = words.next().filter(|kind| kind.contains('/') && kind.bytes().all(|byte| byte.is_ascii_graphic()));
        words.filter_map(move |extension| {
            kind.map(|kind| (extension.trim_start_matches('.').to_ascii_lowercase(), kind.to_owned()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_web_have_their_types() {
        let mime_types = MimeTypes::read(&[] as &[&Path], Some("utf-8"), &mut Vec::new());
        for (name, full) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a.CSS", "text/css; charset=utf-8"),
            ("app.1f2e3d4c.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("app.js.map", "application/json"),
            ("data.json", "application/json"),
            ("robots.txt", "text/plain; charset=utf-8"),
            ("logo.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.jpg", "image/jpeg"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("favicon.ico", "image/x-icon"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.mp4", "video/mp4"),
            ("a.webm", "video/webm"),
            ("a.pdf", "application/pdf"),
            ("site.webmanifest", "application/manifest+json"),
            ("README", "application/octet-stream"),
            (".htaccess", "application/octet-stream"),
            ("a.unheard-of", "application/octet-stream"),
        ] {
            assert_eq!(mime_types.of(Path::new(name)).full, full, "{name}");
        }
    }

    #[test]
    fn a_file_of_types_comes_before_the_table() {
        let directory = nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-kinds-XXXXXX")).expect("a directory");
        let file = directory.join("types");
        fs::write(&file, "# comment\ntext/x-own  own .CSS # more\nbroken line\n\x01/x bad\n").expect("a file");
        let mut problems = Vec::new();
        let mime_types = MimeTypes::read(&[file.clone(), directory.join("none")], None, &mut problems);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(mime_types.of(Path::new("a.own")).full, "text/x-own");
        assert_eq!(mime_types.of(Path::new("a.css")).bare, "text/x-own");
        assert_eq!(mime_types.of(Path::new("a.bad")).bare, "application/octet-stream");
        assert_eq!(mime_types.of(Path::new("a.html")).full, "text/html");
        fs::remove_dir_all(directory).expect("the directory was ours");
    }
}
