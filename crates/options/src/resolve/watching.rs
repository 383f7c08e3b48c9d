//! Resolves the options that name files whose changes trigger an action, and the timers of uWSGI's signals. It watches none. Runs in
//! the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::pair::Pair;
use bolide_contract::signals::ConfiguredTimer;
use bolide_contract::signals::Signals;
use bolide_contract::watching::{FileAction, WatchSubject, WatchedFile, WatchedImports, Watching};

use super::hooks::{HookKind, touch_hook};
use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::developing::DevelopingDraft;
use crate::row::OptionRow;
use crate::values;

/// The editors that the traceback page knows (`bolide/development/traceback_page.py`).
const EDITORS: [&str; 6] = ["vscode", "cursor", "zed", "pycharm", "sublime", "off"];

/// Adds a file whose change triggers this action; the log gives the option's name as the reason.
pub fn add_file(
    draft: &mut Draft,
    subject: WatchSubject,
    action: FileAction,
    row: &OptionRow,
    pair: &Pair,
) -> Result<(), Diagnostic> {
    let path = values::text(pair)?.into();
    draft.of::<Watching>().files.push(WatchedFile { path, option: row.name().to_owned(), subject, action });
    Ok(())
}

/// Ignored modules may be named before or after.
pub fn watch_imports(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let every_ms = draft.milliseconds(row, pair)?.unwrap_or(0);
    let ignored = draft.of::<Watching>().imports.take().map(|imports| imports.ignored).unwrap_or_default();
    draft.of::<Watching>().imports = Some(WatchedImports { every_ms, ignored, configuration: Vec::new() });
    Ok(())
}

/// `FILE ACTION`, or `FILE COMMAND`.
pub fn add_touch_hook(draft: &mut Draft, kind: HookKind, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let Some((path, what)) = text.split_once(' ').filter(|(path, what)| !path.is_empty() && !what.trim().is_empty()) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a file and an action", pair.key))
            .advise("write the file, a space, and the action for when it is touched"));
    };
    let Some(hook) = touch_hook(draft, kind, what.trim(), pair)? else { return Ok(()) };
    let number = u32::try_from(draft.of::<Watching>().hooks.len()).unwrap_or(u32::MAX);
    draft.of::<Watching>().hooks.push(hook);
    let file = WatchedFile {
        path: path.into(),
        option: row.name().to_owned(),
        subject: WatchSubject::Touch,
        action: FileAction::Hook(number),
    };
    draft.of::<Watching>().files.push(file);
    Ok(())
}

/// `SIGNAL SECONDS`.
pub fn add_timer(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let parts = text.trim().split_once(' ').map(|(number, seconds)| (number.parse(), seconds.trim().parse()));
    let Some((Ok(number), Ok(seconds @ 1..))) = parts else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a signal and seconds", pair.key))
            .advise("write the number of the signal, 0 to 255, a space, and at least 1 second: `17 60`"));
    };
    draft.of::<Signals>().timers.push(ConfiguredTimer { number, seconds, keeps_time: row.name() == "timer" });
    Ok(())
}

/// `FILE SIGNAL`.
pub fn add_signal_file(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let parts = text.trim().rsplit_once(' ').map(|(path, number)| (path.trim(), number.parse::<u8>()));
    let Some((path, Ok(number))) = parts.filter(|(path, _)| !path.is_empty()) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` lacks a file and a signal", pair.key))
            .advise("write the file, a space, and the number of the signal, 0 to 255"));
    };
    let subject = if row.name() == "touch-signal" { WatchSubject::Touch } else { WatchSubject::Contents };
    let action = FileAction::Signal(number);
    draft.of::<Watching>().files.push(WatchedFile { path: path.into(), option: row.name().to_owned(), subject, action });
    Ok(())
}

/// Notes an option that has no effect unless files are watched.
pub fn note_detail(draft: &mut Draft, pair: &Pair) {
    draft.of::<DevelopingDraft>().detail = Some((pair.key.clone(), pair.location.clone()));
}

/// Completes the settings. uWSGI resolves these paths after it has changed to `chdir`.
pub fn complete(mut watching: Watching, developing: &DevelopingDraft, context: &Context) -> Watching {
    for file in &mut watching.files {
        file.path = context.absolute(&file.path);
    }
    watching.imports = watching.imports.filter(|imports| imports.every_ms > 0);
    if let Some(imports) = &mut watching.imports {
        watching.sources = developing.watched_sources(context);
        let files = context.read.files.iter().map(|file| context.absolute_at_start(file));
        // A configuration that came through a pipe can't change.
        imports.configuration = files.filter(|file| file.is_file()).collect();
    }
    watching
}

/// `develop-editor`.
pub fn choose_editor(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let editor = values::text(pair)?;
    let is_address =
        editor.contains("{path}") && editor.contains("://") && !editor.to_ascii_lowercase().starts_with("javascript:");
    if !EDITORS.contains(&editor.as_str()) && !is_address {
        return Err(Diagnostic::error(
            Some(&pair.location),
            format!("`{}` is no editor that is known, and no address", values::text(pair)?),
        )
        .advise(format!(
            "write one of {}; or an address such as `editor://open?file={{path}}&line={{line}}`",
            EDITORS.join(", ")
        )));
    }
    draft.of::<DevelopingDraft>().editor = Some((editor, pair.location.clone()));
    Ok(())
}
