//! The prototype of CGI: it checks the places of programs, and loads nothing. Each of its forks is a worker. It does not know
//! requests. The prototype's process runs it, and each worker at its start.

use std::io;
use std::os::fd::RawFd;

use bolide_contract::boot::Boot;
use bolide_contract::settings::{Cgi, Language, Settings};
use bolide_engine::Assignment;
use bolide_prototype::{Application, FailureNote, Loading, plain_process};

use crate::app::CgiLanguage;
use crate::environment::Base;
use crate::place::Places;
use crate::state::State;
use crate::worker;

/// Runs a prototype, and in each forked child a worker. Returns the exit status.
///
/// # Errors
/// The boot file can't be read, or a system call fails.
pub fn run(boot: RawFd) -> io::Result<i32> {
    bolide_prototype::run(boot, &mut CgiApplication { boot: None })
}

struct CgiApplication {
    boot: Option<Boot>,
}

impl CgiApplication {
    fn boot(&self) -> io::Result<&Boot> {
        self.boot.as_ref().ok_or_else(|| io::Error::other("nothing was prepared"))
    }

    fn settings(&self) -> io::Result<(&Settings, &Cgi)> {
        let settings = &self.boot()?.settings;
        Ok((settings, cgi_of(settings)?))
    }
}

fn cgi_of(settings: &Settings) -> io::Result<&Cgi> {
    match &settings.language {
        Language::Cgi(cgi) => Ok(cgi),
        _ => Err(io::Error::other("the applications are not programs of CGI")),
    }
}

/// The first place for the name of a process: `cgi-bin`, or `cgi-bin +1` of two.
fn label(cgi: &Cgi) -> String {
    let name = cgi.places.first().and_then(|place| place.path.file_name());
    let Some(name) = name.map(|name| name.to_string_lossy()) else { return String::new() };
    match cgi.places.len() {
        0 | 1 => name.into_owned(),
        count => format!("{name} +{}", count - 1),
    }
}

impl Application for CgiApplication {
    type Error = io::Error;

    fn prepare(&mut self, boot: &Boot) -> io::Result<()> {
        plain_process::prepare(boot, &label(cgi_of(&boot.settings)?), None)?;
        self.boot = Some(boot.clone());
        Ok(())
    }

    fn load(&mut self) -> io::Result<Loading> {
        let (settings, cgi) = self.settings()?;
        Ok(match Places::new(cgi, &Base::search(settings)) {
            Ok(_) => Loading::Loaded,
            Err(reason) => Loading::Failed(reason),
        })
    }

    /// Nothing was loaded.
    fn freeze(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn become_worker(&mut self, number: u32) -> io::Result<()> {
        let boot = self.boot()?;
        plain_process::become_worker(boot, number, &label(cgi_of(&boot.settings)?))
    }

    fn serve(&mut self, assignment: Assignment, _note: FailureNote) -> io::Result<i32> {
        let (settings, cgi) = self.settings()?;
        let state = State::new(settings, cgi, &assignment.listeners, assignment.worker)?;
        worker::serve(CgiLanguage::lasting(state), assignment)?;
        Ok(0)
    }
}
