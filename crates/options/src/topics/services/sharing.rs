//! Resolves the options of locks, the queue and memory areas. It does not create memory. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::distributed::Distributed;
use bolide_contract::sharing::{Area, AreaSource, Inboxes, Queue, QueueStore};
use bolide_distributed::Purpose;

use crate::context::Context;
use crate::draft::Draft;
use crate::row::{OptionEntry, OptionRow, Reach, Setting, Value, field, list, on, rows, set, supported, within};
use crate::topics::attendant::key_values;
use crate::topics::services::distributed::add_engine;
use crate::topics::services::metrics;
use crate::topics::services::metrics::MetricsDraft;
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// The number of locks for the application besides lock 0 (`uwsgi.lock(NUMBER)`, `uwsgi.unlock(NUMBER)`).
    /// uWSGI: A thread that takes a lock twice gets a RuntimeError instead of waiting forever.
    /// Example: locks = 2
    supported("locks", Setting::Number(field!(SharingDraft.locks)))
        .takes(within(0, 4096, "locks"), "0").reach(Reach::Application),
    /// Create a queue of this many items, which all processes share (`uwsgi.queue_push`, `uwsgi.queue_pull` and the related
    /// functions).
    /// uWSGI: `queue_pop` of an empty queue does not change the position of the next push.
    /// Example: queue = 100
    supported(
        "queue",
        set!(|draft, row, pair| {
            let slots = draft.bounded(row, pair)?;
            draft.of::<QueueDraft>().slots = Some((slots.unsigned_abs(), pair.location.clone()));
        }),
    )
    .takes(within(0, 1_000_000_000, "items"), "0")
    .reach(Reach::Master),
    /// The size of an item of the queue in bytes, including 16 for its length and its time.
    /// uWSGI: The size of all items does not have to be a multiple of a memory page.
    /// Example: queue = 100
    ///          queue-blocksize = 65536
    supported("queue-blocksize", Setting::Positive(field!(QueueDraft.block_bytes)))
        .takes(within(17, 1 << 30, "bytes"), "8192").reach(Reach::Master),
    /// Keep the items of the queue in this file, so that they remain when the server exits. It is in uWSGI's format, so either
    /// server continues with the items of the other.
    /// uWSGI: A file whose first bytes are not those of a queue is renamed to NAME.broken, and the queue begins empty.
    /// Example: queue = 100
    ///          queue-store = /srv/shop/queue
    supported("queue-store", Setting::Located(field!(QueueDraft.store))).takes(Value::Path, "").reach(Reach::Master),
    /// The time between two writes of `queue-store` to the disk. Without it the kernel chooses the time, and only a crash of the
    /// machine loses items.
    /// Example: queue = 100
    ///          queue-store = /var/lib/shop/queue
    ///          queue-store-sync = 5
    supported("queue-store-sync", Setting::Positive(field!(QueueDraft.store_sync_s)))
        .takes(within(0, 86_400, "seconds"), "0").reach(Reach::Master),
    /// Create an area of memory that all processes share (`uwsgi.sharedarea_read`, `uwsgi.sharedarea_memoryview` and the related
    /// functions). The value is a number of pages of 4096 bytes, or `size=BYTES`, which is rounded up to whole pages. With
    /// `file=FILE,size=BYTES,offset=BYTES`, or `fd=NUMBER` for a descriptor that the server has inherited, the bytes are those of
    /// a file. Areas have numbers from 0.
    /// uWSGI: A number that does not fit into the area is an error for `sharedarea_inc64` and `sharedarea_dec64` too. The file
    /// must be a regular file, not a device.
    /// Example: sharedarea = size=65536
    list("sharedarea", Setting::By(add_area)).reach(Reach::Master),
    /// Create an area of this many bytes. Its number follows those of `sharedarea`.
    /// uWSGI: `uwsgi.sharedarea_object` returns a memoryview instead of a bytearray, and the memory is shared, while each process
    /// of uWSGI has a copy.
    /// Example: py-sharedarea = 1000
    list("py-sharedarea", Setting::By(add_python_area)).reach(Reach::Master),
    /// Give the processes of the instance inboxes for messages, so that `bolide.publish` sends to all processes that listen to
    /// a channel with `bolide.subscribe`. Each process that may listen costs two file descriptors in every process. With
    /// `engine=` and the address of a Redis or Valkey server, messages also reach the instances of other machines that use the
    /// server. The address has the form of `lock-engine`, without `hold-seconds`.
    /// Example: publish = engine=redis://127.0.0.1:6379/0
    supported("publish", Setting::By(set_publish))
        .takes(Value::SwitchOr("`engine=` and an address such as `redis://…`, `rediss://…` or `redis+unix:///PATH`"), "off")
        .reach(Reach::Application),
    /// The size of each inbox of `publish` in bytes, including the kernel's overhead for each message. Messages that do not fit
    /// are dropped, and the subscriptions that miss them are told their number. net.core.wmem_max limits the size.
    /// Example: publish = true
    ///          publish-inbox-size = 1048576
    supported(
        "publish-inbox-size",
        set!(|draft, row, pair| {
            let bytes = draft.bounded_usize(row, pair)?;
            draft.of::<InboxesDraft>().bytes = Some((bytes, pair.location.clone()));
        }),
    )
    .takes(within(131_072, 1_073_741_824, "bytes"), "212992")
    .reach(Reach::Application),
    /// Give names to the numbers of the server and of the application, for `uwsgi.metric_get` and for `metrics` in the
    /// statistics. The master collects them each second. The options of metrics turn it on, too.
    /// Example: enable-metrics = true
    on("enable-metrics", set!(|draft, _, pair| draft.of::<MetricsDraft>().is_on |= draft.switch(pair))).reach(Reach::Master),
    /// Add a metric, which the application changes (`uwsgi.metric_inc`). The value is a name, or `name=NAME` with `type=counter`,
    /// `gauge`, `absolute` or `alias` (and `alias=METRIC`), `initial_value=`, `oid=` and `reset_after_push=1`. With `collector=`
    /// the master sets the metric every `freq=` seconds. The collector `file` reads a word of a file (`arg1=FILE`, `arg1n=` the
    /// number of the word, from 0). `sum`, `avg`, `accumulator`, `adder` and `multiplier` (`arg1n=` the number) compute a value
    /// from `children=METRIC;METRIC`.
    /// uWSGI: The collectors `ptr` and `func`, which call C functions, are errors. A second metric of the same name is an error
    /// too.
    /// Example: metric = name=orders,type=counter
    list("metric", Setting::By(metrics::add_metric)).reach(Reach::Master),
    /// Act when a metric reaches a value: `key=METRIC,value=NUMBER`, with `reset=NUMBER` (the metric is set to it), and
    /// `alarm=NAME`, `msg=TEXT` and `rate=SECONDS` (the time between two alarms). The log reports it, at most once a minute.
    /// Example: metric-threshold = key=worker.1.requests,value=1000000
    list("metric-threshold", Setting::By(metrics::add_threshold)).reach(Reach::Master),
    /// Write the value of each metric to a file of its name in this directory, when it has changed.
    /// uWSGI: A file contains the number and a line end, without zeros up to the size of a page.
    /// Example: metrics-dir = /srv/shop/metrics
    supported(
        "metrics-dir",
        set!(|draft, _, pair| {
            draft.of::<MetricsDraft>().directory = Some(values::text(pair)?);
            draft.of::<MetricsDraft>().is_on = true;
        }),
    )
    .takes(Value::Path, "")
    .reach(Reach::Master),
    /// Let counters, and the metrics that the application changes, begin with the values in the directory of `metrics-dir`.
    /// uWSGI: Collected gauges, such as memory sizes, do not begin with them.
    /// Example: metrics-dir-restore = true
    on("metrics-dir-restore", set!(|draft, _, pair| draft.of::<MetricsDraft>().restores = metrics::switch_on(draft, pair)))
        .reach(Reach::Master),
    /// Do not create metrics for threads.
    /// Example: metrics-no-cores = true
    on("metrics-no-cores", set!(|draft, _, pair| draft.of::<MetricsDraft>().omits_cores = metrics::switch_on(draft, pair)))
        .reach(Reach::Master),
];

