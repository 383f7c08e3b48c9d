//! A server of the test language: the master of `bolide`, with this program as its prototype. It has the options of `bolide`.

use bolide_master::Program;
use bolide_testing::helper_tasks;

/// The argument that makes this process a prototype; the number of the boot file's descriptor follows.
const PROTOTYPE: &str = "--be-prototype";

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let boot = arguments.split_first().filter(|(first, _)| *first == PROTOTYPE).and_then(|(_, rest)| rest.first());
    if let Some(boot) = boot {
        let boot = boot.to_string_lossy().parse().unwrap_or(-1);
        let status = bolide_testing::prototype::run(boot).unwrap_or_else(|error| {
            bolide_log::line(&format!("the test language: {error}"));
            1
        });
        bolide_log::finish();
        std::process::exit(status);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let choose = move |_: &_| Ok(Program { executable: own.clone(), arguments: vec![PROTOTYPE.into()], package_directory: None });
    std::process::exit(bolide_master::run(&arguments, Box::new(choose), helper_tasks::of_environment));
}
