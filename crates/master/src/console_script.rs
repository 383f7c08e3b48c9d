//! One call of Bolide, and its step from the console script to the program of the package, which runs the master without Python.
//! The master does not need the interpreter, nor what that has loaded (an agent of `opentelemetry-instrument`). The process stays
//! the same. What only the interpreter knows travels in a variable.
//!
//! It does not know options, or how the program finds the master (packaging/build/program.c). The process that becomes the master
//! runs it, before and after the step.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bolide_supervision::system;
use nix::unistd::execve;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::provision::python;

/// The environment variable. It does not have Bolide's prefix, because variables with that prefix are options.
const VARIABLE: &str = "CONSOLE_SCRIPT_OF_BOLIDE";

/// The program, relative to the directory of the package.
const PROGRAM: [&str; 3] = ["bolide", "bin", "bolide"];

/// What a line of the variable says. The variable is read by the program of the same package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// The process of the step. Another process has inherited the variable by accident.
    Pid,
    Argument,
    Command,
    Interpreter,
    PackageDirectory,
    Import,
    Language,
}

impl Key {
    const ALL: [(Key, &str); 7] = [
        (Key::Pid, "pid"),
        (Key::Argument, "argument"),
        (Key::Command, "command"),
        (Key::Interpreter, "interpreter"),
        (Key::PackageDirectory, "package"),
        (Key::Import, "import"),
        (Key::Language, "language"),
    ];
}

/// One call of Bolide: its arguments, and the Python that made the call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Without the program name.
    pub arguments: Vec<OsString>,
    /// The complete command line: for a console script, the interpreter and the script come first.
    pub command: Vec<OsString>,
    /// The Python that runs the console script.
    pub interpreter: Option<PathBuf>,
    /// The directory that contains the Python package `bolide`.
    pub package_directory: Option<PathBuf>,
    /// The import path of that Python (`sys.path`), and the script that it executed.
    pub imports: Vec<PathBuf>,
    /// The name and version of that Python, for `bolide --version`.
    pub language: Option<String>,
}

impl Invocation {
    /// Returns the invocation of a process without Python. The console script may have executed it, or it is the plain program,
    /// which may be in a Python package.
    pub fn of_program() -> Invocation {
        of_variable().unwrap_or_else(|| {
            let command: Vec<OsString> = std::env::args_os().collect();
            let (interpreter, package_directory) =
                std::env::current_exe().map(|own| python::packaged_around(&own)).unwrap_or_default();
            let arguments = command.iter().skip(1).cloned().collect();
            Invocation { arguments, command, interpreter, package_directory, ..Invocation::default() }
        })
    }
}

/// Returns the program of the package, if this process executes it and it finds the Python of this invocation by itself.
pub fn own_program(interpreter: Option<&Path>, package: Option<&Path>) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let (found, packages) = python::packaged_around(&own);
    let is_same = packages.as_deref() == package && found.as_deref().and_then(Path::parent) == interpreter.and_then(Path::parent);
    (is_same && found.is_some()).then_some(own)
}

/// Returns the program of the package in this directory, if it has one.
pub fn package_program(directory: Option<&Path>) -> Option<PathBuf> {
    let program: PathBuf = std::iter::once(directory?).chain(PROGRAM.iter().map(Path::new)).collect();
    program.is_file().then_some(program)
}

/// Executes the program of the package with this invocation. It returns only if it can't, and then the caller runs the master
/// itself, which is the same with more memory.
///
/// # Errors
/// The package lacks the program (as an editable installation does), the kernel refuses to execute it, or the arguments are too
/// long for a variable.
pub fn execute(invocation: &Invocation) -> io::Result<std::convert::Infallible> {
    let program = package_program(invocation.package_directory.as_deref()).ok_or(io::ErrorKind::NotFound)?;
    let text = encode(invocation, std::process::id());
    let words = [shown_name(&invocation.command)].into_iter().chain(invocation.arguments.iter().map(OsString::as_os_str));
    // The variables keep their order, in which options of the environment count.
    let variables =
        std::env::vars_os().chain([(VARIABLE.into(), text.into())]).map(|(name, value)| [name, value].join(OsStr::new("=")));
    let words: Vec<CString> = words.map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let variables: Vec<CString> = variables.map(|pair| CString::new(pair.into_vec())).collect::<Result<_, _>>()?;
    Ok(execve(&CString::new(program.into_os_string().into_vec())?, &words, &variables)?)
}

