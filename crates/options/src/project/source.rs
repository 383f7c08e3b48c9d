//! Finds the application in the text of one Python file: the framework that makes it, and its name. It reads lines, not Python's
//! grammar: nearly all files have the relevant statements at the start of a line.

use std::io::Read;
use std::path::Path;

use super::names::{Kind, is_module_name, is_name};

/// Bytes of a source file that are read: the relevant statements are near its beginning.
const MAX_SOURCE_BYTES: u64 = 256 * 1024;
/// Usual names of functions that make an application, likeliest first.
const FACTORIES: &[&str] = &["create_app", "make_app", "create_application", "make_application", "get_app", "build_app"];
/// Usual names of applications, likeliest first.
const CALLABLES: &[&str] = &["application", "app"];
/// Most modules of the same project that are searched for what a file imports.
const MAX_IMPORTED: usize = 16;

/// A framework, by the call that makes an application with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framework {
    call: &'static str,
    pub name: &'static str,
    pub kind: Kind,
    /// The package that provides it.
    package: &'static str,
}

const fn framework(call: &'static str, name: &'static str, kind: Kind, package: &'static str) -> Framework {
    Framework { call, name, kind, package }
}

/// Frameworks; those that wrap another one come first.
const FRAMEWORKS: &[Framework] = &[
    framework("socketio.ASGIApp(", "Socket.IO", Kind::Asgi, "socketio"),
    framework("socketio.WSGIApp(", "Socket.IO", Kind::Wsgi, "socketio"),
    framework("ProtocolTypeRouter(", "Channels", Kind::Asgi, "channels"),
    framework("FastAPI(", "FastAPI", Kind::Asgi, "fastapi"),
    framework("Starlette(", "Starlette", Kind::Asgi, "starlette"),
    framework("Quart(", "Quart", Kind::Asgi, "quart"),
    framework("Litestar(", "Litestar", Kind::Asgi, "litestar"),
    framework("Sanic(", "Sanic", Kind::Asgi, "sanic"),
    framework("falcon.asgi.App(", "Falcon", Kind::Asgi, "falcon"),
    framework("get_asgi_application(", "Django", Kind::Asgi, "django"),
    framework("get_wsgi_application(", "Django", Kind::Wsgi, "django"),
    framework("Flask(", "Flask", Kind::Wsgi, "flask"),
    framework("Bottle(", "Bottle", Kind::Wsgi, "bottle"),
    framework("default_app(", "Bottle", Kind::Wsgi, "bottle"),
    framework("falcon.App(", "Falcon", Kind::Wsgi, "falcon"),
    framework("make_wsgi_app(", "Pyramid", Kind::Wsgi, "pyramid"),
];

/// How a module provides its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callable {
    /// By this name.
    Named(String),
    /// By a call without arguments.
    MadeBy(String),
    /// By a call with arguments, which only its author knows.
    NeedsArguments(String),
    /// The text makes one, and its name is unknown.
    Unnamed,
}

/// An application that a text contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceApplication {
    pub framework: Option<Framework>,
    pub kind: Kind,
    pub callable: Callable,
    /// A function that is an application itself, without a framework.
    pub is_plain: bool,
}

/// The text of a file.
pub struct Source {
    text: String,
}

