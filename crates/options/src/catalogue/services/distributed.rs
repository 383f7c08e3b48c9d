//! Rows of engines on the network, which several machines share. Pure data.

use crate::resolve::services::distributed::{set_lock_engine, set_timer_engine};
use crate::row::{OptionEntry, Setting, Value};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported("lock-engine", Setting::By(set_lock_engine), Value::Special, "", "The Redis or Valkey server that keeps locks for several machines: `uwsgi.lock` and the related functions, and leases with fencing tokens (`bolide.lease`). The address is `redis://USER:PASSWORD@HOST:6379/0`, `rediss://` for TLS, or `redis+unix:///PATH`; its query may have `connect-ms` (100), `answer-ms` (500), `hold-seconds` (30: how long a lock outlives a holder that dies), `prefix` (bolide: the start of all keys), `ca` (a file of certificates), `db`, `user` and `pass`.")
        .uwsgi("uWSGI chooses the locks of one machine here (`ipcsem`); those are in shared memory, and such a value has no effect. An address is Bolide's.")
        .example("lock-engine = redis://127.0.0.1:6379/0?hold-seconds=60"),
    OptionEntry::supported("timer-engine", Setting::By(set_timer_engine), Value::Special, "", "The Redis or Valkey server that lets timers and cron times of uWSGI's signals (`uwsgi.add_timer`, `uwsgidecorators.timer`, `cron` and the related functions) fire once for the instances of all machines: each instance asks, and one of them calls the handler. Periods count from 1970, by the server's clock. If the process of a handler dies, another one fires, so a handler runs at least once. Timers whose target is each worker or each mule fire on each machine. The address is that of `lock-engine`; `hold-seconds` (60) is how long a handler may take before another process fires.")
        .example("timer-engine = redis://127.0.0.1:6379/0?hold-seconds=300"),
];
