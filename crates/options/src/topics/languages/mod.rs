//! Chooses the language of an instance, which has one: Python, CGI, or that of a plugin. It loads nothing. Runs in the process
//! that reads the configuration.

pub mod cgi;
pub mod perl;
pub mod plugins;
pub mod ruby;

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_contract::settings::{Application, Language};

use crate::context::Context;
use crate::draft::Draft;
use crate::topics::languages::cgi::CgiDraft;
use crate::topics::languages::plugins::{ANOTHER_INSTANCE, PluginDraft};

/// The options that set an application of another language.
pub const APPLICATIONS: [&str; 4] = [cgi::PLACE, "lua", "psgi", "rack"];

/// Options that name uWSGI's number of a language. Whether it is that of this instance is known at the end.
#[derive(Default)]
pub struct ModifiersDraft(pub Vec<Modifier>);

pub struct Modifier {
    pub number: u8,
    pub key: String,
    pub location: Location,
    /// The advice for another number.
    pub instead: &'static str,
}

/// Returns the language of the applications, if it is not Python. `mounts` are those of a plugin.
pub fn complete(
    draft: &mut Draft,
    python: &[Application],
    mounts: Vec<(String, Location)>,
    is_jailed: bool,
    context: &mut Context,
) -> Option<Language> {
    let plugin = draft.take::<PluginDraft>().complete(mounts, context);
    let cgi = draft.take::<CgiDraft>().complete(is_jailed, context);
    let found = [
        python.first().map(|application| ("a Python application", &application.origin)),
        cgi.as_ref().and_then(|cgi| cgi.places.first()).map(|place| ("CGI programs", &place.origin)),
        plugin.as_ref().map(|plugin| ("the plugin", &plugin.origin)),
    ];
    if let [(one, at_one), (other, at_other), ..] = found.into_iter().flatten().collect::<Vec<_>>()[..] {
        let message =
            format!("an instance has applications of one language, and this one has {one} at {at_one} and {other} at {at_other}");
        context.diagnostics.push(Diagnostic::error(None, message).advise(ANOTHER_INSTANCE));
    }
    match (plugin, cgi) {
        (Some(plugin), _) => Some(Language::Plugin(Box::new(plugin))),
        (None, Some(cgi)) => Some(Language::Cgi(Box::new(cgi))),
        (None, None) => None,
    }
}

impl ModifiersDraft {
    /// Refuses the numbers of other languages.
    pub fn check(self, language: Option<&Language>, context: &mut Context) {
        let own = language.map_or(0, Language::modifier);
        for modifier in self.0.into_iter().filter(|modifier| modifier.number != own) {
            let message = format!("`{}` is not supported", modifier.key);
            context.diagnostics.push(Diagnostic::error(Some(&modifier.location), message).advise(modifier.instead));
        }
    }
}
