//! Text of log lines: durations, counts, and text of a peer made printable. Pure functions.

/// `1 worker`, `4 workers`.
pub fn workers_in_words(count: u32) -> String {
    counted(u64::from(count), "worker")
}

/// `1 request`, `0 requests`: for nouns with a plural in `s`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Text of a peer, such as a request line, with control characters escaped, so that it can't forge log lines.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(
            |character| if character.is_control() { character.escape_default().collect::<Vec<_>>() } else { vec![character] },
        )
        .collect()
}

/// `120 ms`, `2.5 s`, `3 min 20 s`.
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let two = |large: u64, unit: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {smaller}"),
    };
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 if milliseconds.is_multiple_of(1000) => format!("{seconds} s"),
        1..60 => format!("{seconds}.{} s", milliseconds % 1000 / 100),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..172_800 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_can_not_write_lines_of_ours() {
        assert_eq!(printable("GET /\nbolide: all is well\x1b[0m"), "GET /\\nbolide: all is well\\u{1b}[0m");
    }

    #[test]
    fn durations_are_for_people() {
        let shown: Vec<String> = [0, 999, 1000, 2550, 60_000, 200_000].into_iter().map(duration).collect();
        assert_eq!(shown, ["0 ms", "999 ms", "1 s", "2.5 s", "1 min", "3 min 20 s"]);
        let long: Vec<String> = [3_600, 5_430, 172_799, 172_800, 800_000].into_iter().map(|s| duration(s * 1000)).collect();
        assert_eq!(long, ["1 h", "1 h 30 min", "47 h 59 min", "2 d", "9 d 6 h"]);
    }
}
