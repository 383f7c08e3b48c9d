//! `bolide plugin`: builds the library of an adapter from a C file, which the package contains or the user has written. It does
//! not know languages: a file says itself what it needs ([`recipe`]).
//!
//! A process of its own runs it, with the rights of the user who typed the command. It is never a master.

mod recipe;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use bolide_command_line::PluginRequest;
use bolide_supervision::log_sink;
use nix::unistd::{AccessFlags, access};

use crate::plugin_building::recipe::Recipe;
use crate::provision::own_program;
use crate::provision::plugin::{self, Shipped};
use crate::provision::program::Installed;

/// The exit status of a command that has failed.
const FAILED: i32 = 1;

/// What every library needs of the compiler. The warnings are for the author of the file.
const FLAGS: [&str; 5] = ["-O2", "-Wall", "-fPIC", "-shared", "-pthread"];

/// Does what the command asks for. Returns the exit status.
pub fn run(request: &PluginRequest, installed: &Installed) -> i32 {
    let done = match request {
        PluginRequest::Header => header(installed).map(|directory| say(&directory.display().to_string())),
        PluginRequest::Build { what, into } => build(what, into.as_deref(), installed),
    };
    match done {
        Ok(()) => 0,
        Err(why) => {
            log_sink::line(&why);
            bolide_log::finish();
            FAILED
        }
    }
}

/// Prints a line. A reader that has left does not make the command fail.
fn say(line: &str) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// The directory of `bolide_app.h`.
fn header(installed: &Installed) -> Result<PathBuf, String> {
    let directory = installed.package_directory.as_deref().map(plugin::header_directory);
    directory.filter(|directory| directory.join(plugin::HEADER).is_file()).ok_or_else(|| {
        format!("this installation has no {}: install the package (pip install --force-reinstall bolide)", plugin::HEADER)
    })
}

fn build(what: &str, into: Option<&Path>, installed: &Installed) -> Result<(), String> {
    let header = header(installed)?;
    let source = source_of(what, installed)?;
    let name = name_of(&source)?;
    let text = fs::read_to_string(&source).map_err(|error| format!("{} can't be read: {error}", source.display()))?;
    let recipe = Recipe::of_source(&text).map_err(|fault| format!("{}: {fault}", source.display()))?;
    let target = target_of(what, into, installed)?;
    // A directory that only this user may enter: the compiler follows links.
    let private = mkdtemp().map_err(|error| format!("a temporary directory can't be made: {error}"))?;
    let made = private.join(plugin::file_of(&name));
    let built = compile(&source, &made, &header, &recipe)
        .and_then(|()| language_of(&made, installed))
        .and_then(|language| put(&made, &target.join(plugin::file_of(&name))).map(|library| (language, library)));
    // It is in the directory for temporary files, so it may stay.
    let _ = fs::remove_dir_all(&private);
    let (language, library) = built?;
    say(&format!("{} is built: {language}", library.display()));
    let is_searched = installed.package_directory.as_deref().map(plugin::directory_of).as_deref() == Some(target.as_path());
    match is_searched {
        true => say(&format!("Use it with `plugin = {name}`.")),
        false => say(&format!("Use it with `plugin = {}`.", fs::canonicalize(&library).unwrap_or(library).display())),
    }
    Ok(())
}

/// The C file of a plugin that the package has, or the user's.
fn source_of(what: &str, installed: &Installed) -> Result<PathBuf, String> {
    if what.ends_with(".c") {
        return Ok(what.into());
    }
    let shipped = Shipped::of(installed);
    shipped.source_of(what).ok_or_else(|| {
        format!(
            "this package has no plugin `{what}`, only {}: write the path of a C file, such as `bolide plugin build {what}.c`",
            shipped.names().join(", ")
        )
    })
}

/// `lua` for `bolide_lua.c`, and `mine` for `mine.c`.
fn name_of(source: &Path) -> Result<String, String> {
    let stem = source.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = stem.strip_prefix("bolide_").unwrap_or(stem);
    let is_fine = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-');
    match is_fine {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{}: the file's name is that of the plugin, so it consists of lowercase letters, digits, `_` and `-`",
            source.display()
        )),
    }
}

/// The directory for the library.
fn target_of(what: &str, into: Option<&Path>, installed: &Installed) -> Result<PathBuf, String> {
    let own = installed.package_directory.as_deref().map(plugin::directory_of);
    let Some(directory) = into.map(Path::to_owned).or(own) else {
        return Err(format!("write where the library goes: `bolide plugin build {what} --into DIRECTORY`"));
    };
    match access(&directory, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Ok(directory),
        Err(error) => Err(format!(
            "{} can't be written: {}; write another directory, `bolide plugin build {what} --into DIRECTORY`, and \
                `plugin-dir = DIRECTORY` in the configuration",
            directory.display(),
            error.desc()
        )),
    }
}

