//! What a chunk can hold, as symbols: nothing known, a rank's contribution, or a fold of contributions.
//!
//! Equal folds get equal numbers, so that comparing two whole trees of additions is comparing two numbers. The operands
//! of a fold of two are not ordered: the operators commute, bit for bit. A fold of many runs in one pass keeps its
//! order.

use super::fault::Fault;
use crate::schedule::Rank;
use crate::schedule::hash::Map;

/// A number that stands for what a chunk holds.
pub type Value = u32;

/// What nobody has written.
pub const GARBAGE: Value = 0;

/// All values of one check.
pub struct Values {
    n_ranks: u32,
    chunks: u32,
    n_leaves: u32,
    /// How many words a set of ranks takes.
    words: usize,
    /// Per fold, the chunk that it is of.
    chunk_of: Vec<u32>,
    /// Per fold, the ranks whose contributions it has.
    ranks_of: Vec<u64>,
    pairs: Map<(Value, Value), Value>,
    lists: Map<Box<[Value]>, Value>,
    /// Room for the set of the fold in hand.
    set: Vec<u64>,
}

impl Values {
    pub fn new(n_ranks: u32, chunks: u32) -> Values {
        let words = n_ranks.div_ceil(64) as usize;
        Values {
            n_ranks,
            chunks,
            n_leaves: n_ranks * chunks,
            words,
            chunk_of: Vec::new(),
            ranks_of: Vec::new(),
            pairs: Map::default(),
            lists: Map::default(),
            set: vec![0; words],
        }
    }

    /// What rank `rank` brings as chunk `chunk`.
    pub fn contribution(&self, rank: Rank, chunk: u32) -> Value {
        1 + rank * self.chunks + chunk
    }

    /// The chunk that a value other than garbage is of.
    fn chunk(&self, value: Value) -> u32 {
        match self.fold_index(value) {
            None => (value - 1) % self.chunks,
            Some(index) => self.chunk_of[index],
        }
    }

    fn fold_index(&self, value: Value) -> Option<usize> {
        (value > self.n_leaves).then(|| (value - self.n_leaves - 1) as usize)
    }

    /// Adds the ranks in `value` to the set in hand.
    fn gather(&mut self, value: Value) -> Result<(), Fault> {
        if let Some(index) = self.fold_index(value) {
            let from = index * self.words;
            for (word, (mine, theirs)) in self.set.iter_mut().zip(&self.ranks_of[from..from + self.words]).enumerate() {
                if *mine & theirs != 0 {
                    return Err(Fault::Twice(64 * word as u32 + (*mine & theirs).trailing_zeros()));
                }
                *mine |= theirs;
            }
        } else {
            let rank = (value - 1) / self.chunks;
            let (word, bit) = ((rank / 64) as usize, 1 << (rank % 64));
            if self.set[word] & bit != 0 {
                return Err(Fault::Twice(rank));
            }
            self.set[word] |= bit;
        }
        Ok(())
    }

    /// Makes the fold of `values`, none of which is garbage.
    fn insert(&mut self, values: &[Value]) -> Result<Value, Fault> {
        let chunk = self.chunk(values[0]);
        if let Some(other) = values.iter().find(|value| self.chunk(**value) != chunk) {
            return Err(Fault::Mixed(self.describe(values[0]), self.describe(*other)));
        }
        self.set.fill(0);
        for value in values {
            self.gather(*value)?;
        }
        self.chunk_of.push(chunk);
        self.ranks_of.extend_from_slice(&self.set);
        Ok(self.n_leaves + self.chunk_of.len() as u32)
    }

    /// The fold of two values.
    pub fn fold_two(&mut self, one: Value, other: Value) -> Result<Value, Fault> {
        let pair = (one.min(other), one.max(other));
        if let Some(known) = self.pairs.get(&pair) {
            return Ok(*known);
        }
        let value = self.insert(&[pair.0, pair.1])?;
        self.pairs.insert(pair, value);
        Ok(value)
    }

    /// The fold of values in one pass, in order.
    pub fn fold_many(&mut self, values: &[Value]) -> Result<Value, Fault> {
        if let Some(known) = self.lists.get(values) {
            return Ok(*known);
        }
        let value = self.insert(values)?;
        self.lists.insert(values.into(), value);
        Ok(value)
    }

    /// Whether the value is a fold of every rank's contribution to that chunk (or, with one rank, the contribution).
    pub fn is_complete(&self, value: Value, chunk: u32) -> bool {
        value != GARBAGE && self.chunk(value) == chunk && self.ranks(value).count() == self.n_ranks as usize
    }

    fn ranks(&self, value: Value) -> impl Iterator<Item = Rank> {
        let (single, set) = match self.fold_index(value) {
            None => (Some((value - 1) / self.chunks), &[][..]),
            Some(index) => (None, &self.ranks_of[index * self.words..(index + 1) * self.words]),
        };
        let in_set = |rank: &Rank| set[(*rank / 64) as usize] >> (*rank % 64) & 1 == 1;
        let all = if set.is_empty() { 0 } else { self.n_ranks };
        single.into_iter().chain((0..all).filter(in_set))
    }

    /// The value in words.
    pub fn describe(&self, value: Value) -> String {
        if value == GARBAGE {
            return "what nobody has written".to_owned();
        }
        let ranks: Vec<String> = self.ranks(value).take(9).map(|rank| rank.to_string()).collect();
        match ranks.len() {
            1 => format!("chunk {} of rank {}", self.chunk(value), ranks[0]),
            2..9 => format!("the fold of chunk {} of ranks {}", self.chunk(value), ranks.join(", ")),
            _ => format!("the fold of chunk {} of {} ranks", self.chunk(value), self.ranks(value).count()),
        }
    }
}
