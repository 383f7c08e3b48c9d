//! Refuses unsupported Pythons before the native module is compiled, which takes about a minute, and tells the module for which
//! Python it is. It knows PyO3's facts about the interpreter. Cargo runs it when it builds the module, where no wheel exists.

use pyo3_build_config::{BuildFlag, InterpreterConfig, PythonImplementation};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=BOLIDE_PYTHON={}", pyo3_build_config::get().version());
    if let Some(reason) = refusal(pyo3_build_config::get()) {
        println!("cargo::error={reason}");
    }
}

/// Returns why this Python is not supported. The interpreter's lock protects the data that threads share, and the layout of
/// objects is CPython's.
fn refusal(python: &InterpreterConfig) -> Option<String> {
    let version = python.version();
    if python.build_flags().0.contains(&BuildFlag::Py_GIL_DISABLED) {
        return Some(format!(
            "Python {version}t is free-threaded, which Bolide does not support yet: install it into the standard build \
                (python{version}), which has the GIL"
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
