//! Resolves the options of mules to helpers. It starts nothing and opens no file. Runs in the process that reads the configuration.

use bolide_contract::children::{Helper, MuleCode, Task};

use super::context::Context;
use super::draft::{Draft, MulesDraft};
use crate::catalogue::row::OptionRow;
use crate::diagnostic::{Diagnostic, Location};
use crate::pair::Pair;

/// The highest number of mules, as of workers.
pub const MULES_MOST: i64 = 1024;

/// `mule`: without a value, or with one of a switch, it waits for messages.
pub fn add_mule(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let written = pair.value.as_deref().map(str::trim).unwrap_or_default();
    let code = match written {
        "" | "true" | "on" | "yes" | "1" => None,
        file if file.ends_with(".py") => Some(MuleCode::File(file.into())),
        function if function.contains(':') => Some(MuleCode::Function(function.to_owned())),
        other => {
            return Err(Diagnostic::error(Some(&pair.location), format!("`mule = {other}` names no code of a mule")).advise(
                "write a file that ends in `.py`, `module:function`, or `mule = true` for a mule that waits for messages",
            ));
        }
    };
    add(draft, code, &pair.location)
}

/// `mules`
pub fn add_mules(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    (0..draft.bounded_u32(row, pair)?).try_for_each(|_| add(draft, None, &pair.location))
}

fn add(draft: &mut Draft, code: Option<MuleCode>, location: &Location) -> Result<(), Diagnostic> {
    if draft.mules.list.len() as i64 >= MULES_MOST {
        return Err(Diagnostic::error(Some(location), format!("there can't be more than {MULES_MOST} mules")));
    }
    draft.mules.list.push(code);
    Ok(())
}

impl MulesDraft {
    /// Completes the list of helpers. Relative paths start at the folder of `chdir`, as in uWSGI.
    pub fn complete(self, context: &Context) -> Vec<Helper> {
        let mule = |(number, code): (u32, Option<MuleCode>)| {
            let code = code.map(|code| match code {
                MuleCode::File(path) => MuleCode::File(context.absolute(path)),
                function => function,
            });
            let task = Task::Mule { number, code };
            Helper { task, reload_mercy_ms: self.reload_mercy_ms, harakiri_ms: None }
        };
        (1u32..).zip(self.list).map(mule).collect()
    }
}
