//! The plain program `bolide`, for hosts where Cargo or a system's package manager and not pip installs it. It knows nothing but the
//! command line.
//! The master is the process that it becomes.

fn main() {
    let invocation = bolide_master::Invocation::of_program(std::env::args_os().skip(1).collect());
    std::process::exit(bolide_master::main(invocation));
}
