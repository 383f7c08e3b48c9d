//! "Did you mean …?": the distance between two words. It must not know options; `catalog` searches their names.

/// A more distant name is another word, not a typing error.
const MAX_CHANGES: usize = 2;
/// Shorter names are close to too many others. One of this length is near only to those of the same length.
const MIN_LENGTH: usize = 3;
/// A known name with the unknown one as its prefix is likely if the unknown one has at least this length.
const MIN_BEGINNING: usize = 5;

/// Returns the word of a list that was probably meant.
pub fn nearest_of(unknown: &str, words: &[&'static str]) -> Option<&'static str> {
    let wanted = unknown.to_ascii_lowercase();
    words.iter().filter_map(|&word| Some((distance(&wanted, word)?, word))).min().map(|(_, word)| word)
}

/// The number of changed letters between two words; `None` above the limit for a typing error.
pub fn distance(wanted: &str, name: &str) -> Option<usize> {
    let bound = match wanted.chars().count() {
        0..MIN_LENGTH => 0,
        // A number is not a typing error.
        MIN_LENGTH if !wanted.bytes().all(|byte| byte.is_ascii_alphabetic()) => 0,
        length => MAX_CHANGES.min(length / 3),
    };
    let most_difference = if wanted.chars().count() == MIN_LENGTH { 0 } else { MAX_CHANGES };
    if wanted.chars().count().abs_diff(name.chars().count()) <= most_difference {
        let changes = strsim::damerau_levenshtein(wanted, name);
        if changes <= bound {
            return Some(changes);
        }
    }
    let longer =
        wanted.len() >= MIN_BEGINNING && name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('-') || rest.len() <= 2);
    longer.then_some(MAX_CHANGES + 1)
}
