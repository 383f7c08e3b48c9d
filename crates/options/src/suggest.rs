//! "Did you mean …?": the known names nearest to one that nobody knows.

use crate::catalogue::catalogue;

/// A name this far away is another word, not a typing error.
const MOST_CHANGES: usize = 2;
/// Shorter names are near to too many others.
const LEAST_LENGTH: usize = 4;
/// A known name that begins with the unknown one is likely if the unknown one is at least this long.
const LEAST_BEGINNING: usize = 5;

/// Slips that are too far from what was meant, or nearer to another name.
const KNOWN_SLIPS: &[(&str, &str)] = &[("guid", "gid"), ("pythonhome", "home"), ("master-log", "log-master")];

/// The likeliest known name, if any is likely.
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let wanted = unknown.to_ascii_lowercase().replace('_', "-");
    // Among equals, the one that more projects use.
    let mut best: Option<(usize, std::cmp::Reverse<u32>, &'static str)> = None;
    if let Some(&(_, meant)) = KNOWN_SLIPS.iter().find(|(typo, _)| *typo == wanted) {
        return Some(meant);
    }
    for row in catalogue().rows() {
        for &name in &row.names {
            let Some(distance) = distance(&wanted, name) else { continue };
            let candidate = (distance, std::cmp::Reverse(row.projects), name);
            if best.is_none_or(|best| candidate < best) {
                best = Some(candidate);
            }
        }
    }
    best.map(|(_, _, name)| name)
}

/// The word of a list that was probably meant.
pub fn nearest_of(unknown: &str, words: &[&'static str]) -> Option<&'static str> {
    let wanted = unknown.to_ascii_lowercase();
    words.iter().filter_map(|&word| Some((distance(&wanted, word)?, word))).min().map(|(_, word)| word)
}

fn distance(wanted: &str, name: &str) -> Option<usize> {
    let bound = match wanted.chars().count() {
        0..LEAST_LENGTH => 0,
        length => MOST_CHANGES.min(length / 3),
    };
    if wanted.chars().count().abs_diff(name.chars().count()) <= MOST_CHANGES {
        let changes = strsim::damerau_levenshtein(wanted, name);
        if changes <= bound {
            return Some(changes);
        }
    }
    let longer =
        wanted.len() >= LEAST_BEGINNING && name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('-') || rest.len() <= 2);
    longer.then_some(MOST_CHANGES + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_typing_errors_of_public_projects_are_recognised() {
        let cases = [
            ("vaccum", Some("vacuum")),
            ("py-callos-afterfork", Some("py-call-osafterfork")),
            ("process", Some("processes")),
            ("exec-pre", Some("exec-pre-app")),
            ("enable_threads", Some("enable-threads")),
            ("chmod-sock", Some("chmod-socket")),
            ("harakir", Some("harakiri")),
            ("project", None),
            ("base", None),
            ("app", None),
            ("guid", Some("gid")),
            ("pythonhome", Some("home")),
            ("master-log", Some("log-master")),
            ("my-own-thing", None),
        ];
        for (unknown, wanted) in cases {
            assert_eq!(nearest(unknown), wanted, "{unknown}");
        }
    }
}
