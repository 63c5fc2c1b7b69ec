//! Searching a string for a pattern, in budgets of steps.

use super::{Item, Pattern, Repeat};
use std::rc::Rc;

/// The state of a capture during a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The capture has not been closed yet.
    Open {
        /// Offset of the first byte in the string.
        start: usize,
    },
    /// A range of the string.
    Text {
        /// Offset of the first byte.
        start: usize,
        /// Offset after the last byte.
        end: usize,
    },
    /// A position capture `()`: the offset, counted from 0.
    Position(usize),
}

/// A point to which the search returns if the rest of the pattern does not match.
#[derive(Clone, Copy, Debug)]
enum BacktrackPoint {
    /// For `*` and `+`: try one repetition fewer, down to `least`, followed by item `next`.
    Fewer { next: usize, least: usize, at: usize },
    /// For `-`: try one more repetition of item `next - 1`.
    More { next: usize, at: usize },
    /// For `?`: try without the item.
    Without { next: usize, at: usize },
    /// Remove the last capture and return further.
    Drop,
    /// Reopen this capture, which began at `start`, and return further.
    Reopen { number: u8, start: usize },
}

/// The next step of the search.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Start an attempt at this offset of the string or later.
    Start(usize),
    /// Match item number `item` at offset `at`.
    Match { item: usize, at: usize },
    /// Count the repetitions of `item` from `from`; those before `at` are known to match.
    Count { item: usize, from: usize, at: usize },
    /// Find the end of the balanced item `item` after `at`, at nesting depth `depth`.
    Balance { item: usize, at: usize, depth: usize },
    /// Return to the last backtracking point.
    Back,
}

/// The result of searching with one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchProgress {
    /// A match was found, at this range.
    Found(usize, usize),
    /// There is no match.
    Absent,
    /// The budget was used up before a result was found.
    Unfinished,
}

/// The state of a search.
#[derive(Debug)]
pub(crate) struct PatternSearch {
    pattern: Rc<Pattern>,
    next: Next,
    /// The offset at which the current attempt started.
    began: usize,
    choices: Vec<BacktrackPoint>,
    captures: Vec<Capture>,
    /// True if only the first offset is tried, because the pattern is anchored.
    once: bool,
}

impl PatternSearch {
    /// Creates a search for `pattern` that starts at offset `from`.
    pub(crate) fn new(pattern: Rc<Pattern>, from: usize) -> Self {
        let once = pattern.anchored;
        Self { pattern, next: Next::Start(from), began: from, choices: Vec::new(), captures: Vec::new(), once }
    }

    /// Starts another search that reuses the buffers of this one.
    pub(crate) fn with(mut self, pattern: Rc<Pattern>, from: usize) -> Self {
        self.once = pattern.anchored;
        self.pattern = pattern;
        self.next = Next::Start(from);
        self
    }

    /// The captures of the match.
    pub(crate) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The parsed pattern.
    pub(crate) fn pattern(&self) -> &Rc<Pattern> {
        &self.pattern
    }

    /// Searches for the next match, starting at offset `from`.
    pub(crate) fn restart(&mut self, from: usize) {
        self.next = Next::Start(from);
    }

    /// Continues for at most `budget` steps, and subtracts the steps taken from it. A step tries one item, or processes
    /// several bytes.
    pub(crate) fn run(&mut self, subject: &[u8], budget: &mut usize) -> MatchProgress {
        let pattern = Rc::clone(&self.pattern);
        while *budget > 0 {
            *budget -= 1;
            match self.next {
                Next::Start(from) => {
                    self.choices.clear();
                    self.captures.clear();
                    match self.place(&pattern, subject, from, budget) {
                        Some(place) => {
                            self.began = place;
                            self.next = Next::Match { item: 0, at: place };
                        }
                        None => return MatchProgress::Absent,
                    }
                }
                Next::Match { item, at } => match pattern.items.get(item) {
                    None => return MatchProgress::Found(self.began, at),
                    Some(found) => self.next = self.step(found, item, subject, at, budget),
                },
                Next::Count { item, from, at } => {
                    self.next = self.count(&pattern.items[item], item, subject, from, at, budget);
                }
                Next::Balance { item, at, depth } => self.next = balance(&pattern, subject, item, at, depth, budget),
                Next::Back => match self.choices.pop() {
                    Some(choice) => self.next = self.turn(&pattern, choice, subject),
                    None if self.once || self.began >= subject.len() => return MatchProgress::Absent,
                    None => self.next = Next::Start(self.began + 1),
                },
            }
        }
        MatchProgress::Unfinished
    }

    /// Returns the first offset from `from` on at which a match can begin.
    fn place(&self, pattern: &Pattern, subject: &[u8], from: usize, budget: &mut usize) -> Option<usize> {
        let rest = subject.get(from..)?;
        match pattern.first_byte() {
            Some(byte) if !self.once => {
                let skipped = memchr::memchr(byte, rest);
                spend(budget, skipped.unwrap_or(rest.len()) / 32);
                skipped.map(|skipped| from + skipped)
            }
            _ => Some(from),
        }
    }