impl Source {
    /// Returns `None` if the path is not a file, or can't be read.
    pub fn read(path: &Path) -> Option<Source> {
        if !path.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(MAX_SOURCE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(Source { text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the framework that the text calls, or else one that it imports.
    pub fn framework(&self) -> Option<Framework> {
        let called = FRAMEWORKS.iter().find(|framework| self.calls(framework)).copied();
        called.or_else(|| FRAMEWORKS.iter().find(|framework| self.imports_package(framework.package)).copied())
    }

    /// Returns the application of this text: an object with a usual name, one that a framework makes, or one that a function
    /// makes.
    pub fn application(&self) -> Option<SourceApplication> {
        let made = self.made();
        let usual = CALLABLES.iter().find_map(|name| made.iter().find(|(made, _)| made == name));
        if let Some((name, framework)) = usual.or(made.first()) {
            return Some(self.seen(Some(*framework), framework.kind, Callable::Named(name.clone())));
        }
        let function = CALLABLES.iter().find_map(|name| Some((name, self.function(name)?)));
        if let Some((name, is_async)) = function {
            let kind = if is_async { Kind::Asgi } else { Kind::Wsgi };
            let seen = self.seen(None, kind, Callable::Named((*name).to_owned()));
            return Some(SourceApplication { is_plain: true, ..seen });
        }
        if let Some(name) = CALLABLES.iter().find(|name| self.assigns(name)) {
            let framework = self.framework();
            let kind = framework.map_or(Kind::Unknown, |framework| framework.kind);
            return Some(self.seen(framework, kind, Callable::Named((*name).to_owned())));
        }
        let framework = self.framework();
        let kind = framework.map_or(Kind::Unknown, |framework| framework.kind);
        if let Some((name, needs)) = FACTORIES.iter().find_map(|name| Some((*name, self.needs_arguments(name)?))) {
            let callable = if needs { Callable::NeedsArguments(name.to_owned()) } else { Callable::MadeBy(name.to_owned()) };
            return Some(self.seen(framework, kind, callable));
        }
        let called = FRAMEWORKS.iter().find(|framework| self.calls(framework))?;
        Some(self.seen(Some(*called), called.kind, Callable::Unnamed))
    }

    /// Returns the text of the first module of the same project that this one imports and that uses a framework.
    pub fn imported(&self, root: &Path) -> Option<Source> {
        let names = self.text.lines().filter_map(|line| {
            let name = line.strip_prefix("from ").or_else(|| line.strip_prefix("import "))?;
            name.split([' ', ',']).next().filter(|name| is_module_name(name))
        });
        names.take(MAX_IMPORTED).find_map(|name| {
            let path = root.join(name.replace('.', "/"));
            let source = Source::read(&path.with_extension("py")).or_else(|| Source::read(&path.join("__init__.py")))?;
            source.framework().is_some().then_some(source)
        })
    }

    fn seen(&self, framework: Option<Framework>, kind: Kind, callable: Callable) -> SourceApplication {
        SourceApplication { framework, kind, callable, is_plain: false }
    }

    /// Names at the start of a line that a framework's call is assigned to, in the order of the frameworks.
    fn made(&self) -> Vec<(String, Framework)> {
        let mut made = Vec::new();
        for framework in FRAMEWORKS {
            for line in self.text.lines().filter(|line| has_call(line, framework.call)) {
                // A list of applications is not an application.
                let assigned = line.split_once('=').filter(|(_, value)| !value.trim_start().starts_with(['[', '{']));
                let Some((name, _)) = assigned else { continue };
                let name = name.split(':').next().unwrap_or_default().trim_end();
                if is_name(name) && !made.iter().any(|(known, _)| known == name) {
                    made.push((name.to_owned(), *framework));
                }
            }
        }
        made
    }

    fn calls(&self, framework: &Framework) -> bool {
        self.text.lines().any(|line| has_call(line, framework.call))
    }

    fn imports_package(&self, package: &str) -> bool {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("from ").or_else(|| line.strip_prefix("import ")))
            .any(|rest| rest.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '.', ','])))
    }

    /// Returns whether a function of this name is asynchronous; `None` if there is no such function.
    fn function(&self, name: &str) -> Option<bool> {
        self.text.lines().find_map(|line| {
            let (rest, is_async) = match line.strip_prefix("async ") {
                Some(rest) => (rest, true),
                None => (line, false),
            };
            let rest = rest.strip_prefix("def ")?.strip_prefix(name)?;
            rest.starts_with('(').then_some(is_async)
        })
    }

    fn assigns(&self, name: &str) -> bool {
        self.text.lines().filter_map(|line| line.strip_prefix(name)).any(|rest| {
            let rest = rest.trim_start();
            rest.starts_with(':') || rest.starts_with('=') && !rest.starts_with("==")
        })
    }

    /// Returns whether a function of this name needs arguments; `None` if there is no such function.
    fn needs_arguments(&self, name: &str) -> Option<bool> {
        let start = format!("def {name}(");
        let after = match self.text.strip_prefix(&start) {
            Some(after) => after,
            None => self.text.split_once(&format!("\n{start}"))?.1,
        };
        Some(parameters(after).iter().any(|parameter| !parameter.contains('=') && !parameter.starts_with(['*', '/'])))
    }
}

/// Returns the text of a file, up to the limit; `None` if the path is not a file.
pub fn text(path: &Path) -> Option<String> {
    Source::read(path).map(|source| source.text().to_owned())
}

/// Whether a line of code contains this call, and not one whose name only ends the same way: `MyFlask(`.
fn has_call(line: &str, call: &str) -> bool {
    let code = line.split('#').next().unwrap_or_default();
    code.match_indices(call).any(|(start, _)| {
        let before = code.get(..start).and_then(|before| before.chars().next_back());
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

/// The parameters of a function, from the text after its opening bracket.
fn parameters(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut found = Vec::new();
    for (place, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => {
                found.push(text.get(start..place).unwrap_or_default());
                break;
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(text.get(start..place).unwrap_or_default());
                start = place + 1;
            }
            _ => {}
        }
    }
    found.into_iter().map(str::trim).filter(|parameter| !parameter.is_empty()).collect()
}
