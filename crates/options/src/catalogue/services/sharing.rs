//! Rows of locks, the queue and memory areas, which processes share. Pure data.

use crate::catalogue::row::{OptionEntry, Setting, Value, set};
use crate::resolve::services::sharing;

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "locks",
        Setting::Number(|draft| &mut draft.services.locks),
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
            draft.services.queue.slots = Some((slots.unsigned_abs(), pair.location.clone()));
        }),
        Value::Number { least: 0, most: 1_000_000_000, unit: "items" },
        "0",
        "Creates a queue of this many items, which all processes share (`uwsgi.queue_push`, `uwsgi.queue_pull` and the related functions).",
    )
    .uwsgi("`queue_pop` of an empty queue leaves the position of the next push where it is")
    .example("queue = 100"),
    OptionEntry::supported(
        "queue-blocksize",
        Setting::Positive(|draft| &mut draft.services.queue.block_bytes),
        Value::Number { least: 17, most: 1 << 30, unit: "bytes" },
        "8192",
        "The bytes of an item of the queue, including 16 for its length and its time.",
    )
    .uwsgi("all items together need not be a multiple of a memory page")
    .example("queue-blocksize = 65536"),
    OptionEntry::supported(
        "sharedarea",
        Setting::By(sharing::add_area),
        Value::List,
        "",
        "Creates an area of memory, which all processes share (`uwsgi.sharedarea_read`, `uwsgi.sharedarea_memoryview` and the related functions): a number of pages of 4096 bytes, or `size=BYTES`, which is rounded up to whole pages. Areas have numbers from 0.",
    )
    .uwsgi("a number that does not fit into the area is an error also for `sharedarea_inc64` and `sharedarea_dec64`")
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
];