    /// Matches one item.
    fn step(&mut self, found: &Item, item: usize, subject: &[u8], at: usize, budget: &mut usize) -> Next {
        let next = item + 1;
        match found {
            Item::Byte(_, repeat) | Item::Any(repeat) | Item::OneOf(_, repeat) => {
                let matches = accepts(found, subject, at);
                match repeat {
                    Repeat::Once if matches => Next::Match { item: next, at: at + 1 },
                    Repeat::Once => Next::Back,
                    Repeat::Optional => {
                        if matches {
                            self.choices.push(BacktrackPoint::Without { next, at });
                        }
                        Next::Match { item: next, at: at + usize::from(matches) }
                    }
                    Repeat::MostFromOne if !matches => Next::Back,
                    Repeat::MostFromOne => Next::Count { item, from: at + 1, at: at + 1 },
                    Repeat::Most => Next::Count { item, from: at, at },
                    Repeat::Least => {
                        self.choices.push(BacktrackPoint::More { next, at });
                        Next::Match { item: next, at }
                    }
                }
            }
            Item::Open => {
                self.captures.push(Capture::Open { start: at });
                self.choices.push(BacktrackPoint::Drop);
                Next::Match { item: next, at }
            }
            Item::Position => {
                self.captures.push(Capture::Position(at));
                self.choices.push(BacktrackPoint::Drop);
                Next::Match { item: next, at }
            }
            Item::Close(number) => {
                if let Some(capture) = self.captures.get_mut(usize::from(*number))
                    && let Capture::Open { start } = *capture
                {
                    *capture = Capture::Text { start, end: at };
                    self.choices.push(BacktrackPoint::Reopen { number: *number, start });
                }
                Next::Match { item: next, at }
            }
            Item::Back(number) => match self.captures.get(usize::from(*number)) {
                Some(&Capture::Text { start, end }) => {
                    spend(budget, (end - start) / 16);
                    if subject[at..].starts_with(&subject[start..end]) {
                        Next::Match { item: next, at: at + end - start }
                    } else {
                        Next::Back
                    }
                }
                // A position capture has no text to refer to.
                _ => Next::Back,
            },
            Item::Balance(first, _) if subject.get(at) == Some(first) => Next::Balance { item, at: at + 1, depth: 1 },
            Item::Frontier(set) => {
                let before = at.checked_sub(1).map_or(0, |before| subject[before]);
                let here = subject.get(at).copied().unwrap_or(0);
                if !set.has(before) && set.has(here) { Next::Match { item: next, at } } else { Next::Back }
            }
            Item::End if at == subject.len() => Next::Match { item: next, at },
            Item::Balance(..) | Item::End => Next::Back,
        }
    }

    /// Counts repetitions, as far as the budget allows.
    fn count(&mut self, found: &Item, item: usize, subject: &[u8], from: usize, at: usize, budget: &mut usize) -> Next {
        let rest = &subject[at.min(subject.len())..];
        let within = &rest[..rest.len().min((*budget + 1).saturating_mul(4))];
        let counted = match found {
            Item::Any(_) => within.len(),
            Item::Byte(byte, _) => within.iter().take_while(|known| *known == byte).count(),
            Item::OneOf(set, _) => within.iter().take_while(|known| set.has(**known)).count(),
            _ => 0,
        };
        spend(budget, counted / 4);
        let at = at + counted;
        if counted == within.len() && within.len() < rest.len() {
            return Next::Count { item, from, at };
        }
        let next = item + 1;
        if at > from {
            self.choices.push(BacktrackPoint::Fewer { next, least: from, at });
        }
        Next::Match { item: next, at }
    }

    /// Continues at a backtracking point.
    fn turn(&mut self, pattern: &Pattern, choice: BacktrackPoint, subject: &[u8]) -> Next {
        match choice {
            BacktrackPoint::Fewer { next, least, at } => {
                let at = at - 1;
                if at > least {
                    self.choices.push(BacktrackPoint::Fewer { next, least, at });
                }
                Next::Match { item: next, at }
            }
            BacktrackPoint::More { next, at } => {
                if accepts(&pattern.items[next - 1], subject, at) {
                    self.choices.push(BacktrackPoint::More { next, at: at + 1 });
                    Next::Match { item: next, at: at + 1 }
                } else {
                    Next::Back
                }
            }
            BacktrackPoint::Without { next, at } => Next::Match { item: next, at },
            BacktrackPoint::Drop => {
                self.captures.pop();
                Next::Back
            }
            BacktrackPoint::Reopen { number, start } => {
                if let Some(capture) = self.captures.get_mut(usize::from(number)) {
                    *capture = Capture::Open { start };
                }
                Next::Back
            }
        }
    }
}

/// Subtracts the additional cost of a long step from the budget.
fn spend(budget: &mut usize, steps: usize) {
    *budget = budget.saturating_sub(steps);
}

#[inline]
fn accepts(item: &Item, subject: &[u8], at: usize) -> bool {
    subject.get(at).is_some_and(|byte| match item {
        Item::Byte(wanted, _) => byte == wanted,
        Item::Any(_) => true,
        Item::OneOf(set, _) => set.has(*byte),
        _ => false,
    })
}

/// Searches for the end of a balanced item from `at` on, as far as the budget allows.
fn balance(pattern: &Pattern, subject: &[u8], item: usize, at: usize, depth: usize, budget: &mut usize) -> Next {
    let &Item::Balance(first, last) = &pattern.items[item] else { return Next::Back };
    let rest = &subject[at.min(subject.len())..];
    let within = &rest[..rest.len().min((*budget + 1).saturating_mul(32))];
    let mut depth = depth;
    for found in memchr::memchr2_iter(first, last, within) {
        spend(budget, 1);
        if within[found] == last {
            depth -= 1;
            if depth == 0 {
                return Next::Match { item: item + 1, at: at + found + 1 };
            }
        } else {
            depth += 1;
        }
        if *budget == 0 {
            return Next::Balance { item, at: at + found + 1, depth };
        }
    }
    spend(budget, within.len() / 32);
    if within.len() < rest.len() { Next::Balance { item, at: at + within.len(), depth } } else { Next::Back }
}
