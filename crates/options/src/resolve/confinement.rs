//! What an instance gives up for good: from options to settings. Runs in the process that reads the configuration.

use bolide_contract::confinement::{CAPABILITIES, Namespace};

use super::draft::Draft;
use super::values;
use crate::catalogue::row::OptionRow;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::suggest;

/// uWSGI's names of what is shared or not.
const NAMESPACES: [(&str, Namespace); 7] = [
    ("fs", Namespace::Mounts),
    ("ns", Namespace::Mounts),
    ("mount", Namespace::Mounts),
    ("mnt", Namespace::Mounts),
    ("ipc", Namespace::Ipc),
    ("uts", Namespace::HostName),
    ("net", Namespace::Network),
];

/// Its other names, and why they can't be had.
const MISSING: [(&str, &str); 6] = [
    ("pid", "start Bolide itself in one, as `unshare --pid --fork` or a container does: its first process has to be the master"),
    ("user", "start Bolide itself in one, as `unshare --user --map-root-user` or a container does"),
    ("files", "leave it out: the master shares its table of descriptors with nobody"),
    ("io", "leave it out: the master shares its I/O context with nobody"),
    ("parent", "leave it out: it is nothing that unshare(2) knows"),
    ("sysvsem", "write `ipc`"),
];

pub fn keep_capabilities(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        *draft.confinement.capabilities.get_or_insert(0) |= 1 << capability(word, pair)?;
    }
    Ok(())
}

pub fn unshare(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    for word in words(&values::text(pair)?) {
        let namespace = namespace(word, pair)?;
        if !draft.confinement.namespaces.contains(&namespace) {
            draft.confinement.namespaces.push(namespace);
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
        let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` is no capability of Linux", pair.key));
        match suggest::nearest_of(name, &CAPABILITIES) {
            Some(nearest) => wrong.advise(format!("did you mean `{nearest}`?")),
            None => wrong.advise("write names of capabilities(7) with commas between them, as `net_bind_service,sys_nice`"),
        }
    })
}

fn namespace(word: &str, pair: &Pair) -> Result<Namespace, Diagnostic> {
    if let Some((_, namespace)) = NAMESPACES.iter().find(|(known, _)| *known == word) {
        return Ok(*namespace);
    }
    let known = MISSING.iter().find(|(known, _)| *known == word).map(|(_, instead)| *instead);
    let wrong = Diagnostic::error(Some(&pair.location), format!("`{} = {word}` can't be had", pair.key));
    Err(wrong.advise(known.unwrap_or("`fs`, `ipc`, `uts` and `net` are name spaces that an instance can have for itself")))
}
