//! The command line and the environment, read in uWSGI's order into one configuration.

use crate::diagnostic::{Diagnostic, Location};
use crate::host_info::HostInfo;
use crate::other_servers;
use crate::reader::{Configuration, EarlyExit, Reader, format_of};
use crate::resolve::PositionalApplication;
use crate::sources::{self, argv::Arguments};
use crate::suggest;

/// Environment, then options, then positional arguments: uWSGI's order, in which what is read later wins.
pub fn collect(arguments: &[String], host: &HostInfo) -> Result<(Configuration, Option<PositionalApplication>), EarlyExit> {
    let mut reader = Reader::new(host);
    for (variable, value) in &host.environment {
        if let Some((key, value)) = sources::environment::pair(variable, value) {
            reader.add(&key, Some(&value), &Location::environment(variable))?;
        }
    }
    let location = Location::command_line();
    let mut words = Arguments::new(arguments);
    loop {
        let word = words.next_option(|name| reader.declared(name)).map_err(|mistake| {
            let diagnostic = Diagnostic::error(Some(&location), mistake.message);
            let unknown = mistake.unknown.as_deref();
            if let Some(instead) = unknown.and_then(other_servers::instead) {
                return diagnostic.advise(instead);
            }
            match unknown.and_then(suggest::nearest) {
                Some(nearest) => diagnostic.advise(format!("did you mean `--{nearest}`?")),
                None => diagnostic.advise("`bolide --help` lists the options"),
            }
        })?;
        match word {
            Some(given) => {
                if let Some((message, advice)) =
                    other_servers::misunderstood(&given.name, given.value.as_deref().unwrap_or_default())
                {
                    return Err(Diagnostic::error(Some(&location), message).advise(advice).into());
                }
                reader.add(&given.name, given.value.as_deref(), &location)?;
            }
            None => break,
        }
    }
    let mut application = None;
    for text in words.into_positional() {
        take_positional(&text, &mut reader, &mut application)?;
    }
    Ok((reader.finish()?, application))
}

/// A configuration file, or an application.
fn take_positional(
    text: &str,
    reader: &mut Reader<'_>,
    application: &mut Option<PositionalApplication>,
) -> Result<(), EarlyExit> {
    let location = &Location::command_line();
    // uWSGI passes over these: a process can so be given a label in `ps`.
    if text.starts_with('[') {
        return Ok(());
    }
    let name = text.rsplit_once(':').map_or(text, |(name, _)| name);
    if format_of(text).is_some() || format_of(name).is_some() {
        return reader.load(text, None, location, false);
    }
    match application {
        Some(_) => {
            Err(Diagnostic::error(Some(location), format!("`{text}`: there is already an application on the command line"))
                .advise("use `mount` for several")
                .into())
        }
        None => {
            *application = Some(PositionalApplication { text: text.to_owned() });
            Ok(())
        }
    }
}
