//! Rows of locks, the queue, memory areas and metrics, which processes share. Pure data.

use crate::resolve::services::metrics::MetricsDraft;
use crate::resolve::services::sharing::QueueDraft;
use crate::resolve::services::sharing::SharingDraft;
use crate::resolve::services::{metrics, sharing};
use crate::row::{OptionEntry, Setting, Value, set};
use crate::values;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "locks",
        Setting::Number(|draft| &mut draft.of::<SharingDraft>().locks),
        Value::Number { least: 0, most: 4096, unit: "locks" },
        "0",
        "The number of locks for the application besides lock 0 (`uwsgi.lock(NUMBER)`, `uwsgi.unlock(NUMBER)`).",
    )
    .uwsgi("a thread that takes a lock twice gets a RuntimeError instead of waiting forever")
    .example("locks = 2"),
    OptionEntry::supported(
        "queue",
        set!(|draft, row, pair| {
            let slots = draft.bounded(row, pair)?;
            draft.of::<QueueDraft>().slots = Some((slots.unsigned_abs(), pair.location.clone()));
        }),
        Value::Number { least: 0, most: 1_000_000_000, unit: "items" },
        "0",
        "Creates a queue of this many items, which all processes share (`uwsgi.queue_push`, `uwsgi.queue_pull` and the related functions).",
    )
    .uwsgi("`queue_pop` of an empty queue leaves the position of the next push where it is")
    .example("queue = 100"),
    OptionEntry::supported(
        "queue-blocksize",
        Setting::Positive(|draft| &mut draft.of::<QueueDraft>().block_bytes),
        Value::Number { least: 17, most: 1 << 30, unit: "bytes" },
        "8192",
        "The bytes of an item of the queue, including 16 for its length and its time.",
    )
    .uwsgi("all items together need not be a multiple of a memory page")
    .example("queue-blocksize = 65536"),
    OptionEntry::supported(
        "queue-store",
        Setting::Located(|draft| &mut draft.of::<QueueDraft>().store),
        Value::Path,
        "",
        "Keeps the items of the queue in this file, beyond the end of the server. The file is uWSGI's: a server of either kind works on with the items of the other.",
    )
    .uwsgi("a file whose first bytes are not those of a queue is renamed to NAME.broken, and the queue begins empty")
    .example("queue = 100\nqueue-store = /srv/shop/queue"),
    OptionEntry::supported(
        "queue-store-sync",
        Setting::Positive(|draft| &mut draft.of::<QueueDraft>().store_sync_s),
        Value::Number { least: 0, most: 86_400, unit: "seconds" },
        "0",
        "The time between two writes of `queue-store` to the disk. Without it the kernel chooses the time, and only a crash of the machine loses items.",
    )
    .example("queue-store-sync = 5"),
    OptionEntry::supported(
        "sharedarea",
        Setting::By(sharing::add_area),
        Value::List,
        "",
        "Creates an area of memory, which all processes share (`uwsgi.sharedarea_read`, `uwsgi.sharedarea_memoryview` and the related functions): a number of pages of 4096 bytes, or `size=BYTES`, which is rounded up to whole pages. With `file=FILE,size=BYTES,offset=BYTES`, or `fd=NUMBER` for a descriptor that the server has inherited, the bytes are those of a file. Areas have numbers from 0.",
    )
    .uwsgi("a number that does not fit into the area is an error also for `sharedarea_inc64` and `sharedarea_dec64`; a file is a regular one, no device")
    .example("sharedarea = size=65536"),
    OptionEntry::supported(
        "py-sharedarea",
        Setting::By(sharing::add_python_area),
        Value::List,
        "",
        "Creates an area of this many bytes. Its number follows those of `sharedarea`.",
    )
    .uwsgi("`uwsgi.sharedarea_object` returns a memoryview instead of a bytearray, and the memory is shared, whereas uWSGI's processes have a copy each")
    .example("py-sharedarea = 1000"),
    OptionEntry::supported(
        "enable-metrics",
        set!(|draft, _, pair| draft.of::<MetricsDraft>().is_on |= draft.switch(pair)),
        Value::Switch,
        "off",
        "Names the numbers of the server and of the application: `uwsgi.metric_get`, and `metrics` in the statistics. The master collects them each second. The options of metrics turn it on, too.",
    )
    .example("enable-metrics = true"),
    OptionEntry::supported(
        "metric",
        Setting::By(metrics::add_metric),
        Value::List,
        "",
        "Adds a metric, which the application changes (`uwsgi.metric_inc`): a name, or `name=NAME` with `type=counter`, `gauge`, `absolute` or `alias` (and `alias=METRIC`), `initial_value=`, `oid=` and `reset_after_push=1`. With `collector=` the master sets it: `file` (`arg1=FILE`, `arg1n=` the number of a word in it, from 0), or `sum`, `avg`, `accumulator`, `adder` and `multiplier` (`arg1n=` the number) of `children=METRIC;METRIC`, every `freq=` seconds.",
    )
    .uwsgi("the collectors `ptr` and `func`, which call C functions, are errors, and a second metric of the same name is one")
    .example("metric = name=orders,type=counter"),
    OptionEntry::supported(
        "metric-threshold",
        Setting::By(metrics::add_threshold),
        Value::List,
        "",
        "Acts when a metric reaches a value: `key=METRIC,value=NUMBER`, with `reset=NUMBER` (the metric is set to it), and `alarm=NAME`, `msg=TEXT` and `rate=SECONDS` (the time between two alarms). The log says it, at most once a minute.",
    )
    .example("metric-threshold = key=worker.1.requests,value=1000000"),
    OptionEntry::supported(
        "metrics-dir",
        set!(|draft, _, pair| {
            draft.of::<MetricsDraft>().folder = Some(values::text(pair)?);
            draft.of::<MetricsDraft>().is_on = true;
        }),
        Value::Path,
        "",
        "Writes the value of each metric to a file of its name in this folder, when it has changed.",
    )
    .uwsgi("a file has the number and a line end, and no zeros up to the size of a page")
    .example("metrics-dir = /srv/shop/metrics"),
    OptionEntry::supported(
        "metrics-dir-restore",
        set!(|draft, _, pair| draft.of::<MetricsDraft>().restores = metrics::switch_on(draft, pair)),
        Value::Switch,
        "off",
        "Counters, and the metrics that the application changes, begin with the values in the folder of `metrics-dir`.",
    )
    .uwsgi("collected gauges, such as memory sizes, do not")
    .example("metrics-dir-restore = true"),
    OptionEntry::supported(
        "metrics-no-cores",
        set!(|draft, _, pair| draft.of::<MetricsDraft>().omits_cores = metrics::switch_on(draft, pair)),
        Value::Switch,
        "off",
        "Threads have no metrics of their own.",
    )
    .example("metrics-no-cores = true"),
];