/// Returns the invocation of the Python that has executed this program, if one did, and removes it from the environment.
fn of_variable() -> Option<Invocation> {
    let text = std::env::var(VARIABLE).ok()?;
    system::set_variable(VARIABLE, None);
    decode(&text, std::process::id())
}

/// The name of the process in lists: the console script as it was called, otherwise the plain name.
fn shown_name(command: &[OsString]) -> &OsStr {
    let plain = OsStr::new("bolide");
    command.iter().map(OsString::as_os_str).find(|word| Path::new(word).file_name() == Some(plain)).unwrap_or(plain)
}

/// One line for each text: the key and the percent-encoded bytes.
fn encode(invocation: &Invocation, pid: u32) -> String {
    let Invocation { arguments, command, interpreter, package_directory, imports, language } = invocation;
    let pid = OsString::from(pid.to_string());
    let path = |key: Key| move |path: &PathBuf| (key, path.clone().into_os_string());
    let word = |key: Key| move |word: &OsString| (key, word.clone());
    let texts = std::iter::once((Key::Pid, pid))
        .chain(arguments.iter().map(word(Key::Argument)))
        .chain(command.iter().map(word(Key::Command)))
        .chain(interpreter.iter().map(path(Key::Interpreter)))
        .chain(package_directory.iter().map(path(Key::PackageDirectory)))
        .chain(imports.iter().map(path(Key::Import)))
        .chain(language.iter().map(|name| (Key::Language, name.into())));
    let line = |(key, text): (Key, OsString)| {
        let name = Key::ALL.into_iter().find_map(|(known, name)| (known == key).then_some(name)).unwrap_or_default();
        format!("{name} {}\n", percent_encode(text.as_bytes(), NON_ALPHANUMERIC))
    };
    texts.map(line).collect()
}

fn decode(text: &str, pid: u32) -> Option<Invocation> {
    let mut found = Invocation::default();
    let mut is_for_us = false;
    for line in text.lines() {
        let (name, encoded) = line.split_once(' ')?;
        let (key, _) = Key::ALL.into_iter().find(|(_, known)| *known == name)?;
        let value = OsString::from_vec(percent_decode_str(encoded).collect());
        match key {
            Key::Pid => is_for_us = value == *pid.to_string(),
            Key::Argument => found.arguments.push(value),
            Key::Command => found.command.push(value),
            Key::Interpreter => found.interpreter = Some(value.into()),
            Key::PackageDirectory => found.package_directory = Some(value.into()),
            Key::Import => found.imports.push(value.into()),
            Key::Language => found.language = Some(value.to_string_lossy().into_owned()),
        }
    }
    is_for_us.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&[u8]]) -> Vec<OsString> {
        words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect()
    }

    #[test]
    fn an_invocation_travels_whole_to_the_same_process_only() {
        let invocation = Invocation {
            arguments: words(&[b"a b.ini", b"--module", b"", b"line\nbreak", b"\xff\xfe%20"]),
            command: words(&[b"/venv/bin/python", b"/venv/bin/bolide", b"a b.ini"]),
            interpreter: Some("/venv/bin/python".into()),
            package_directory: Some("/venv/lib/python3.13/site-packages".into()),
            imports: vec!["".into(), "/usr/lib/python3".into()],
            language: Some("CPython 3.13.0".to_owned()),
        };
        let text = encode(&invocation, 42);
        assert_eq!(decode(&text, 42), Some(invocation));
        assert_eq!(decode(&text, 43), None, "another process has inherited it");
        assert_eq!(decode(&encode(&Invocation::default(), 42), 42), Some(Invocation::default()));
        for wrong in ["", "pid", "pid 41\n", "argument x\n", "pid 42\nunknown x\n"] {
            assert_eq!(decode(wrong, 42), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_process_is_called_as_the_script_was() {
        for (command, name) in [
            (&[b"/venv/bin/python".as_slice(), b"/venv/bin/bolide", b"x.ini"][..], "/venv/bin/bolide"),
            (&[b"python", b"-m", b"bolide", b"x.ini"], "bolide"),
            (&[b"python", b"-m", b"bolide.child_master", b"12", b"main:app"], "bolide"),
        ] {
            assert_eq!(shown_name(&words(command)), OsStr::new(name));
        }
    }
}
