//! The pager of `bolide --help` and other long texts in a terminal: this process becomes it, and the text is a memory file at its
//! standard input. It does not know texts. The process of a command runs it; no server does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A text of up to this many lines is printed. `less` prints longer ones that fit this one, too, and ends (`-F`).
const MIN_LINES: usize = 60;

/// Shows the text in the user's pager, in place of this process. Returns if that is not wanted or not possible: then the text is
/// to be printed.
pub fn become_pager(text: &str) {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    if !is_terminal || is_dumb || text.lines().take(MIN_LINES + 1).count() <= MIN_LINES {
        return;
    }
    let Some(mut pager) = pager(std::env::var_os("PAGER")) else { return };
    if let Ok(input) = input(text) {
        if std::env::var_os("LESS").is_none() {
            // It ends at a text that fits, it shows colors, and the text stays in the terminal afterwards.
            pager.env("LESS", "FRX");
        }
        // The error is that there is no such program: the text is printed.
        let _ = pager.stdin(input).exec();
    }
}

/// The pager that `PAGER` names, or `less`; `None` for `cat` and for nothing.
fn pager(named: Option<OsString>) -> Option<Command> {
    let Some(named) = named else { return Some(Command::new("less")) };
    if named.is_empty() || named == "cat" {
        return None;
    }
    // It is a command of the shell, such as `less -S`. If there is no such program, the text is printed.
    let mut line = named;
    line.push(" || cat");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line);
    Some(shell)
}

fn input(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"bolide-text", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}
