//! The items that the configuration puts into caches: `add-cache-item` and `load-file-in-cache`. It does not know about requests.
//! The prototype runs it once, before the application is loaded, with the rights of the application.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bolide_contract::services::{PreloadedContent, PreloadedItem};
use bolide_memory::cache::{Cache, Change, Content, Waiting, Written};

use crate::response::storing::gzipped;
use crate::services::largest_value;

/// Puts the items into their caches, and returns a line for each one that is missing there. A text does not replace an item that
/// the cache still has, and a file does: its content may have changed since the last start of the application.
pub fn preload(caches: &[Cache], items: &[PreloadedItem]) -> Vec<String> {
    let mut problems = Vec::new();
    for item in items {
        for cache in caches.iter().filter(|cache| item.cache.is_empty() || cache.name() == item.cache) {
            if let Err(problem) = put(cache, item) {
                let PreloadedItem { key, origin, .. } = item;
                problems.push(format!("bolide: {origin}: can't load `{key}` into the cache `{}`: {problem}", cache.name()));
            }
        }
    }
    problems
}

fn put(cache: &Cache, item: &PreloadedItem) -> Result<(), String> {
    let content;
    let change = match &item.content {
        PreloadedContent::Text(text) => Change::Add(text.as_bytes()),
        PreloadedContent::File { path, is_compressed } => {
            let read = read(path, largest_value(cache)).map_err(|error| format!("{} can't be read: {error}", path.display()))?;
            content = if *is_compressed { gzipped(&read).ok_or("there is not enough memory to compress it")? } else { read };
            Change::Update(&content)
        }
    };
    match cache.put_as(Content::Response, item.key.as_bytes(), change, 0, Waiting::Bounded) {
        Written::Done | Written::Unchanged => Ok(()),
        Written::Unfit => Err("it is empty, or larger than `blocksize` or `keysize` of the cache".to_owned()),
        Written::Full { .. } => Err("the cache is full".to_owned()),
        Written::Busy => Err("another process kept the cache locked".to_owned()),
        Written::DiskFull { .. } => Err("the disk with the cache's file is full".to_owned()),
    }
}

/// Reads a whole file, up to this size.
fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > most_bytes {
        let message = format!("it is larger than the {most_bytes} bytes of the cache's `blocksize`");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}
