//! A call of a WSGI application as its callables and the module `uwsgi` see it: its answer, and data that few calls have. Also
//! what is the same for the calls of every interface.

pub mod context;
pub mod cooperation;
pub mod current;
pub mod early_hints;
pub mod state;

/// Methods of [`bolide_engine::app::App`] that answer for the whole process, whichever interface the application has.
macro_rules! of_the_process {
    () => {
        #[inline(always)]
        fn judges_requests(&self) -> bool {
            crate::log::judges_requests()
        }

        fn judge_request(&mut self, request: &bolide_engine::app::EndedRequest<'_>) -> bool {
            crate::log::judge_request(request)
        }

        fn objects(&mut self, collection: bolide_engine::app::Collection) -> bolide_engine::app::Objects {
            crate::memory::objects(collection)
        }

        fn signal(&mut self, number: u8) -> bolide_engine::app::SignalOutcome {
            crate::uwsgi_signals::run_handler(number)
        }
    };
}
pub(crate) use of_the_process;