/// The unit of areas whose size is a number of pages.
const PAGE_BYTES: u64 = 4096;
/// The most bytes of an area, and of a queue.
const MAX_BYTES: u64 = 1 << 40;
/// The most areas.
const MAX_AREAS: usize = 64;

const AREA_FORM: &str = "write a number of pages, `size=BYTES`, or `file=FILE,size=BYTES,offset=BYTES`";

impl QueueDraft {
    /// The queue, if there is one.
    pub fn complete(self, context: &mut Context) -> Option<Queue> {
        let Some((slots, location)) = self.slots.filter(|(slots, _)| *slots > 0) else {
            if let Some((_, location)) = self.store {
                let message = "`queue-store` has no effect without `queue`";
                context.diagnostics.push(Diagnostic::warning(Some(&location), message).advise("write `queue = NUMBER` too"));
            }
            return None;
        };
        let block_bytes = self.block_bytes.unwrap_or(Queue::BLOCK_BYTES);
        if slots.checked_mul(block_bytes).is_none_or(|bytes| bytes > MAX_BYTES) {
            let message = format!("a queue of {slots} blocks of {block_bytes} bytes is too large");
            context.diagnostics.push(Diagnostic::error(Some(&location), message).advise("all blocks together may have 1 TiB"));
            return None;
        }
        let sync_s = self.store_sync_s.unwrap_or(0);
        let store = self.store.map(|(path, _)| QueueStore { path: context.absolute(path), sync_s });
        Some(Queue { slots, block_bytes, store, origin: location.to_string() })
    }
}

