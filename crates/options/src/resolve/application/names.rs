//! Parses a text that names an application: a module with its callable, or a file. It does not access the file system.

use std::path::PathBuf;

use bolide_contract::settings::ApplicationSource;

/// Returns the file, or the module with a callable, that the right side of a mount names, or a positional argument whose file is
/// missing.
pub fn source(text: &str) -> Option<(ApplicationSource, Option<String>)> {
    if text.ends_with(".py") || text.ends_with(".wsgi") {
        return Some((ApplicationSource::File(PathBuf::from(text)), None));
    }
    let (left, callable) = text.rsplit_once(':').filter(|(left, callable)| !left.is_empty() && !callable.is_empty())?;
    // `shop.wsgi:application` is the usual name of Django's module, not a file.
    match left.ends_with(".py") || (left.ends_with(".wsgi") && left.contains('/')) {
        true => Some((ApplicationSource::File(PathBuf::from(left)), Some(callable.to_owned()))),
        false => module(text).1.map(|callable| (ApplicationSource::Module(module(text).0), Some(callable))),
    }
}

/// Splits a text into a module and its callable, if it has one.
pub fn module(text: &str) -> (String, Option<String>) {
    match text.split_once(':') {
        Some((module, callable)) => (module.to_owned(), Some(callable.to_owned()).filter(|callable| !callable.is_empty())),
        None => (text.to_owned(), None),
    }
}
