//! Resolves the options of locks, the queue and memory areas. It creates no memory. Runs in the process that reads the
//! configuration.

use bolide_contract::sharing::{Area, AreaSource, Queue};

use crate::catalogue::row::OptionRow;
use crate::diagnostic::Diagnostic;
use crate::pair::Pair;
use crate::resolve::attendant::key_values;
use crate::resolve::draft::{Draft, QueueDraft};
use crate::resolve::values;

/// The unit of areas whose size is a number of pages.
const PAGE_BYTES: u64 = 4096;
/// The most bytes of an area, and of a queue.
const BYTES_MOST: u64 = 1 << 40;
/// The most areas.
const AREAS_MOST: usize = 64;

const AREA_FORM: &str = "write a number of pages, or `size=BYTES`";

impl QueueDraft {
    /// The queue, if there is one.
    pub fn complete(self, diagnostics: &mut Vec<Diagnostic>) -> Option<Queue> {
        let (slots, location) = self.slots.filter(|(slots, _)| *slots > 0)?;
        let block_bytes = self.block_bytes.unwrap_or(Queue::BLOCK_BYTES);
        if slots.checked_mul(block_bytes).is_none_or(|bytes| bytes > BYTES_MOST) {
            let message = format!("a queue of {slots} blocks of {block_bytes} bytes is too large");
            diagnostics.push(Diagnostic::error(Some(&location), message).advise("all blocks together may have 1 TiB"));
            return None;
        }
        Some(Queue { slots, block_bytes, store: None, origin: location.to_string() })
    }
}

/// `sharedarea`: a number of pages, or keys and values.
pub fn add_area(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let text = values::text(pair)?;
    let (mut bytes, mut is_memory) = (None, true);
    if text.contains('=') {
        for (key, value) in key_values(pair, &text)? {
            match key.as_str() {
                "pages" => bytes = Some(number(pair, &value)?.saturating_mul(PAGE_BYTES)),
                // As in uWSGI, memory has whole pages.
                "size" => bytes = bytes.or(Some(number(pair, &value)?.next_multiple_of(PAGE_BYTES))),
                "ptr" => return Err(wrong(pair, "has `ptr`, which names an address in uWSGI itself", AREA_FORM)),
                "file" | "fd" | "offset" => is_memory = false,
                _ => return Err(wrong(pair, &format!("has an unknown `{key}`"), AREA_FORM)),
            }
        }
    } else {
        bytes = Some(number(pair, &text)?.saturating_mul(PAGE_BYTES));
    }
    if !is_memory {
        return Err(wrong(pair, "has a file", AREA_FORM));
    }
    let bytes = bytes.ok_or_else(|| wrong(pair, "has no size", AREA_FORM))?;
    push(draft, pair, Area { bytes, source: AreaSource::Memory, origin: pair.location.to_string() })
}

/// `py-sharedarea`: a number of bytes.
pub fn add_python_area(draft: &mut Draft, _: &OptionRow, pair: &Pair) -> Result<(), Diagnostic> {
    let bytes = number(pair, &values::text(pair)?)?;
    let area = Area { bytes, source: AreaSource::Memory, origin: pair.location.to_string() };
    check(pair, &area)?;
    draft.services.python_areas.push(area);
    Ok(())
}

fn push(draft: &mut Draft, pair: &Pair, area: Area) -> Result<(), Diagnostic> {
    check(pair, &area)?;
    draft.services.areas.push(area);
    if draft.services.areas.len() > AREAS_MOST {
        return Err(wrong(pair, &format!("is one of more than {AREAS_MOST}"), "join areas to a larger one"));
    }
    Ok(())
}

fn check(pair: &Pair, area: &Area) -> Result<(), Diagnostic> {
    match area.bytes {
        1..=BYTES_MOST => Ok(()),
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