/// `publish`: a switch, or an engine, which turns it on too.
fn set_publish(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let value = pair.value.as_deref().unwrap_or_default().trim();
    let engine = match value.strip_prefix("engine=") {
        Some(address) => Some(add_engine(draft, pair, address, Purpose::Messages)?.0),
        // The message does not repeat the value, which may have a password.
        None if value.contains(['=', ':']) => {
            let message = "`publish` is neither a switch nor an engine";
            let form = "write `publish = true`, or `publish = engine=redis://HOST:6379/0` for several machines";
            return Err(Diagnostic::error(Some(&pair.location), message).advise(form));
        }
        None => None,
    };
    draft.of::<InboxesDraft>().is_on = engine.is_some() || draft.switch(pair);
    draft.of::<Distributed>().publish_engine = engine;
    Ok(())
}

impl InboxesDraft {
    /// The inboxes for these numbers of workers and helpers, if there are any.
    pub fn complete(self, workers: u32, helpers: u32, context: &mut Context) -> Option<Inboxes> {
        if self.is_on {
            let count = Inboxes::count_for(workers, helpers);
            return Some(Inboxes { count, bytes: self.bytes.map(|(bytes, _)| bytes) });
        }
        if let Some((_, location)) = self.bytes {
            let message = "`publish-inbox-size` has no effect without `publish`";
            context.diagnostics.push(Diagnostic::warning(Some(&location), message).advise("write `publish = true` too"));
        }
        None
    }
}

/// `sharedarea`: a number of pages, or keys and values.
pub fn add_area(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (mut pages, mut size, mut offset, mut source) = (None, None, 0, AreaSource::Memory);
    if text.contains('=') {
        for (key, value) in key_values(pair, &text)? {
            match key.as_str() {
                "pages" => pages = Some(number(pair, &value)?.saturating_mul(PAGE_BYTES)),
                "size" => size = Some(number(pair, &value)?),
                "offset" => offset = number(pair, &value)?,
                "file" => source = AreaSource::File { path: value.into(), offset: 0 },
                "fd" => {
                    let number = value.parse().map_err(|_| wrong(pair, &format!("has the descriptor `{value}`"), AREA_FORM))?;
                    source = AreaSource::Descriptor { number, offset: 0 };
                }
                "ptr" => return Err(wrong(pair, "has `ptr`, which is an address in uWSGI itself", AREA_FORM)),
                _ => return Err(wrong(pair, &format!("has an unknown `{key}`"), AREA_FORM)),
            }
        }
    } else {
        pages = Some(number(pair, &text)?.saturating_mul(PAGE_BYTES));
    }
    let bytes = match &mut source {
        // As in uWSGI, memory has whole pages.
        AreaSource::Memory => pages.or(size.map(|bytes| bytes.next_multiple_of(PAGE_BYTES))),
        AreaSource::File { offset: place, .. } | AreaSource::Descriptor { offset: place, .. } => {
            *place = offset;
            size.or(pages)
        }
    };
    let bytes = bytes.ok_or_else(|| wrong(pair, "has no size", AREA_FORM))?;
    push(draft, pair, Area { bytes, source, origin: pair.location.to_string() })
}

/// `py-sharedarea`: a number of bytes.
pub fn add_python_area(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = number(pair, &values::text(pair)?)?;
    let area = Area { bytes, source: AreaSource::Memory, origin: pair.location.to_string() };
    check(pair, &area)?;
    draft.of::<SharingDraft>().python_areas.push(area);
    Ok(())
}

fn push(draft: &mut Draft, pair: &Pair, area: Area) -> Result<(), Diagnostic> {
    check(pair, &area)?;
    draft.of::<SharingDraft>().areas.push(area);
    if draft.of::<SharingDraft>().areas.len() > MAX_AREAS {
        return Err(wrong(pair, &format!("is one of more than {MAX_AREAS}"), "join areas to a larger one"));
    }
    Ok(())
}

fn check(pair: &Pair, area: &Area) -> Result<(), Diagnostic> {
    match area.bytes {
        1..=MAX_BYTES => Ok(()),
        bytes => Err(wrong(pair, &format!("has {bytes} bytes"), "an area has at least one byte, and at most 1 TiB")),
    }
}

/// A whole number, decimal or with `0x`.
fn number(pair: &Pair, text: &str) -> Result<u64, Diagnostic> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.trim().parse(),
    };
    parsed.map_err(|_| wrong(pair, &format!("has `{text}` instead of a number"), AREA_FORM))
}

fn wrong(pair: &Pair, what: &str, advice: &str) -> Diagnostic {
    Diagnostic::error(Some(&pair.location), format!("`{}` {what}", pair.key)).advise(advice)
}

/// The options of the queue so far.
#[derive(Default)]
pub struct QueueDraft {
    pub slots: Option<(u64, Location)>,
    pub block_bytes: Option<u64>,
    pub store: Option<(String, Location)>,
    pub store_sync_s: Option<u64>,
}

/// The options of inboxes so far.
#[derive(Default)]
pub struct InboxesDraft {
    pub is_on: bool,
    pub bytes: Option<(usize, Location)>,
}

/// Locks and memory areas so far. Paths are as written.
#[derive(Default)]
pub struct SharingDraft {
    pub locks: u32,
    pub areas: Vec<Area>,
    /// `py-sharedarea`: numbered after the other areas.
    pub python_areas: Vec<Area>,
}