fn mkdtemp() -> io::Result<PathBuf> {
    Ok(nix::unistd::mkdtemp(&std::env::temp_dir().join("bolide-plugin-XXXXXX"))?)
}

/// The words of a variable, or of its default.
fn words_of(variable: &str, otherwise: &str) -> Vec<OsString> {
    let text = std::env::var(variable).unwrap_or_default();
    let text = if text.trim().is_empty() { otherwise } else { text.as_str() };
    text.split_ascii_whitespace().map(OsString::from).collect()
}

/// Compiles a file, and prints the command. The compiler prints what is wrong with the file.
fn compile(source: &Path, made: &Path, header: &Path, recipe: &Recipe) -> Result<(), String> {
    let compiler = words_of("CC", "cc");
    let mut command = compiler.clone();
    command.extend(FLAGS.map(OsString::from));
    command.extend(words_of("CFLAGS", ""));
    command.push([OsString::from("-I"), header.into()].into_iter().collect());
    let found = found_flags(recipe)?;
    command.extend(["-o".into(), made.into(), source.into()]);
    // Libraries come behind the file that needs them.
    command.extend(found);
    command.extend(words_of("LDFLAGS", ""));
    let shown: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    say(&shown.join(" "));
    let status = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            let advice = recipe.advice().map(|install| format!("; if a header is missing: {install}")).unwrap_or_default();
            Err(format!("{} can't be compiled: the compiler says why above{advice}", source.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("there is no C compiler `{}`: apt install gcc, or set CC", compiler[0].display()))
        }
        Err(error) => Err(format!("the C compiler {} can't be executed: {error}", compiler[0].display())),
    }
}

/// The flags of the libraries that a file needs, and its own.
fn found_flags(recipe: &Recipe) -> Result<Vec<OsString>, String> {
    let mut found = Vec::new();
    if !recipe.libraries.is_empty() {
        found.extend(library_flags(recipe)?);
    }
    for text in &recipe.flags {
        // An assignment has the exit status of the program in it.
        let script = format!("flags=\"{text}\" || exit; echo $flags");
        let output = output_of(Command::new("/bin/sh").args(["-c", &script])).map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("the flags `{text}` of the file can't be found out: a program in them fails"));
        }
        found.extend(words_in(&output));
    }
    Ok(found)
}

fn library_flags(recipe: &Recipe) -> Result<Vec<OsString>, String> {
    let program = words_of("PKG_CONFIG", "pkg-config").remove(0);
    for library in &recipe.libraries {
        let asked = output_of(Command::new(&program).args(["--cflags", "--libs", library]).stderr(Stdio::null()));
        match asked {
            Ok(output) if output.status.success() => return Ok(words_in(&output)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!("there is no program `{}`: apt install pkg-config", program.display()));
            }
            Err(error) => return Err(format!("{} can't be executed: {error}", program.display())),
        }
    }
    let advice = recipe.advice().unwrap_or_else(|| "install one of them with its headers".to_owned());
    Err(format!("pkg-config finds none of {}: {advice}", recipe.libraries.join(", ")))
}

fn output_of(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?.wait_with_output()
}

fn words_in(output: &Output) -> Vec<OsString> {
    String::from_utf8_lossy(&output.stdout).split_ascii_whitespace().map(OsString::from).collect()
}

/// Has another process load the library, and returns the language that the adapter says.
fn language_of(library: &Path, installed: &Installed) -> Result<String, String> {
    let Some(program) = &installed.program else { return Ok("it was not loaded, because the package has no program".to_owned()) };
    let output = output_of(Command::new(program).args(own_program::words_of_check(library)))
        .map_err(|error| format!("{} can't be executed: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() {
        true => Ok(said),
        false if said.is_empty() => Err(format!("the library can't be loaded: its process exited with {}", output.status)),
        false => Err(said),
    }
}

/// Puts the library in its place. A running instance keeps the file that it has loaded, because the name gets a new file.
fn put(made: &Path, library: &Path) -> Result<PathBuf, String> {
    let new = library.with_extension(format!("so.{}", std::process::id()));
    let put = || -> io::Result<()> {
        let mut from = fs::File::open(made)?;
        let mut to = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        io::copy(&mut from, &mut to)?;
        to.set_permissions(fs::Permissions::from_mode(0o755))?;
        to.sync_all()?;
        fs::rename(&new, library)
    };
    put().map(|()| library.to_owned()).map_err(|error| {
        // It may not exist.
        let _ = fs::remove_file(&new);
        format!("{} can't be written: {error}", library.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_has_the_name_of_its_file() {
        assert_eq!(name_of(Path::new("/srv/bolide_lua.c")).as_deref(), Ok("lua"));
        assert_eq!(name_of(Path::new("mine-2.c")).as_deref(), Ok("mine-2"));
        for wrong in ["Mine.c", "a b.c", "bolide_.c", "2.c"] {
            let error = name_of(Path::new(wrong)).expect_err(wrong);
            assert!(error.contains("lowercase"), "{error}");
        }
    }
}
