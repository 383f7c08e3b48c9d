//! Resolves the options of the Python module `uwsgi`, and of the functions that workers call. It imports nothing. Runs in the
//! process that reads the configuration.

use bolide_contract::python_module::{GunicornHooks, NamedFunction, PythonModule};

use super::context::normalized;
use super::draft::Draft;
use super::values;
use crate::catalogue::row::OptionRow;
use crate::diagnostic::Diagnostic;
use crate::other_servers::gunicorn::names_not_called;
use crate::pair::Pair;
use crate::reader::Configuration;

pub fn set_gunicorn_hooks(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let file = normalized(&draft.host.folder.join(values::text(pair)?));
    if !file.is_file() {
        let message = format!("`{} = {}`: there is no such file", pair.key, file.display());
        return Err(Diagnostic::error(Some(&pair.location), message).local());
    }
    // If the settings of the file were read as well, its uncalled hooks have been reported already.
    let is_reported = pair.value.as_deref() == Some(&*pair.location.file);
    let uncalled = if is_reported { Vec::new() } else { names_not_called() };
    draft.python_module.gunicorn = Some(GunicornHooks { file, uncalled });
    Ok(())
}

/// Adds the values that `uwsgi.opt` and `uwsgi.magic_table` expose.
pub fn complete(mut settings: PythonModule, read: &Configuration) -> PythonModule {
    settings.shown_options = read.pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect();
    settings.shown_magic.clone_from(&read.magic);
    settings
}

/// `package.module:name`; the name may be dotted.
pub fn named_function(pair: &Pair) -> Result<NamedFunction, Diagnostic> {
    let text = values::text(pair)?;
    let is_path =
        |path: &str| !path.is_empty() && path.split('.').all(|part| !part.is_empty() && !part.contains([' ', '(', '/']));
    match text.split_once(':') {
        Some((module, name)) if is_path(module) && is_path(name) => {
            Ok(NamedFunction { name: text, origin: pair.location.to_string() })
        }
        _ => Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` names no function", pair.key))
            .advise("write its module and its name with a colon between them: `shop.hooks:opened`")),
    }
}
