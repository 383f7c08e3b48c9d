//! Options of a number of workers that varies, and their settings. It starts nothing; runs in the process that reads the configuration.

use bolide_contract::elastic::{self, Cheaper};

use super::draft::{Draft, ElasticDraft};
use super::values;
use crate::catalogue::ALGORITHMS;
use crate::catalogue::row::Row;
use crate::catalogue::setting::Elastic;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;

impl Draft<'_> {
    pub(super) fn set_elastic(&mut self, setting: Elastic, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        let location = || pair.location.clone();
        match setting {
            Elastic::Algorithm => self.elastic.cheaper.algorithm = values::one_of(pair, &ALGORITHMS)?,
            Elastic::BusynessVerbose => self.elastic.cheaper.busyness.is_verbose = self.switch(pair),
            Elastic::StartsEmpty => self.elastic.settings.starts_empty = self.switch(pair),
            Elastic::DiesIdle => {
                self.elastic.settings.dies_idle = self.switch(pair);
                self.elastic.dies = Some(location()).filter(|_| self.elastic.settings.dies_idle);
            }
            _ => self.set_elastic_number(setting, row, pair)?,
        }
        let is_detail = !matches!(setting, Elastic::Least | Elastic::StartsEmpty | Elastic::IdleTime | Elastic::DiesIdle);
        if is_detail {
            self.elastic.detail = Some((pair.key.clone(), location()));
        }
        Ok(())
    }

    /// Options whose value is a number; 0 is the default, as in uWSGI.
    fn set_elastic_number(&mut self, setting: Elastic, row: &Row, pair: &Pair) -> Result<(), Diagnostic> {
        let number = self.positive(row, pair)?;
        let small = number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let default = Cheaper::default();
        let draft = &mut self.elastic;
        let (cheaper, busyness) = (&mut draft.cheaper, default.busyness);
        let of_busyness = &mut cheaper.busyness;
        let located = small.map(|number| (number, pair.location.clone()));
        match setting {
            Elastic::Least => draft.least = located,
            Elastic::First => draft.first = located,
            Elastic::Step => cheaper.step = small.unwrap_or(default.step),
            Elastic::Overload => cheaper.overload = small.unwrap_or(default.overload),
            Elastic::Idle => cheaper.idle_s = small.unwrap_or(default.idle_s),
            Elastic::ResidentSoft => cheaper.resident_soft = number,
            Elastic::ResidentHard => {
                cheaper.resident_hard = number;
                draft.hard = number.map(|_| pair.location.clone());
            }
            Elastic::BusynessMax => of_busyness.most_percent = small.unwrap_or(busyness.most_percent),
            Elastic::BusynessMin => of_busyness.least_percent = small.unwrap_or(busyness.least_percent),
            Elastic::BusynessMultiplier => of_busyness.multiplier = small.unwrap_or(busyness.multiplier),
            Elastic::BusynessPenalty => of_busyness.penalty = small.unwrap_or(busyness.penalty),
            Elastic::BacklogAlert => of_busyness.backlog_alert = small.unwrap_or(busyness.backlog_alert),
            Elastic::BacklogMultiplier => of_busyness.backlog_multiplier = small.unwrap_or(busyness.backlog_multiplier),
            Elastic::BacklogStep => of_busyness.backlog_step = small.unwrap_or(busyness.backlog_step),
            Elastic::BacklogNonzero => of_busyness.backlog_nonzero_s = small.unwrap_or(busyness.backlog_nonzero_s),
            Elastic::IdleTime => draft.settings.idle_ms = number.map(|seconds| seconds.saturating_mul(1000)),
            // `set_elastic` has taken those that are no numbers.
            Elastic::Algorithm | Elastic::BusynessVerbose | Elastic::StartsEmpty | Elastic::DiesIdle => {}
        }
        Ok(())
    }

    /// The settings, once `processes` is known.
    pub(super) fn elastic(&mut self, most: u32) -> elastic::Elastic {
        let ElasticDraft { settings, cheaper, least, first, detail, hard, dies } = std::mem::take(&mut self.elastic);
        if let (Some(location), None) = (dies, settings.idle_ms) {
            self.diagnostics.push(Diagnostic::warning(Some(&location), "`die-on-idle` does nothing without `idle`"));
        }
        let Some((least, location)) = least else {
            if let Some((name, location)) = detail {
                let message = format!("`{name}` does nothing without `cheaper`, as in uWSGI");
                self.diagnostics.push(Diagnostic::warning(Some(&location), message));
            }
            return settings;
        };
        if least >= most {
            let message = format!("`cheaper = {least}` is not below the number of processes, which is {most}: all of them start");
            let diagnostic = Diagnostic::warning(Some(&location), message);
            self.diagnostics.push(diagnostic.advise("it is how many workers stay when there is nothing to do"));
            return settings;
        }
        if let Some((first, location)) = first.as_ref().filter(|(first, _)| !(least..=most).contains(first)) {
            let message =
                format!("`cheaper-initial = {first}` is not between `cheaper` ({least}) and the number of processes ({most})");
            self.diagnostics.push(Diagnostic::warning(Some(location), message).advise("the nearest of both is taken"));
        }
        if let (Some(soft), Some(hard_bytes), Some(location)) = (cheaper.resident_soft, cheaper.resident_hard, hard)
            && hard_bytes <= soft
        {
            let message = "`cheaper-rss-limit-hard` is not above `cheaper-rss-limit-soft`";
            self.diagnostics.push(Diagnostic::error(Some(&location), message).advise("make it larger"));
        }
        let first = first.map_or(least, |(first, _)| first.clamp(least, most));
        elastic::Elastic { cheaper: Some(Cheaper { least, first, ..cheaper }), ..settings }
    }
}
