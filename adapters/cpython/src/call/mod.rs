//! A call of a WSGI application as its callables and the module `uwsgi` see it: its response, and data that few calls have.

pub mod context;
pub mod cooperation;
pub mod current;
pub mod early_hints;
pub mod state;
