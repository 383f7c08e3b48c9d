//! Resolves the options of the privileges that an instance gives up permanently. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_configuration::suggest;
use bolide_contract::confinement::Confinement;
use bolide_contract::confinement::{CAPABILITIES, Namespace};

use crate::draft::Draft;
use crate::row::OptionRow;
use crate::values;

/// uWSGI's names of namespaces.
const NAMESPACES: [(&str, Namespace); 7] = [
    ("fs", Namespace::Mounts),
    ("ns", Namespace::Mounts),
    ("mount", Namespace::Mounts),
    ("mnt", Namespace::Mounts),
    ("ipc", Namespace::Ipc),
    ("uts", Namespace::HostName),
    ("net", Namespace::Network),
];

/// Its other names, and why they are not supported.
const MISSING: [(&str, &str); 6] = [
    ("pid", "start Bolide itself in one, with `unshare --pid --fork` or in a container: its first process has to be the master"),
    ("user", "start Bolide itself in one, with `unshare --user --map-root-user` or in a container"),
    ("files", "leave it out: the master shares its descriptor table with no process"),
    ("io", "leave it out: the master shares its I/O context with no process"),
    ("parent", "leave it out: unshare(2) does not know it"),
    ("sysvsem", "write `ipc`"),
];

pub fn keep_capabilities(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        *draft.of::<Confinement>().capabilities.get_or_insert(0) |= 1 << capability(word, pair)?;
    }
    Ok(())
}

pub fn unshare(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        let namespace = namespace(word, pair)?;
        if !draft.of::<Confinement>().namespaces.contains(&namespace) {
            draft.of::<Confinement>().namespaces.push(namespace);
        }
    }
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn capability(word: &str, pair: &Pair) -> Result<usize, Diagnostic> {
    let lower = word.to_ascii_lowercase();
    let name = lower.strip_prefix("cap_").unwrap_or(&lower);
    CAPABILITIES.iter().position(|known| *known == name).ok_or_else(|| {
        let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is not a Linux capability", pair.key));
        match suggest::nearest_of(name, &CAPABILITIES) {
            Some(nearest) => wrong.advise(format!("did you mean `{nearest}`?")),
            None => wrong.advise("write names from capabilities(7), separated by commas, such as `net_bind_service,sys_nice`"),
        }
    })
}

fn namespace(word: &str, pair: &Pair) -> Result<Namespace, Diagnostic> {
    if let Some((_, namespace)) = NAMESPACES.iter().find(|(known, _)| *known == word) {
        return Ok(*namespace);
    }
    let known = MISSING.iter().find(|(known, _)| *known == word).map(|(_, instead)| *instead);
    let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is not available", pair.key));
    Err(wrong.advise(known.unwrap_or("an instance can have separate `fs`, `ipc`, `uts` and `net` namespaces")))
}
