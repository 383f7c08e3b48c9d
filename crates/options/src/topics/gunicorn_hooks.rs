//! gunicorn's hooks: which of them are called here (by `bolide/gunicorn/hooks.py`), and why the others are not. Pure data.

/// Hooks that the prototype or a worker calls.
pub const CALLED: &[&str] = &[
    "on_starting",
    "on_reload",
    "when_ready",
    "pre_fork",
    "post_fork",
    "post_worker_init",
    "pre_request",
    "post_request",
    "worker_exit",
    "child_exit",
];

/// Hooks that are not called, with the alternative.
pub const NOT_CALLED: &[(&str, &str)] = &[
    ("worker_int", "workers do not receive SIGINT: `worker_exit` is called when one exits normally"),
    ("worker_abort", "a worker that exceeds its time is killed by the master, and the log contains the stack of its request"),
    ("nworkers_changed", "the master manages the number of workers, and does not run Python"),
    ("pre_exec", "there is no such step, because `bolide upgrade` replaces the master"),
    (
        "on_exit",
        "the master does not run Python, but workers call `worker_exit`, and `exec-as-user-atexit` runs a command at exit",
    ),
    ("ssl_context", "Python does not handle TLS here, so use `tls-min-version`, `tls-client-auth` and `https`"),
    ("on_dirty_starting", "mules keep the dirty apps, so write it in `init` and `close` of an app"),
    ("dirty_post_fork", "mules keep the dirty apps, so write it in `init` and `close` of an app"),
    ("dirty_worker_init", "mules keep the dirty apps, so write it in `init` and `close` of an app"),
    ("dirty_worker_exit", "mules keep the dirty apps, so write it in `init` and `close` of an app"),
];

/// The names of the hooks that are not called.
pub fn names_not_called() -> Vec<String> {
    NOT_CALLED.iter().map(|(name, _)| (*name).to_owned()).collect()
}
