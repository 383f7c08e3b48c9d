//! Names of the application that a project declares for other programs: `FLASK_APP` in `.flaskenv`, and `entrypoint` of
//! `[tool.fastapi]` in `pyproject.toml`.

use std::path::Path;

use toml::de::DeTable;

use super::finding::{Finding, finding};
use super::names::{Kind, ROOTS, is_module_name, is_name};
use super::source::{Callable, Source, text};

/// Returns the declared applications. One whose file is missing does not count.
pub fn named(directory: &Path) -> Vec<Finding> {
    let flask = text(&directory.join(".flaskenv")).and_then(|text| variable(&text, "FLASK_APP"));
    let fastapi = text(&directory.join("pyproject.toml")).and_then(|text| entrypoint(&text));
    let hints = [(flask, "Flask", Kind::Wsgi), (fastapi, "FastAPI", Kind::Asgi)];
    hints.into_iter().filter_map(|(name, framework, kind)| found(directory, &name?, framework, kind)).collect()
}

fn found(directory: &Path, name: &str, framework: &'static str, kind: Kind) -> Option<Finding> {
    let (module, callable) = match name.split_once(':') {
        Some((module, callable)) => (module, Some(callable)),
        None => (name, None),
    };
    let module = module.strip_suffix(".py").unwrap_or(module).replace('/', ".");
    if !is_module_name(&module) {
        return None;
    }
    ROOTS.iter().find_map(|root| {
        let place = directory.join(root);
        let path = place.join(module.replace('.', "/"));
        let files = [path.with_extension("py"), path.join("__init__.py")];
        let file = files.iter().find(|file| file.is_file())?;
        let named = callable.map(|callable| match callable.strip_suffix("()") {
            Some(name) => Callable::MadeBy(name.to_owned()),
            None => Callable::Named(callable.to_owned()),
        });
        let named = named.filter(|named| matches!(named, Callable::Named(name) | Callable::MadeBy(name) if is_name(name)));
        let callable = named.or_else(|| Some(finding(&place, &module, file, &Source::read(file)?)?.callable))?;
        let file = file.strip_prefix(directory).unwrap_or(file).to_owned();
        let (root, module) = (root.into(), module.clone());
        Some(Finding { framework: Some(framework), kind, root, module, file, callable, project: None })
    })
}

fn variable(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    })
}

fn entrypoint(text: &str) -> Option<String> {
    let parsed = DeTable::parse(text).ok()?;
    let tool = parsed.get_ref().get("tool")?.get_ref();
    Some(tool.get("fastapi")?.get_ref().get("entrypoint")?.get_ref().as_str()?.to_owned())
}
