//! The ONE seam between the prototype and languages: what an adapter does with its application before it serves. The prototype's
//! process calls it, and each worker after the fork.

use std::io;

use bolide_contract::boot::Boot;
use bolide_engine::Assignment;
use bolide_hooks::Function;
use nix::unistd::{ForkResult, fork};

use crate::handover::FailureNote;
use crate::helper::Helper;

/// A language's half of a prototype. The methods are called in the order in which they stand here; a process is a worker or a helper.
pub trait Application {
    /// What ends the process: an exception that nobody catches, say.
    type Error: From<io::Error>;

    /// Sets up what the application will see: paths, variables, arguments. Once, before anything is loaded.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn prepare(&mut self, boot: &Boot) -> Result<(), Self::Error>;

    /// Loads the application: in the prototype, or with `lazy-apps` in each worker and helper, after [`Application::become_worker`] or
    /// [`Application::become_helper`].
    ///
    /// # Errors
    /// A fault of the adapter itself. An application that can't be loaded is [`Loading::Failed`].
    fn load(&mut self) -> Result<Loading, Self::Error>;

    /// With `py-autoreload`: the files of what was imported so far, or would have been where loading failed, as the contract writes
    /// them ([`bolide_contract::message::ImportedFile`]). Called after [`Application::load`], however that went. A language that can't tell them has none.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn imports(&mut self) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(None)
    }

    /// Calls a function of the application's that a hook names; says why it failed.
    ///
    /// # Errors
    /// There is none of this name, it raised something, or its answer says so.
    fn call(&mut self, function: &Function<'_>) -> Result<(), String> {
        bolide_hooks::no_functions(function)
    }

    /// Whatever is loaded stays as it is from here on: a collector that would write into it, and so copy the pages that workers
    /// share, is told so.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn freeze(&mut self) -> Result<(), Self::Error>;

    /// Waits for the master without the language, if it has threads that may run meanwhile.
    fn aside<R: Send>(&mut self, wait: impl FnOnce() -> R + Send) -> R {
        wait()
    }

    /// Forks this process. A language that has something to do before and after a fork (hooks, seeds, locks of its own) does it here.
    ///
    /// # Errors
    /// The system's reason why there is no further process; the master is told its number.
    fn fork(&mut self) -> io::Result<ForkResult> {
        // SAFETY: a prototype waits for orders and has this one thread, so no lock is held by another one.
        Ok(unsafe { fork()? })
    }

    /// In the prototype: the process of a worker or a helper has ended, and the master knows. One whose end belongs to another prototype, or that ends
    /// when the master is gone, is not told of.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn note_end(&mut self, pid: u32) -> Result<(), Self::Error> {
        let _ = pid;
        Ok(())
    }

    /// This process is a worker from now on, of this number.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn become_worker(&mut self, number: u32) -> Result<(), Self::Error>;

    /// This worker's generation is not let in yet: before it serves, the application is to answer the request of the settings
    /// (`reload-probe`), if there is one. A language that can't ask its applications lets them serve.
    ///
    /// # Errors
    /// What keeps the language from its work.
    fn undergo_trial(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// This process is a helper from now on, of this number in the settings' `helpers`.
    ///
    /// # Errors
    /// What keeps the language from its work; that it has no helpers.
    fn become_helper(&mut self, number: u32) -> Result<(), Self::Error> {
        let words = format!("helper {number} has nothing to do: the language of this application has no helpers");
        Err(io::Error::new(io::ErrorKind::Unsupported, words).into())
    }

    /// Does the helper's work until it is to end ([`Helper::is_to_end`]). Gives the exit status.
    ///
    /// # Errors
    /// What keeps the helper from its work.
    fn help(&mut self, mut helper: Helper) -> Result<i32, Self::Error> {
        self.aside(|| helper.wait_for_end(None))?;
        Ok(0)
    }

    /// Serves until the worker's end, with [`bolide_engine::serve`] or a [`bolide_engine::EmbeddedWorker`]. Gives the exit status.
    /// An application that turns out not to start leaves its reason in `note`, and the status is that of a failed load.
    ///
    /// # Errors
    /// What keeps the worker from serving.
    fn serve(&mut self, assignment: Assignment, note: FailureNote) -> Result<i32, Self::Error>;
}

/// How loading went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loading {
    Loaded,
    /// The application can't be loaded: a line for the master, which says why at the start. Details are in the log.
    Failed(String),
    /// In a prototype, with `fork-safety = lazy`: it is loaded, and has opened what forked workers can't share. The log says what.
    Unshared,
}
