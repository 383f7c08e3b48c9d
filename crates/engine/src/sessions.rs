//! Which worker has the session of a request (`sticky`). It knows clients, and neither connections nor answers. Workers run it.

pub mod affinity;
pub mod session_keys;
