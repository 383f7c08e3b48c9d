//! The values of the options so far, as written: one part for each topic, by its type. It must not know any part, nor what an
//! option means.

use std::any::{Any, TypeId};
use std::collections::HashMap;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::host_info::HostInfo;

/// All values so far. Paths are as written.
pub struct Draft<'a> {
    pub host: &'a HostInfo,
    pub strict: bool,
    pub diagnostics: Vec<Diagnostic>,
    /// The names in `allow-missing`.
    pub allowed_missing: Vec<&'static str>,
    parts: HashMap<TypeId, Box<dyn Any>>,
}

impl<'a> Draft<'a> {
    pub fn new(host: &'a HostInfo, strict: bool) -> Draft<'a> {
        Draft { host, strict, diagnostics: Vec::new(), allowed_missing: Vec::new(), parts: HashMap::new() }
    }

    /// Returns the part of this type: its default values, unless an option has set some.
    pub fn of<T: Any + Default>(&mut self) -> &mut T {
        let part = self.parts.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        part.downcast_mut().expect("a part is kept by its type")
    }

    /// Takes the part out: its topic completes it.
    pub fn take<T: Any + Default>(&mut self) -> T {
        let part = self.parts.remove(&TypeId::of::<T>());
        part.and_then(|part| part.downcast().ok()).map(|part| *part).unwrap_or_default()
    }

    /// Whether every part that an option has set was taken.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Warns of an option that is known and not implemented yet; the advice may be empty.
    pub fn planned(&mut self, location: &Location, what: &str, meanwhile: &str) {
        let diagnostic =
            Diagnostic::warning(Some(location), format!("`{what}` is known, but not supported yet: it has no effect"));
        self.diagnostics.push(if meanwhile.is_empty() { diagnostic } else { diagnostic.advise(meanwhile) });
    }
}
