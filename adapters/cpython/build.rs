//! Refuses the Pythons that the native module is not made for, before a minute is spent on compiling it. It knows what PyO3 has
//! found out about the interpreter, and runs when Cargo builds the module: in the hands of whoever has no wheel.

use pyo3_build_config::{BuildFlag, InterpreterConfig, PythonImplementation};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(reason) = refusal(pyo3_build_config::get()) {
        println!("cargo::error={reason}");
    }
}

/// Why there is no native module for this Python. What is shared between threads rests on the interpreter's lock, and the layout of
/// objects is CPython's.
fn refusal(python: &InterpreterConfig) -> Option<String> {
    let version = python.version();
    if python.build_flags().0.contains(&BuildFlag::Py_GIL_DISABLED) {
        return Some(format!(
            "Python {version}t is free-threaded, which Bolide does not support yet: install it into the ordinary build (python{version}), which has the GIL"
        ));
    }
    if python.implementation() != PythonImplementation::CPython {
        let name = python.implementation();
        return Some(format!(
            "Bolide runs on CPython 3.9 or later, and this Python is {name} {version}: install it into CPython"
        ));
    }
    None
}
