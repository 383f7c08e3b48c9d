//! Prints how many of a folder of public configurations Bolide runs as they are: `compat FOLDER`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: compat FOLDER");
        return ExitCode::FAILURE;
    };
    match bolide_options::compatibility::report(folder.as_ref()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("can't read {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
