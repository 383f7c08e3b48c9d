//! Prints how many of a directory of public configurations Bolide runs as they are: `compat DIRECTORY`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: compat DIRECTORY");
        return ExitCode::FAILURE;
    };
    match bolide_options::compatibility::report(directory.as_ref()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("can't read {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}
