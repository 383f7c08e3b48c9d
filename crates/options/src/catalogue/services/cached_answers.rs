//! Rows of the items that the configuration puts into caches, and of answers from a cache. Pure data.

use crate::resolve::services::cached_answers;
use crate::resolve::services::cached_answers::CachedAnswersDraft;
use crate::row::{OptionEntry, Value, set};

pub const ENTRIES: &[OptionEntry] = &[
    OptionEntry::supported(
        "add-cache-item",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(cached_answers::text_item(pair)?)),
        Value::Special,
        "",
        "An item that caches have before the application is loaded, as `KEY=VALUE` for all caches, or `CACHE KEY=VALUE`. An item that a cache still has from before a reload stays.",
    ).several()
    .example("cache2 = name=pages,items=1000\nadd-cache-item = pages /robots.txt=User-agent: *"),
    OptionEntry::supported(
        "load-file-in-cache",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(cached_answers::file_item(pair, false)?)),
        Value::Special,
        "",
        "A file whose content is an item before the application is loaded, as `FILE` for all caches, or `CACHE FILE`. The key is the name of the file as written. A file that can't be read is a line in the log.",
    ).several()
    .uwsgi("a reload loads the files again (uWSGI begins with an empty cache after a reload)")
    .example("cache2 = name=pages,items=1000\nload-file-in-cache = pages /srv/shop/media/logo.svg"),
    OptionEntry::supported(
        "load-file-in-cache-gzip",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(cached_answers::file_item(pair, true)?)),
        Value::Special,
        "",
        "As `load-file-in-cache`, compressed with gzip.",
    ).several()
    .uwsgi("uWSGI stores bytes of its memory behind the compressed content")
    .example("cache2 = name=pages,items=1000\nload-file-in-cache-gzip = pages /srv/shop/media/logo.svg"),
    OptionEntry::supported(
        "check-cache",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().checked = Some((pair.value.clone().unwrap_or_default(), pair.location.clone()))),
        Value::Special,
        "",
        "The cache whose items answer GET requests before all rules, by REQUEST_URI; without a value the first cache. An item is a whole response, from `HTTP/1.1 200 OK` to its body; any other text is the body of a page.",
    )
    .uwsgi("uWSGI looks into the first cache, whatever the name, and sends the bytes as they are, so a text without a head is no HTTP; here the server sets the length, the date and what belongs to the connection")
    .example("cache2 = name=pages,items=1000\ncheck-cache = pages"),
];
