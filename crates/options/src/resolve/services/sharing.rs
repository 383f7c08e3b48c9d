//! Resolves the options of locks, the queue and memory areas. It creates no memory. Runs in the process that reads the
//! configuration.

use bolide_configuration::diagnostic::Diagnostic;
use bolide_configuration::diagnostic::Location;
use bolide_configuration::pair::Pair;
use bolide_contract::sharing::{Area, AreaSource, Queue, QueueStore};

use crate::context::Context;
use crate::draft::Draft;
use crate::resolve::attendant::key_values;
use crate::row::OptionRow;
use crate::values;

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
                "ptr" => return Err(wrong(pair, "has `ptr`, which names an address in uWSGI itself", AREA_FORM)),
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

/// Locks and memory areas so far. Paths are as written.
#[derive(Default)]
pub struct SharingDraft {
    pub locks: u32,
    pub areas: Vec<Area>,
    /// `py-sharedarea`: numbered after the other areas.
    pub python_areas: Vec<Area>,
}
