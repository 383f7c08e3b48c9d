//! A small deterministic mutator: the same seed gives the same inputs in the same order, on every machine.
//!
//! It must not know the meaning of the inputs, nor the time.

/// Longest input in bytes.
pub const MAX_INPUT_BYTES: usize = 1024;

/// Changes made to one input, at most.
const MAX_CHANGES: usize = 6;

/// Longest piece that one change removes, duplicates or inserts, in bytes.
const MAX_PIECE_BYTES: usize = 48;

/// Pseudorandom numbers: SplitMix64.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    fn pick<'a, Item>(&mut self, items: &'a [Item]) -> Option<&'a Item> {
        items.get(self.below(items.len()))
    }
}

/// Makes a new input from one of the corpus, with pieces of other inputs and of `words`.
pub fn mutated(chance: &mut Chance, corpus: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut input = chance.pick(corpus).cloned().unwrap_or_default();
    for _ in 0..=chance.below(MAX_CHANGES) {
        change(chance, &mut input, corpus, words);
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

fn change(chance: &mut Chance, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&[u8]]) {
    let place = chance.below(input.len() + 1);
    let piece_end = (place + 1 + chance.below(MAX_PIECE_BYTES)).min(input.len());
    match chance.below(9) {
        0 => set(input, place, |byte| byte ^ 1 << (place % 8)),
        1 => {
            let byte = chance.next() as u8;
            set(input, place, |_| byte);
        }
        2 => set(input, place, |byte| byte.wrapping_add(1)),
        3 => input.insert(place, chance.next() as u8),
        4 => drop(input.drain(place.min(piece_end)..piece_end)),
        5 => {
            let piece = input[place.min(piece_end)..piece_end].to_vec();
            insert(input, place, &piece);
        }
        6 => input.truncate(place),
        7 => {
            if let Some(word) = chance.pick(words) {
                insert(input, place, word);
            }
        }
        _ => {
            if let Some(other) = chance.pick(corpus) {
                let start = chance.below(other.len());
                let end = (start + 1 + chance.below(MAX_PIECE_BYTES)).min(other.len());
                insert(input, place, &other[start.min(end)..end]);
            }
        }
    }
}

fn set(input: &mut [u8], place: usize, new: impl Fn(u8) -> u8) {
    if let Some(byte) = input.get_mut(place) {
        *byte = new(*byte);
    }
}

fn insert(input: &mut Vec<u8>, place: usize, piece: &[u8]) {
    input.splice(place..place, piece.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_same_seed_makes_the_same_inputs() {
        let corpus = [b"GET / HTTP/1.1\r\n".to_vec(), Vec::new()];
        let make = |seed| {
            let mut chance = Chance::new(seed);
            (0..200).map(|_| mutated(&mut chance, &corpus, &[b"\r\n"])).collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert!(make(1).iter().all(|input| input.len() <= MAX_INPUT_BYTES));
    }

    #[test]
    fn test_an_empty_corpus_still_makes_inputs() {
        let mut chance = Chance::new(1);
        assert!((0..100).map(|_| mutated(&mut chance, &[], &[])).any(|input| !input.is_empty()));
    }
}
