//! The ONE seam between the prototype and languages: the steps of an adapter with its application before it serves. The
//! prototype's process calls it, and each worker after the fork.

use std::io;
use std::os::fd::RawFd;

use bolide_contract::boot::Boot;
use bolide_contract::children::ChildKind;
use bolide_engine::Assignment;
use bolide_hooks::Function;
use nix::unistd::{ForkResult, fork};

use crate::handover::FailureNote;
use crate::helper::Helper;

/// A language's half of a prototype. The methods are called in the order in which they stand here; a process becomes either a
/// worker or a helper.
pub trait Application {
    /// An error that ends the process, such as an uncaught exception.
    type Error: From<io::Error>;

    /// Sets up what the application will see: paths, variables, arguments. Once, before anything is loaded.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn prepare(&mut self, boot: &Boot) -> Result<(), Self::Error>;

    /// Loads the application: in the prototype, or with `lazy-apps` in each worker and helper, after
    /// [`Application::become_worker`] or [`Application::become_helper`].
    ///
    /// # Errors
    /// An error of the adapter itself. An application that can't be loaded is [`Loading::Failed`].
    fn load(&mut self) -> Result<Loading, Self::Error>;

    /// With `py-autoreload`: the files that were imported so far, or that a failed load tried to import, in the contract's format
    /// ([`bolide_contract::message::ImportedFile`]). Called after [`Application::load`], whatever its outcome. `None` if the
    /// language can't list them.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn imports(&mut self) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(None)
    }

    /// What the application has registered for uWSGI's signals while it was loaded, in the contract's format
    /// ([`bolide_contract::uwsgi_signals::Registrations`]). Called after a successful [`Application::load`]. `None`: nothing.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn registrations(&mut self) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(None)
    }

    /// Calls a function of the application that a hook names. The error says why it failed.
    ///
    /// # Errors
    /// There is no such function, it raised an exception, or its result is a failure.
    fn call(&mut self, function: &Function<'_>) -> Result<(), String> {
        bolide_hooks::no_functions(function)
    }

    /// Called when everything is loaded and stays as it is: a garbage collector must not write to it from now on, since that
    /// would copy the pages that workers share.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn freeze(&mut self) -> Result<(), Self::Error>;

    /// Waits for the master without holding the language's lock, if its threads may run in the meantime.
    fn aside<R: Send>(&mut self, wait: impl FnOnce() -> R + Send) -> R {
        wait()
    }

    /// Forks this process, for a child of this kind. A language with work to do before and after a fork (hooks, seeds, locks of
    /// its own) does it here.
    ///
    /// # Errors
    /// The error of fork(2); its errno is reported to the master.
    fn fork(&mut self, kind: ChildKind) -> io::Result<ForkResult> {
        let _ = kind;
        // SAFETY: a prototype waits for orders and has only this thread, so no other thread holds a lock.
        Ok(unsafe { fork()? })
    }

    /// In the prototype: a child has exited otherwise than with status 0, maybe inside a lock of memory that processes share.
    /// What it held there is recovered before the master hears of its end.
    fn recover(&mut self, pid: u32) {
        let _ = pid;
    }

    /// In the prototype: a worker or a helper has ended, and the master was told. It is not called for children of other
    /// prototypes, or for children that exit because the master is gone.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn note_end(&mut self, pid: u32) -> Result<(), Self::Error> {
        let _ = pid;
        Ok(())
    }

    /// This process is the worker with this number from now on.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn become_worker(&mut self, number: u32) -> Result<(), Self::Error>;

    /// This worker's generation was not accepted yet: before the worker serves, the application must answer the request of the
    /// settings (`reload-probe`), if there is one. A language that can't send such a request lets the worker serve.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn undergo_trial(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// This worker does not replace another one of its generation: if it can't load the application, the generation fails, and
    /// the master logs the reason.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn begin_generation(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// In a worker that has drained and is to be the base of its siblings (`refork-after`): closes what the application can open
    /// again, and returns what else it has opened that no fork can share, a line for each. With none, everything that is left is
    /// made ready to be shared, as by [`Application::freeze`]. `own` are the descriptors that the server has opened.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn release_for_fork(&mut self, own: &[RawFd]) -> Result<Vec<String>, Self::Error> {
        let _ = own;
        Ok(vec!["no process of this language can be forked once it has served".to_owned()])
    }

    /// Forks a worker that has drained, after [`Application::release_for_fork`].
    ///
    /// # Errors
    /// The error of fork(2).
    fn fork_prototype(&mut self) -> io::Result<ForkResult> {
        // SAFETY: a worker that has drained has ended its threads, and has found none of the application's, so no other thread
        // holds a lock.
        Ok(unsafe { fork()? })
    }

    /// This process, a fork of a worker, is a prototype from now on. What the worker has set in its life can still be taken back.
    ///
    /// # Errors
    /// An error that prevents the language from working.
    fn become_prototype(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// This process is the helper with this number in the settings' `helpers` from now on.
    ///
    /// # Errors
    /// An error that prevents the language from working, or the language has no helpers.
    fn become_helper(&mut self, number: u32) -> Result<(), Self::Error> {
        let words = format!("helper {number} has nothing to do: the language of this application has no helpers");
        Err(io::Error::new(io::ErrorKind::Unsupported, words).into())
    }

    /// Does the helper's work until it must end ([`Helper::is_to_end`]). Returns the exit status.
    ///
    /// # Errors
    /// An error that prevents the helper from working.
    fn help(&mut self, mut helper: Helper) -> Result<i32, Self::Error> {
        self.aside(|| helper.wait_for_end(None))?;
        Ok(0)
    }

    /// Serves until the worker's end, with [`bolide_engine::serve`] or a [`bolide_engine::EmbeddedWorker`]. Returns the exit
    /// status. If the application turns out not to start, the reason is written to `note`, and the status is that of a failed
    /// load.
    ///
    /// # Errors
    /// An error that prevents the worker from serving.
    fn serve(&mut self, assignment: Assignment, note: FailureNote) -> Result<i32, Self::Error>;
}

/// The outcome of loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loading {
    Loaded,
    /// The application can't be loaded: the reason, as a line that the master shows at startup. Details are in the log.
    Failed(String),
    /// In a prototype, with `fork-safety = lazy`: it is loaded, and has opened resources that forked workers can't share. The log
    /// lists them.
    Unshared,
}
