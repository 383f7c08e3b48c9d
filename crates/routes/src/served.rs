//! `static:`, `file:` and the related actions: which file a rule names, and how it is answered.
//!
//! A rule's path begins with a directory, and data of the client fills in the rest: the file must lie in that directory, whatever
//! was filled in. Must not know the disk, except for the `-next` forms, which check whether the file exists. The process that
//! reads the configuration and workers run it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::compiler::Compiler;
use crate::status;
use crate::template::Template;

/// A file as a rule names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Served {
    /// The index of its directory in [`crate::Needs::directories`].
    pub directory: usize,
    directory_path: PathBuf,
    /// The path below the directory; empty if the rule names a fixed file.
    rest: Template,
    pub form: Form,
}

/// How a file is answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Form {
    /// `static:`: like the files of `static-map`.
    Static,
    /// `file:`: always the whole file, with this status, for every method.
    Page(Page),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub status: u16,
    pub reason: String,
    pub content_type: String,
    /// The type follows from the file's name, if its extension is known.
    pub type_by_name: bool,
}

impl Served {
    /// `filename=PATH,status=503 Service Unavailable,content_type=text/html,mime=1`. `None`: the mistake was reported.
    pub(crate) fn compile_page(argument: &str, compiler: &mut Compiler<'_>) -> Option<Served> {
        let mut path = None;
        let mut page = Page { status: 200, reason: "OK".to_owned(), content_type: "text/html".to_owned(), type_by_name: false };
        for pair in argument.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name.trim() {
                "filename" if !value.is_empty() => path = Some(value),
                "status" => {
                    let Some((code, reason)) = status::split(value) else {
                        compiler.error(format!("`status={value}` is not a status"), "write `status=503 Service Unavailable`");
                        return None;
                    };
                    let reason = if reason.is_empty() { status::reason(code).unwrap_or("Unknown") } else { reason };
                    (page.status, page.reason) = (code, reason.to_owned());
                }
                "content_type" => page.content_type = value.to_owned(),
                "mime" => page.type_by_name = true,
                // Answers of known length always have it in their head.
                "nocl" | "no_cl" | "no_content_length" => {}
                other => {
                    compiler.error(
                        format!("`file:` has no `{other}`"),
                        "write `file:filename=PATH,status=503 Service Unavailable,content_type=text/html`",
                    );
                    return None;
                }
            }
        }
        if [&page.reason, &page.content_type].iter().any(|text| text.bytes().any(|byte| byte.is_ascii_control())) {
            compiler.error("a status and a type can't contain control characters", "");
            return None;
        }
        let Some(path) = path else {
            compiler.error(format!("`file:{argument}` does not contain a file"), "write `file:filename=PATH`");
            return None;
        };
        Served::compile(path, Form::Page(page), compiler)
    }

    /// A path of this form of answer. `None`: the mistake was reported.
    pub(crate) fn compile(path: &str, form: Form, compiler: &mut Compiler<'_>) -> Option<Served> {
        let mut rest = Template::compile(path, compiler);
        let end = match rest.constant() {
            Some(text) => text.len(),
            None => rest.beginning().iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1),
        };
        let directory = rest.cut(end);
        let directory_path = compiler.directory.join(OsStr::from_bytes(&directory));
        if directory.is_empty() || directory_path == Path::new("/") {
            compiler.error(
                format!("`{path}` does not say in which directory the file must be: a client could request any file"),
                "write the directory first, such as `static:/srv/shop/media/$1`; `check-static-docroot` is for DOCUMENT_ROOT",
            );
            return None;
        }
        if !directory_path.exists() {
            compiler.warn(
                format!("there is no `{}`: nothing is served from it yet", directory_path.display()),
                "it is served as soon as it exists",
            );
        }
        let directories = &mut compiler.needs.directories;
        let directory = directories.iter().position(|known| *known == directory_path).unwrap_or_else(|| {
            directories.push(directory_path.clone());
            directories.len() - 1
        });
        Some(Served { directory, directory_path, rest, form })
    }

    /// Whether the file exists, for rules that otherwise pass the request on. Permissions are checked when it is opened.
    pub(crate) fn is_there(&self, relative: &[u8]) -> bool {
        let relative = Path::new(OsStr::from_bytes(relative));
        let leads_on = relative.components().all(|part| matches!(part, Component::Normal(_)));
        leads_on
            && if relative.as_os_str().is_empty() {
                self.directory_path.is_file()
            } else {
                self.directory_path.join(relative).is_file()
            }
    }

    /// Returns the filled-in path below the directory. A leading slash duplicates that of the directory.
    pub(crate) fn relative(&self, fill: impl FnOnce(&Template) -> Vec<u8>) -> Vec<u8> {
        let filled = fill(&self.rest);
        match filled.strip_prefix(b"/") {
            Some(rest) => rest.to_vec(),
            None => filled,
        }
    }
}
