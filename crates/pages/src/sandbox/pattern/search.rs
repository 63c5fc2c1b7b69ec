//! Searching a subject for a pattern, a budget of steps at a time.

use super::{Item, Pattern, Repeat};
use std::rc::Rc;

/// What a capture caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Not closed.
    Open {
        /// Where it began.
        start: usize,
    },
    /// These bytes of the subject.
    Text {
        /// First byte.
        start: usize,
        /// Behind the last byte.
        end: usize,
    },
    /// `()`: this place, from 0.
    Position(usize),
}

/// What to come back to when what follows does not match.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// `*` and `+`: one repetition fewer, down to `least`. What follows is item `next`.
    Fewer { next: usize, least: usize, at: usize },
    /// `-`: one repetition more of item `next - 1`.
    More { next: usize, at: usize },
    /// `?`: without it.
    Without { next: usize, at: usize },
    /// Forget the last capture.
    Drop,
    /// Open this capture again, which began at `start`.
    Reopen { number: u8, start: usize },
}

/// What the search does next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Try from this place of the subject.
    Start(usize),
    /// Match item `item` at `at`.
    Match { item: usize, at: usize },
    /// Count repetitions of `item` from `from`; as far as `at` they match.
    Count { item: usize, from: usize, at: usize },
    /// Look for the end of what `item` balances, behind `at`, `depth` levels deep.
    Balance { item: usize, at: usize, depth: usize },
    /// Go back to the last choice.
    Back,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// From here to there.
    Found(usize, usize),
    /// Nowhere.
    Absent,
    /// The budget is used up.
    Unfinished,
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct Search {
    pattern: Rc<Pattern>,
    next: Next,
    /// Where the attempt under way began.
    began: usize,
    choices: Vec<Choice>,
    captures: Vec<Capture>,
    /// Whether only the first place is tried.
    once: bool,
}

impl Search {
    /// A search for `pattern` from byte `from` on.
    pub(crate) fn new(pattern: Rc<Pattern>, from: usize) -> Self {
        let once = pattern.anchored;
        Self { pattern, next: Next::Start(from), began: from, choices: Vec::new(), captures: Vec::new(), once }
    }

    /// The same room for another search.
    pub(crate) fn with(mut self, pattern: Rc<Pattern>, from: usize) -> Self {
        self.once = pattern.anchored;
        self.pattern = pattern;
        self.next = Next::Start(from);
        self
    }

    /// What was caught, once something is found.
    pub(crate) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The pattern.
    pub(crate) fn pattern(&self) -> &Rc<Pattern> {
        &self.pattern
    }

    /// Begins anew at `from`.
    pub(crate) fn restart(&mut self, from: usize) {
        self.next = Next::Start(from);
    }

    /// Searches on, for at most `budget` steps; what is left of it is left in there. A step is one item tried, or one
    /// byte counted.
    pub(crate) fn run(&mut self, subject: &[u8], budget: &mut usize) -> Progress {
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
                        None => return Progress::Absent,
                    }
                }
                Next::Match { item, at } => match pattern.items.get(item) {
                    None => return Progress::Found(self.began, at),
                    Some(found) => self.next = self.step(found, item, subject, at, budget),
                },
                Next::Count { item, from, at } => {
                    self.next = self.count(&pattern.items[item], item, subject, from, at, budget);
                }
                Next::Balance { item, at, depth } => self.next = balance(&pattern, subject, item, at, depth, budget),
                Next::Back => match self.choices.pop() {
                    Some(choice) => self.next = self.turn(&pattern, choice, subject),
                    None if self.once || self.began >= subject.len() => return Progress::Absent,
                    None => self.next = Next::Start(self.began + 1),
                },
            }
        }
        Progress::Unfinished
    }

    /// The first place from `from` on where a match can begin.
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

    /// One item.
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
                            self.choices.push(Choice::Without { next, at });
                        }
                        Next::Match { item: next, at: at + usize::from(matches) }
                    }
                    Repeat::MostFromOne if !matches => Next::Back,
                    Repeat::MostFromOne => Next::Count { item, from: at + 1, at: at + 1 },
                    Repeat::Most => Next::Count { item, from: at, at },
                    Repeat::Least => {
                        self.choices.push(Choice::More { next, at });
                        Next::Match { item: next, at }
                    }
                }
            }
            Item::Open => {
                self.captures.push(Capture::Open { start: at });
                self.choices.push(Choice::Drop);
                Next::Match { item: next, at }
            }
            Item::Position => {
                self.captures.push(Capture::Position(at));
                self.choices.push(Choice::Drop);
                Next::Match { item: next, at }
            }
            Item::Close(number) => {
                if let Some(capture) = self.captures.get_mut(usize::from(*number))
                    && let Capture::Open { start } = *capture
                {
                    *capture = Capture::Text { start, end: at };
                    self.choices.push(Choice::Reopen { number: *number, start });
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
                // The length of a position is no length: nothing is as long.
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

    /// How many repetitions there are, as far as the budget goes.
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
            self.choices.push(Choice::Fewer { next, least: from, at });
        }
        Next::Match { item: next, at }
    }

    /// Goes back to a choice.
    fn turn(&mut self, pattern: &Pattern, choice: Choice, subject: &[u8]) -> Next {
        match choice {
            Choice::Fewer { next, least, at } => {
                let at = at - 1;
                if at > least {
                    self.choices.push(Choice::Fewer { next, least, at });
                }
                Next::Match { item: next, at }
            }
            Choice::More { next, at } => {
                if accepts(&pattern.items[next - 1], subject, at) {
                    self.choices.push(Choice::More { next, at: at + 1 });
                    Next::Match { item: next, at: at + 1 }
                } else {
                    Next::Back
                }
            }
            Choice::Without { next, at } => Next::Match { item: next, at },
            Choice::Drop => {
                self.captures.pop();
                Next::Back
            }
            Choice::Reopen { number, start } => {
                if let Some(capture) = self.captures.get_mut(usize::from(number)) {
                    *capture = Capture::Open { start };
                }
                Next::Back
            }
        }
    }
}

/// Takes the cost of a longer step out of the budget.
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

/// Goes on from `at`, as far as the budget reaches.
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
