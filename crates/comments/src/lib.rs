//! The texts of a table's rows, written as the comments above them. They are taken apart while the table is compiled: startup
//! pays nothing for them, and a malformed comment does not compile. It must not know any table.

/// The texts of the comments in `///` that it gets, as attributes. They are first what the row is about; after `uWSGI:` at the
/// beginning of a line, how uWSGI differs; after `Why:`, `Instead:` or `Meanwhile:`, a reason; and after `Example:`, lines of a
/// configuration, one below the other.
#[macro_export]
macro_rules! texts {
    ($(#[doc = $line:literal])*) => {{
        const WRITTEN: &str = concat!($($line, "\n"),*);
        const COMMENT: $crate::Comment<{ WRITTEN.len() }> = $crate::Comment::of(WRITTEN);
        (&COMMENT).texts()
    }};
}

/// The texts of a row. A text that is not written is empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Texts {
    /// The text without a label.
    pub help: &'static str,
    /// How uWSGI differs, and why.
    pub uwsgi: &'static str,
    /// Why something is as it is, or what to use instead.
    pub reason: &'static str,
    /// Lines of a configuration.
    pub example: &'static str,
}

/// The texts of a comment, in their order.
#[derive(Clone, Copy)]
enum Part {
    Help,
    Uwsgi,
    Reason,
    Example,
}

/// How the first line of a text begins, but for the help.
const LABELS: [(&[u8], Part); 5] = [
    (b" uWSGI: ", Part::Uwsgi),
    (b" Why: ", Part::Reason),
    (b" Instead: ", Part::Reason),
    (b" Meanwhile: ", Part::Reason),
    (b" Example: ", Part::Example),
];
/// The beginning of all other lines of an example, as wide as its label.
const EXAMPLE_INDENT: &[u8] = b"          ";

/// The texts of a comment, each joined to one line, but for examples.
pub struct Comment<const BYTES: usize> {
    joined: [u8; BYTES],
    length: usize,
    /// Where each text begins and ends.
    parts: [(usize, usize); 4],
}

impl<const BYTES: usize> Comment<BYTES> {
    /// Takes the lines of a comment. Each begins with a space and ends in a newline.
    pub const fn of(written: &str) -> Comment<BYTES> {
        let mut comment = Comment { joined: [0; BYTES], length: 0, parts: [(0, 0); 4] };
        let (mut rest, mut part) = (written.as_bytes(), Part::Help);
        while !rest.is_empty() {
            let (line, after) = first_line(rest);
            part = comment.add(part, line);
            rest = after;
        }
        comment
    }

    /// Adds a line to a text, or to the one whose label it begins with, which it returns.
    const fn add(&mut self, mut part: Part, line: &[u8]) -> Part {
        assert!(!line.is_empty(), "a text has no empty line");
        let (mut indent, mut separator, mut label) = (1, b' ', 0);
        if matches!(part, Part::Example) {
            assert!(
                begins_with(line, EXAMPLE_INDENT),
                "the lines of an example stand one below the other, and nothing follows them"
            );
            (indent, separator) = (EXAMPLE_INDENT.len(), b'\n');
        }
        while label < LABELS.len() {
            let (beginning, of) = LABELS[label];
            if begins_with(line, beginning) {
                assert!((part as usize) < of as usize, "the order is: help, `uWSGI:`, a reason, an example");
                self.parts[of as usize] = (self.length, self.length);
                (part, indent) = (of, beginning.len());
            }
            label += 1;
        }
        if self.length > self.parts[part as usize].0 {
            self.joined[self.length] = separator;
            self.length += 1;
        }
        while indent < line.len() {
            self.joined[self.length] = line[indent];
            (self.length, indent) = (self.length + 1, indent + 1);
        }
        self.parts[part as usize].1 = self.length;
        part
    }

    pub const fn texts(&'static self) -> Texts {
        Texts {
            help: self.text(Part::Help),
            uwsgi: self.text(Part::Uwsgi),
            reason: self.text(Part::Reason),
            example: self.text(Part::Example),
        }
    }

    const fn text(&'static self, part: Part) -> &'static str {
        let (begin, end) = self.parts[part as usize];
        match str::from_utf8(self.joined.split_at(end).0.split_at(begin).1) {
            Ok(text) => text,
            Err(_) => panic!("a text was cut within a character"),
        }
    }
}

/// Returns the first line, without its newline, and what follows it.
const fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while text[end] != b'\n' {
        end += 1;
    }
    (text.split_at(end).0, text.split_at(end + 1).1)
}

const fn begins_with(text: &[u8], beginning: &[u8]) -> bool {
    let mut same = 0;
    while same < text.len() && same < beginning.len() && text[same] == beginning[same] {
        same += 1;
    }
    same == beginning.len()
}

#[cfg(test)]
mod tests {
    use super::{Comment, Texts};

    const ALL: Texts = texts! {
        /// Does this
        /// and that.
        /// uWSGI: it does
        /// less.
        /// Instead: write
        /// `that`.
        /// Example: this = 1
        ///          that = two  words
    };
    const NONE: Texts = texts! {};

    #[test]
    fn a_comment_is_its_texts() {
        assert_eq!((ALL.help, ALL.uwsgi, ALL.reason), ("Does this and that.", "it does less.", "write `that`."));
        assert_eq!(ALL.example, "this = 1\nthat = two  words");
        assert!([NONE.help, NONE.uwsgi, NONE.reason, NONE.example].iter().all(|text| text.is_empty()));
    }

    /// In a table such a comment is an error of the compiler.
    #[test]
    fn a_malformed_comment_is_refused() {
        for written in [
            " Help.\n\n More.\n",
            " Help.\n Why: a\n uWSGI: b\n",
            " Help.\n Why: a\n Instead: b\n",
            " Example: a = 1\n b = 2\n",
            " Example: a = 1\n Why: c\n",
        ] {
            let taken = std::panic::catch_unwind(|| Comment::<64>::of(written).length);
            assert!(taken.is_err(), "{written:?}");
        }
    }
}
