//! Jobs as bytes, with what they are: for the tests of the format and as the first inputs of its fuzz target.

// Each user of this module uses only some of it.
#![allow(dead_code)]

pub struct JobCase {
    pub bytes: &'static [u8],
    pub outcome: Outcome,
}

pub enum Outcome {
    Job {
        variables: &'static [(&'static [u8], &'static [u8])],
        body: &'static [u8],
    },
    Unfinished,
    /// Words of the reason.
    Junk(&'static str),
}

const fn job(bytes: &'static [u8], variables: &'static [(&'static [u8], &'static [u8])], body: &'static [u8]) -> JobCase {
    JobCase { bytes, outcome: Outcome::Job { variables, body } }
}

const fn unfinished(bytes: &'static [u8]) -> JobCase {
    JobCase { bytes, outcome: Outcome::Unfinished }
}

const fn junk(bytes: &'static [u8], words: &'static str) -> JobCase {
    JobCase { bytes, outcome: Outcome::Junk(words) }
}

const MODIFIER: &str = "its first byte is not 17";
const NAME: &str = "the name of a variable leads beyond";
const VALUE: &str = "the value of a variable leads beyond";
const NAMELESS: &str = "a variable has no name";

pub const CASES: &[JobCase] = &[
    job(b"\x11\x00\x00\x00", &[], b""),
    job(b"\x11\x00\x00\x00body", &[], b"body"),
    job(b"\x11\x06\x00\x00\x01\x00a\x01\x00b", &[(b"a", b"b")], b""),
    job(b"\x11\x06\x00\x00\x01\x00a\x01\x00b\x11\x06", &[(b"a", b"b")], b"\x11\x06"),
    // uWSGI does not look at modifier2.
    job(b"\x11\x05\x00\xff\x01\x00a\x00\x00", &[(b"a", b"")], b""),
    job(b"\x11\x0b\x00\x00\x01\x00a\x00\x00\x02\x00bc\x00\x00", &[(b"a", b""), (b"bc", b"")], b""),
    // A name that occurs twice: the later value counts in Python's dict, in uWSGI too.
    job(b"\x11\x0c\x00\x00\x01\x00a\x01\x001\x01\x00a\x01\x002", &[(b"a", b"1"), (b"a", b"2")], b""),
    job(b"\x11\x08\x00\x00\x02\x00\x00\xff\x02\x00\n\0", &[(b"\0\xff", b"\n\0")], b""),
    job(b"\x11\x0f\x00\x00\x02\x00at\x09\x00170000000", &[(b"at", b"170000000")], b""),
    job(b"\x11\x10\x00\x00\x08\x00priority\x04\x001234 ", &[(b"priority", b"1234")], b" "),
    unfinished(b""),
    unfinished(b"\x11"),
    unfinished(b"\x11\x00"),
    unfinished(b"\x11\x00\x00"),
    unfinished(b"\x11\x06\x00\x00"),
    unfinished(b"\x11\x06\x00\x00\x01\x00a\x01\x00"),
    unfinished(b"\x11\xff\xff\x00\x01\x00a\x01\x00b"),
    // The packet is not judged before it is whole.
    unfinished(b"\x11\x08\x00\x00\x00\x00\x00\x00"),
    junk(b"\x00\x00\x00\x00", MODIFIER),
    junk(b"\x00", MODIFIER),
    junk(b"\x12\x06\x00\x00\x01\x00a\x01\x00b", MODIFIER),
    junk(b"hello, this is a text\n", MODIFIER),
    junk(b"\x11\x01\x00\x00a", NAME),
    junk(b"\x11\x02\x00\x00\x01\x00", NAME),
    junk(b"\x11\x02\x00\x00\xff\xffbody", NAME),
    junk(b"\x11\x03\x00\x00\x01\x00a", VALUE),
    junk(b"\x11\x04\x00\x00\x01\x00a\x00", VALUE),
    junk(b"\x11\x05\x00\x00\x01\x00a\x01\x00b", VALUE),
    junk(b"\x11\x07\x00\x00\x01\x00a\x01\x00b\x00", NAME),
    junk(b"\x11\x04\x00\x00\x00\x00\x00\x00", NAMELESS),
    junk(b"\x11\x02\x00\x00\x00\x00", NAMELESS),
    junk(b"\x11\x09\x00\x00\x01\x00a\x00\x00\x00\x00\x00\x00body", NAMELESS),
];
