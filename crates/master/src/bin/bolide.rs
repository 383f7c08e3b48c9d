//! The plain program `bolide`, for hosts where Cargo or a system package manager installs it instead of pip. It only knows the
//! command line. The process becomes the master.

fn main() {
    std::process::exit(bolide_master::main(bolide_master::Invocation::of_program()));
}
