//! Resolves the options of scaling (`cheaper` and related options) to settings. It starts nothing. Runs in the process that reads
//! the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::scaling::{Cheaper, Scaling};

use crate::context::Context;
use crate::draft::Draft;
use crate::row::OptionRow;

/// Sets a number; 0 stands for the default, as in uWSGI.
pub fn set_number(
    draft: &mut Draft,
    row: &OptionRow,
    pair: &Pair,
    field: fn(&mut Cheaper) -> &mut u32,
) -> Result<(), Diagnostic> {
    let number = small(draft.positive(row, pair)?);
    *field(&mut draft.of::<ScalingDraft>().cheaper) = number.unwrap_or_else(|| *field(&mut Cheaper::default()));
    note_detail(draft, pair);
    Ok(())
}

pub fn located_number(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<Option<(u32, Location)>, Diagnostic> {
    Ok(small(draft.positive(row, pair)?).map(|number| (number, pair.location.clone())))
}

pub fn set_hard_limit(draft: &mut Draft, row: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = draft.positive(row, pair)?;
    draft.of::<ScalingDraft>().cheaper.resident_hard = bytes;
    draft.of::<ScalingDraft>().hard = bytes.map(|_| pair.location.clone());
    note_detail(draft, pair);
    Ok(())
}

/// Notes an option that has no effect without `cheaper`.
pub fn note_detail(draft: &mut Draft, pair: &Pair) {
    draft.of::<ScalingDraft>().detail = Some((pair.key.clone(), pair.location.clone()));
}

fn small(number: Option<u64>) -> Option<u32> {
    number.map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

impl ScalingDraft {
    /// Completes the settings, once `processes` is known.
    pub fn complete(self, most: u32, context: &mut Context) -> Scaling {
        let ScalingDraft { mut settings, cheaper, least, first, detail, hard, dies } = self;
        settings.dies_idle = dies.is_some();
        if let (Some(location), None) = (dies, settings.idle_ms) {
            context.diagnostics.push(Diagnostic::warning(Some(&location), "`die-on-idle` has no effect without `idle`"));
        }
        let Some((least, location)) = least else {
            if let Some((name, location)) = detail {
                let message = format!("`{name}` has no effect without `cheaper`, as in uWSGI");
                context.diagnostics.push(Diagnostic::warning(Some(&location), message));
            }
            return settings;
        };
        if least >= most {
            let message = format!("`cheaper = {least}` is not below the number of processes, which is {most}: all of them start");
            let diagnostic = Diagnostic::warning(Some(&location), message);
            context.diagnostics.push(diagnostic.advise("it is the number of workers that stay when there is nothing to do"));
            return settings;
        }
        if let Some((first, location)) = first.as_ref().filter(|(first, _)| !(least..=most).contains(first)) {
            let message =
                format!("`cheaper-initial = {first}` is not between `cheaper` ({least}) and the number of processes ({most})");
            context.diagnostics.push(Diagnostic::warning(Some(location), message).advise("the nearest value is used"));
        }
        if let (Some(soft), Some(hard_bytes), Some(location)) = (cheaper.resident_soft, cheaper.resident_hard, hard)
            && hard_bytes <= soft
        {
            let message = "`cheaper-rss-limit-hard` is not above `cheaper-rss-limit-soft`";
            context.diagnostics.push(Diagnostic::error(Some(&location), message).advise("make it larger"));
        }
        let first = first.map_or(least, |(first, _)| first.clamp(least, most));
        Scaling { cheaper: Some(Cheaper { least, first, ..cheaper }), ..settings }
    }
}

/// The options of scaling so far.
#[derive(Default)]
pub struct ScalingDraft {
    pub settings: bolide_contract::scaling::Scaling,
    pub cheaper: bolide_contract::scaling::Cheaper,
    pub least: Option<(u32, Location)>,
    pub first: Option<(u32, Location)>,
    /// The last option that has no effect without `cheaper`.
    pub detail: Option<(String, Location)>,
    pub hard: Option<Location>,
    pub dies: Option<Location>,
}
