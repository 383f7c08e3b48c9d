//! The plain program `bolide`, for hosts where Cargo and not pip installs it. It knows nothing but the command line.
//! The master is the process that it becomes.

fn main() {
    let arguments = std::env::args_os().skip(1).collect();
    let invocation = bolide_master::Invocation { arguments, interpreter: None, package_folder: None, language: None };
    std::process::exit(bolide_master::main(invocation));
}
