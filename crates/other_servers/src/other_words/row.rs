//! A row of the tables of words from elsewhere. Plain data.

/// A word without an option of its name.
pub struct OtherWord {
    /// Its spellings in small letters, with dashes for underscores and spaces; the first one is the usual one.
    pub names: &'static [&'static str],
    /// The program that it is a word of; empty for a general word.
    pub whose: &'static str,
    /// The option that replaces it; empty if there is none.
    pub option: &'static str,
    /// What the option does, or why there is none: the rest of a sentence.
    pub says: &'static str,
}
