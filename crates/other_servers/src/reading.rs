//! What the reading of a configuration asks of this crate: files of gunicorn and hypercorn as options, and words of other
//! programs. Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_options::reader::other_servers::{ForeignFile, GunicornFile, OtherServers, PlaceOf};

use crate::{MadeOption, SettingRemark, gunicorn, hypercorn, other_words};

/// The servers whose flags, settings and words are known here.
#[derive(Debug)]
pub struct KnownServers;

impl OtherServers for KnownServers {
    fn run_gunicorn(
        &self,
        file: &GunicornFile<'_>,
        place: PlaceOf<'_>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ForeignFile, Diagnostic> {
        let settings = gunicorn::run(file.path, file.name, file.python, file.directory)
            .map_err(|mistake| Diagnostic { location: mistake.location.map(|at| place(at.line)), ..mistake })?;
        let translated = gunicorn::translated(&settings, variable);
        Ok(made(translated.options, &translated.remarks, place))
    }

    fn read_hypercorn(&self, text: &str, place: PlaceOf<'_>, line_at: &dyn Fn(usize) -> u32) -> Option<ForeignFile> {
        hypercorn::is_configuration(text).then(|| {
            let (options, remarks) = hypercorn::translated(text, line_at);
            made(options, &remarks, place)
        })
    }

    fn advice(&self, word: &str) -> Option<String> {
        other_words::advice(word)
    }

    fn option_for(&self, word: &str) -> Option<&'static str> {
        other_words::about(word)?.option
    }
}

fn made(options: Vec<MadeOption>, remarks: &[SettingRemark], place: PlaceOf<'_>) -> ForeignFile {
    ForeignFile {
        options: options.into_iter().map(|made| (made.key, made.value, made.line)).collect(),
        diagnostics: remarks.iter().map(|remark| remark.diagnostic(&place(remark.line))).collect(),
    }
}
