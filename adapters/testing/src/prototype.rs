//! The test language under a real master: its implementation of a prototype. It loads one application, `testing`; any other name
//! is an application that can't be loaded. It does not know requests. The prototype's process runs it, and each worker.

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use bolide_contract::boot::Boot;
use bolide_contract::settings::{ApplicationSource, Settings};
use bolide_engine::Assignment;
use bolide_prototype::{Application, FailureNote, Helper, Loading};

use crate::gates::Pipes;
use crate::helper_tasks::Task;
use crate::language::TestLanguage;

/// Runs a prototype, and in each forked child a worker or a helper. Returns the exit status.
///
/// # Errors
/// The boot file can't be read, or a system call fails.
pub fn run(boot: RawFd) -> io::Result<i32> {
    bolide_prototype::run(boot, &mut TestApplication { settings: None, generation: 0, language: None, task: None })
}

struct TestApplication {
    settings: Option<Settings>,
    generation: u32,
    language: Option<&'static TestLanguage>,
    /// In a helper, its task.
    task: Option<Task>,
}

impl Application for TestApplication {
    type Error = io::Error;

    fn prepare(&mut self, boot: &Boot) -> io::Result<()> {
        self.settings = Some(boot.settings.clone());
        self.generation = boot.generation;
        Ok(())
    }

    fn load(&mut self) -> io::Result<Loading> {
        let settings = self.settings.as_ref().ok_or_else(|| io::Error::other("nothing was prepared"))?;
        let strange = settings.applications.iter().find(|application| match &application.source {
            ApplicationSource::Module(name) => name != "testing",
            _ => true,
        });
        if let Some(strange) = strange {
            return Ok(Loading::Failed(format!("the test language has no application {:?}", strange.source)));
        }
        let directory = settings.application.chdir.as_deref().unwrap_or(Path::new(".")).to_owned();
        self.language = Some(TestLanguage::new(Arc::new(Pipes { directory })));
        Ok(Loading::Loaded)
    }

    /// No code writes to loaded objects.
    fn freeze(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn become_worker(&mut self, number: u32) -> io::Result<()> {
        bolide_log::line(&format!("worker {number} of the test language"));
        Ok(())
    }

    /// The test language opens nothing. It refuses where a file tells it to.
    fn release_for_fork(&mut self, _own: &[RawFd]) -> io::Result<Vec<String>> {
        let settings = self.settings.as_ref().ok_or_else(|| io::Error::other("nothing was prepared"))?;
        let directory = settings.application.chdir.as_deref().unwrap_or(Path::new("."));
        Ok(fs::read_to_string(directory.join("held")).into_iter().collect())
    }

    fn become_helper(&mut self, number: u32) -> io::Result<()> {
        let settings = self.settings.as_ref().ok_or_else(|| io::Error::other("nothing was prepared"))?;
        let task = Task::of(settings, self.generation, number)?;
        task.set_up()?;
        self.task = Some(task);
        Ok(())
    }

    fn help(&mut self, helper: Helper) -> io::Result<i32> {
        let task = self.task.as_ref().ok_or_else(|| io::Error::other("the helper has no task"))?;
        task.work(helper)
    }

    fn serve(&mut self, assignment: Assignment, _note: FailureNote) -> io::Result<i32> {
        let language = self.language.ok_or_else(|| io::Error::other("nothing was loaded"))?;
        bolide_engine::serve(language, assignment)?;
        Ok(0)
    }
}
