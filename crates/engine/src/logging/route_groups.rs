//! The group of routes that a request belongs to (`route-group`), by its path.
//!
//! It does not know about connections. Worker threads run it for each request, where groups are configured.

use bolide_contract::statistics::RouteGroup;
use bolide_scoreboard::coarse_histogram::GroupDurations;
use bolide_scoreboard::meters::OTHER_GROUP;
use memchr::memmem;

/// Bytes of a path that are compared; a pattern has fewer.
const PATH_BYTES: usize = 1024;

/// The patterns, in the order of the configuration.
pub struct RouteGroups {
    patterns: Vec<(u32, PathPattern)>,
    /// The durations of each thread; empty if the scoreboard has no room for them.
    pub durations: &'static [GroupDurations],
}

/// A beginning, or a text with `*`, each of which stands for any text.
enum PathPattern {
    Prefix(Vec<u8>),
    Pieces { first: Vec<u8>, middle: Vec<Vec<u8>>, last: Vec<u8> },
}

impl RouteGroups {
    /// `None` if there are none.
    pub fn of(groups: &[RouteGroup], durations: &'static [GroupDurations]) -> Option<RouteGroups> {
        let mut patterns = Vec::with_capacity(groups.len());
        for (number, group) in (0u32..).zip(groups) {
            patterns.extend(group.patterns.iter().map(|(place, pattern)| (*place, number, PathPattern::of(pattern))));
        }
        patterns.sort_by_key(|(place, ..)| *place);
        let patterns: Vec<(u32, PathPattern)> = patterns.into_iter().map(|(_, number, pattern)| (number, pattern)).collect();
        (!patterns.is_empty()).then_some(RouteGroups { patterns, durations })
    }

    /// Returns the group of a request's target: the first one with a pattern that matches its path.
    pub fn group_of(&self, target: &[u8]) -> u32 {
        let path = &target[..memchr::memchr(b'?', target).unwrap_or(target.len()).min(PATH_BYTES)];
        self.patterns.iter().find(|(_, pattern)| pattern.matches(path)).map_or(OTHER_GROUP, |(number, _)| *number)
    }
}

impl PathPattern {
    fn of(text: &str) -> PathPattern {
        let mut pieces: Vec<Vec<u8>> = text.split('*').map(|piece| piece.as_bytes().to_vec()).collect();
        let last = pieces.pop().unwrap_or_default();
        if pieces.is_empty() {
            return PathPattern::Prefix(last);
        }
        let first = pieces.remove(0);
        pieces.retain(|piece| !piece.is_empty());
        PathPattern::Pieces { first, middle: pieces, last }
    }

    fn matches(&self, path: &[u8]) -> bool {
        let (first, middle, last) = match self {
            PathPattern::Prefix(prefix) => return path.starts_with(prefix),
            PathPattern::Pieces { first, middle, last } => (first, middle, last),
        };
        let Some(mut rest) = path.strip_prefix(first.as_slice()).and_then(|rest| rest.strip_suffix(last.as_slice())) else {
            return false;
        };
        middle.iter().all(|piece| {
            let Some(place) = memmem::find(rest, piece) else { return false };
            rest = &rest[place + piece.len()..];
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_the_path_decides() {
        let group = |name: &str, patterns: &[(u32, &str)]| RouteGroup {
            name: name.to_owned(),
            patterns: patterns.iter().map(|(place, pattern)| (*place, (*pattern).to_owned())).collect(),
        };
        let groups =
            [group("orders", &[(0, "/api/*/orders"), (2, "/orders/")]), group("api", &[(1, "/api/")]), group("z", &[(3, "*.z")])];
        let groups = RouteGroups::of(&groups, &[]).expect("groups");
        for (target, number) in [
            ("/api/7/orders?x=1", 0),
            ("/api/7/orders/8", 1),
            ("/api/", 1),
            ("/api", OTHER_GROUP),
            ("/orders/1", 0),
            ("/?/api/", OTHER_GROUP),
            ("/a/b.z?c", 2),
            ("*", OTHER_GROUP),
            ("", OTHER_GROUP),
        ] {
            assert_eq!(groups.group_of(target.as_bytes()), number, "{target}");
        }
        assert!(RouteGroups::of(&[], &[]).is_none());
        let long = [b"/api/".as_slice(), &[b'x'; 100_000], b".z"].concat();
        assert_eq!(groups.group_of(&long), 1);
        assert!(PathPattern::of("/a*b*b").matches(b"/abb") && !PathPattern::of("/a*b*b").matches(b"/ab"));
    }
}
