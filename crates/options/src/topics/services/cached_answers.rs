//! Resolves the options of items that the configuration puts into caches, and of answers from a cache. It does not read files.
//! Runs in the process that reads the configuration.

use bolide_configuration::diagnostic::{Diagnostic, Location};
use bolide_configuration::pair::Pair;
use bolide_contract::services::{PreloadedContent, PreloadedItem, SharedCache};

use crate::context::{Context, normalized};
use crate::row::{OptionEntry, Reach, Value, rows, set, supported};
use crate::values;

pub const ENTRIES: &[OptionEntry] = rows![
    /// Add an item to caches before the application is loaded, as `KEY=VALUE` for all caches, or `CACHE KEY=VALUE`. A reload does
    /// not replace an item that the cache still contains.
    /// Example: cache2 = name=pages,items=1000
    ///          add-cache-item = pages /robots.txt=User-agent: *
    supported("add-cache-item", set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(text_item(pair)?)))
        .takes(Value::Form("`[CACHE ]KEY=VALUE`"), "").several().reach(Reach::Master),
    /// Add the content of a file to caches before the application is loaded, as `FILE` for all caches, or `CACHE FILE`. The key
    /// is the path of the file as written. If the file can't be read, this is logged.
    /// uWSGI: A reload loads the files again, while uWSGI begins with an empty cache after a reload.
    /// Example: cache2 = name=pages,items=1000
    ///          load-file-in-cache = pages /srv/shop/media/logo.svg
    supported(
        "load-file-in-cache",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(file_item(pair, false)?)),
    )
    .takes(Value::Form("`[CACHE ]FILE`"), "")
    .several()
    .reach(Reach::Master),
    /// Like `load-file-in-cache`, compressed with gzip.
    /// uWSGI: uWSGI stores bytes of its memory after the compressed content.
    /// Example: cache2 = name=pages,items=1000
    ///          load-file-in-cache-gzip = pages /srv/shop/media/logo.svg
    supported(
        "load-file-in-cache-gzip",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().preloaded.push(file_item(pair, true)?)),
    )
    .takes(Value::Form("`[CACHE ]FILE`"), "")
    .several()
    .reach(Reach::Master),
    /// The cache whose items answer GET requests before all rules, by REQUEST_URI. Without a value it is the first cache. An item
    /// is a whole response, from `HTTP/1.1 200 OK` to its body. Any other text is the body of a page.
    /// uWSGI: uWSGI looks into the first cache, whatever the name, and sends the bytes unchanged, so a text without a head is not
    /// valid HTTP. Here the server sets the length, the date and the fields of the connection.
    /// Example: cache2 = name=pages,items=1000
    ///          check-cache = pages
    supported(
        "check-cache",
        set!(|draft, _, pair| draft.of::<CachedAnswersDraft>().checked =
            Some((pair.value.clone().unwrap_or_default(), pair.location.clone()))),
    )
    .takes(Value::Form("the name of a cache"), "")
    .reach(Reach::Application),
];

const NO_CACHE: &str = "write `cache2 = name=NAME,items=1000`";

/// `[CACHE ]KEY=VALUE`
pub fn text_item(pair: &Pair) -> Result<(PreloadedItem, Location), Diagnostic> {
    let text = values::text(pair)?;
    let (cache, rest) = text.split_once(' ').filter(|(cache, _)| !cache.contains('=')).unwrap_or(("", &text));
    let Some((key, value)) = rest.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty()) else {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` has no key with a value", pair.key))
            .advise("write KEY=VALUE, or CACHE KEY=VALUE"));
    };
    Ok((item(pair, cache, key, PreloadedContent::Text(value.to_owned())), pair.location.clone()))
}

/// `[CACHE ]FILE`: the name of the file as written is the key.
pub fn file_item(pair: &Pair, is_compressed: bool) -> Result<(PreloadedItem, Location), Diagnostic> {
    let text = values::text(pair)?;
    let (cache, file) = text.split_once(' ').unwrap_or(("", &text));
    if file.is_empty() {
        return Err(Diagnostic::error(Some(&pair.location), format!("`{} = {text}` does not contain a file", pair.key))
            .advise("write FILE, or CACHE FILE"));
    }
    Ok((item(pair, cache, file, PreloadedContent::File { path: file.into(), is_compressed }), pair.location.clone()))
}

fn item(pair: &Pair, cache: &str, key: &str, content: PreloadedContent) -> PreloadedItem {
    let origin = format!("{} ({})", pair.key, pair.location);
    PreloadedItem { cache: cache.to_owned(), key: key.to_owned(), content, origin }
}

impl CachedAnswersDraft {
    /// Completes the settings: the items, and the cache of `check-cache`.
    pub fn complete(self, caches: &[SharedCache], context: &mut Context) -> (Vec<PreloadedItem>, Option<String>) {
        let mut items = Vec::new();
        for (mut item, location) in self.preloaded {
            check(&item.cache, caches, &location, context);
            if let PreloadedContent::File { path, .. } = &mut item.content {
                *path = normalized(&context.directory.join(&*path));
            }
            items.push(item);
        }
        let checked = self.checked.map(|(name, location)| {
            check(&name, caches, &location, context);
            name
        });
        (items, checked)
    }
}

/// Checks that a cache exists. The empty name is the first one.
pub fn check(name: &str, caches: &[SharedCache], location: &Location, context: &mut Context) {
    let message = match name {
        _ if caches.iter().any(|cache| cache.name == name) => return,
        "" if !caches.is_empty() => return,
        "" => "this needs a cache: add `cache2`".to_owned(),
        _ => format!("there is no cache with the name `{name}`"),
    };
    let names: Vec<&str> = caches.iter().map(|cache| cache.name.as_str()).collect();
    let advice = if names.is_empty() { NO_CACHE.to_owned() } else { format!("the caches are {}", names.join(", ")) };
    context.diagnostics.push(Diagnostic::error(Some(location), message).advise(advice));
}

/// Items that the configuration puts into caches, and answers from a cache. Paths are as written.
#[derive(Default)]
pub struct CachedAnswersDraft {
    pub preloaded: Vec<(PreloadedItem, Location)>,
    /// `check-cache`
    pub checked: Option<(String, Location)>,
}
