//! Why a function of an adapter has failed, as the adapter has said it just before. It does not know functions. Each thread has a
//! reason of its own.

use std::cell::RefCell;

/// The longest reason in bytes; the rest is cut off.
const MAX_REASON_BYTES: usize = 4096;

thread_local! {
    static REASON: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a reason, as one line.
pub fn keep(reason: &[u8]) {
    let reason = String::from_utf8_lossy(&reason[..reason.len().min(MAX_REASON_BYTES)]);
    let lines: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    REASON.with_borrow_mut(|kept| *kept = lines.join(" | "));
}

/// Takes the reason of the failure that has just happened.
pub fn take() -> String {
    let reason = REASON.take();
    if reason.is_empty() { "the adapter does not say why".to_owned() } else { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_and_is_told_once() {
        keep(b"no file\n\tstack traceback:\n");
        assert_eq!(take(), "no file | stack traceback:");
        assert_eq!(take(), "the adapter does not say why");
        keep(&[b'x'; 2 * MAX_REASON_BYTES]);
        assert_eq!(take().len(), MAX_REASON_BYTES);
    }
}
