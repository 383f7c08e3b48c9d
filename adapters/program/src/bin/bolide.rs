//! The plain program `bolide`, for hosts where Cargo or a system package manager installs it instead of pip.

fn main() {
    std::process::exit(bolide_program::main(bolide_master::Invocation::of_program));
}
