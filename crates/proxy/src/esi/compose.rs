//! Composition of a page from its parts.
//!
//! Composition proceeds in rounds: [`Composition::wanted`] returns the parts to fetch now, which may be fetched in
//! parallel, and [`Composition::provide`] takes each result. Rounds repeat until no part is wanted. If a part fails and
//! has an `alt`, the `alt` is wanted in the next round. The parts of `except` are wanted only after the `attempt` has
//! failed.

use super::page::count_includes;
use super::{EsiTemplate, Include, Segment};
use std::ops::Range;

/// A part to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Index to pass to [`Composition::provide`].
    pub slot: usize,
    /// The reference to the part; see [`resolve`](super::resolve).
    pub src: &'a str,
}

/// A piece of the composed page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComposedPiece<T> {
    /// A range of the template's bytes.
    Literal(Range<usize>),
    /// The content of a part.
    Part(T),
}

/// A composed page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composed<T> {
    /// The pieces, in order.
    pub pieces: Vec<ComposedPiece<T>>,
    /// Number of optional parts that are missing.
    pub missing: usize,
}

/// State of a part.
#[derive(Clone, Debug)]
enum IncludeState<T> {
    Wanted,
    /// Fetching `src` failed; `alt` is wanted.
    AltWanted,
    Here(T),
    Failed,
}

/// A composition in progress. `T` is the content of a part.
#[derive(Clone, Debug)]
pub struct Composition<'a, T> {
    page: &'a EsiTemplate,
    /// State of each part, in the order of the includes in the page.
    parts: Vec<IncludeState<T>>,
}

/// State of a list of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompositionState {
    Complete,
    Pending,
    Failed,
}

impl<'a, T> Composition<'a, T> {
    /// Starts a composition. No part has been fetched yet.
    pub fn new(page: &'a EsiTemplate) -> Self {
        Self { page, parts: (0..page.includes).map(|_| IncludeState::Wanted).collect() }
    }

    /// Returns the parts to fetch now. Empty if the composition is complete or has failed.
    pub fn wanted(&self) -> Vec<Wanted<'a>> {
        let mut wanted = Vec::new();
        if self.walk(&self.page.segments, &mut 0, &mut wanted) == CompositionState::Failed {
            wanted.clear();
        }
        wanted
    }

    /// Sets the content of the part in `slot`, or `None` if fetching it failed.
    pub fn provide(&mut self, slot: usize, content: Option<T>) {
        let has_alt = find_include(&self.page.segments, &mut 0, slot).is_some_and(|include| include.alt.is_some());
        let Some(part) = self.parts.get_mut(slot) else { return };
        *part = match (content, &part) {
            (Some(content), _) => IncludeState::Here(content),
            (None, IncludeState::Wanted) if has_alt => IncludeState::AltWanted,
            (None, _) => IncludeState::Failed,
        };
    }

    /// Returns the composed page, or `None` if a required part failed
    /// ([`EsiFragmentFailed`](crate::outcome::ForwardOutcome::EsiFragmentFailed)) or a part is still wanted.
    pub fn finish(mut self) -> Option<Composed<T>> {
        let page = self.page;
        if self.walk(&page.segments, &mut 0, &mut Vec::new()) != CompositionState::Complete {
            return None;
        }
        let mut composed = Composed { pieces: Vec::new(), missing: 0 };
        self.write(&page.segments, &mut 0, &mut composed);
        Some(composed)
    }

    /// Adds the wanted parts of `segments`, whose first include has the index `slot`, to `wanted`. Continues after a
    /// failure, so that `slot` is advanced past all includes.
    fn walk(&self, segments: &'a [Segment], slot: &mut usize, wanted: &mut Vec<Wanted<'a>>) -> CompositionState {
        let mut progress = CompositionState::Complete;
        for segment in segments {
            let one = match segment {
                Segment::Literal(_) => CompositionState::Complete,
                Segment::Include(include) => {
                    let at = *slot;
                    *slot += 1;
                    self.walk_include(include, at, wanted)
                }
                Segment::Try { attempt, except } => {
                    let before = wanted.len();
                    let attempted = self.walk(attempt, slot, wanted);
                    if attempted == CompositionState::Failed {
                        wanted.truncate(before);
                        self.walk(except, slot, wanted)
                    } else {
                        // Skip the other branch, which is not fetched unless this one fails.
                        self.walk(except, slot, &mut Vec::new());
                        attempted
                    }
                }
            };
            progress = match (progress, one) {
                (CompositionState::Failed, _) | (_, CompositionState::Failed) => CompositionState::Failed,
                (CompositionState::Pending, _) | (_, CompositionState::Pending) => CompositionState::Pending,
                _ => CompositionState::Complete,
            };
        }
        progress
    }

    fn walk_include(&self, include: &'a Include, slot: usize, wanted: &mut Vec<Wanted<'a>>) -> CompositionState {
        let src = match self.parts.get(slot) {
            Some(IncludeState::Here(_)) => return CompositionState::Complete,
            Some(IncludeState::Wanted) => &include.src,
            Some(IncludeState::AltWanted) => include.alt.as_ref().unwrap_or(&include.src),
            Some(IncludeState::Failed) | None if include.continue_on_error => return CompositionState::Complete,
            Some(IncludeState::Failed) | None => return CompositionState::Failed,
        };
        wanted.push(Wanted { slot, src });
        CompositionState::Pending
    }

    fn write(&mut self, segments: &'a [Segment], slot: &mut usize, composed: &mut Composed<T>) {
        for segment in segments {
            match segment {
                Segment::Literal(range) => composed.pieces.push(ComposedPiece::Literal(range.clone())),
                Segment::Include(_) => {
                    match self.parts.get_mut(*slot).map(|part| std::mem::replace(part, IncludeState::Failed)) {
                        Some(IncludeState::Here(content)) => composed.pieces.push(ComposedPiece::Part(content)),
                        _ => composed.missing += 1,
                    }
                    *slot += 1;
                }
                Segment::Try { attempt, except } => {
                    let failed = self.walk(attempt, &mut slot.clone(), &mut Vec::new()) == CompositionState::Failed;
                    if failed {
                        *slot += count_includes(attempt);
                        self.write(except, slot, composed);
                    } else {
                        self.write(attempt, slot, composed);
                        *slot += count_includes(except);
                    }
                }
            }
        }
    }
}

/// Returns the include with the index `slot`. `at` is the index of the first include in `segments`, and is advanced.
fn find_include<'a>(segments: &'a [Segment], at: &mut usize, slot: usize) -> Option<&'a Include> {
    for segment in segments {
        match segment {
            Segment::Literal(_) => {}
            Segment::Include(include) => {
                if *at == slot {
                    return Some(include);
                }
                *at += 1;
            }
            Segment::Try { attempt, except } => {
                if let Some(include) = find_include(attempt, at, slot).or_else(|| find_include(except, at, slot)) {
                    return Some(include);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{EsiLimits, parse};
    use super::{ComposedPiece, Composition};
    use std::fmt::Write as _;

    /// Composes `page`, in which parts whose name contains `bad` fail. Returns the requested parts of each round, then
    /// the result.
    fn compose(page: &str) -> (Vec<Vec<String>>, Option<String>) {
        let parsed = parse(page.as_bytes(), &EsiLimits::DEFAULT);
        assert_eq!(parsed.error, None);
        let mut composition = Composition::new(&parsed);
        let mut rounds = Vec::new();
        loop {
            let wanted = composition.wanted();
            if wanted.is_empty() {
                break;
            }
            rounds.push(wanted.iter().map(|wanted| wanted.src.to_owned()).collect());
            for wanted in wanted {
                composition.provide(wanted.slot, (!wanted.src.contains("bad")).then(|| wanted.src.to_uppercase()));
            }
        }
        let text = composition.finish().map(|composed| {
            let pieces = composed.pieces.iter().map(|piece| match piece {
                ComposedPiece::Literal(range) => page[range.clone()].to_owned(),
                ComposedPiece::Part(part) => part.clone(),
            });
            pieces.chain([format!(" {}", composed.missing)]).collect()
        });
        (rounds, text)
    }

    /// `+a` includes a, `+a|b` with the alternative b, a `?` after it makes it optional; `[x/y]` is a try.
    fn page(short: &str) -> String {
        let mut page = String::new();
        let mut rest = short;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            match first {
                '[' => page.push_str("<esi:try><esi:attempt>"),
                '/' => page.push_str("</esi:attempt><esi:except>"),
                ']' => page.push_str("</esi:except></esi:try>"),
                '+' => {
                    let end =
                        rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '|').unwrap_or(rest.len());
                    let (src, alt) = rest[..end].split_once('|').unwrap_or((&rest[..end], ""));
                    rest = &rest[end..];
                    let missing = rest.strip_prefix('?');
                    rest = missing.unwrap_or(rest);
                    let alt = if alt.is_empty() { String::new() } else { format!(" alt='{alt}'") };
                    let onerror = if missing.is_some() { " onerror='continue'" } else { "" };
                    write!(page, "<esi:include src='{src}'{alt}{onerror}/>").unwrap();
                }
                other => page.push(other),
            }
        }
        page
    }

    #[test]
    fn pages_are_put_together() {
        for (short, rounds, expected) in [
            ("x", &[][..], Some("x 0")),
            ("x+a y+b", &[&["a", "b"][..]], Some("xA yB 0")),
            ("x+bad", &[&["bad"]], None),
            ("x+bad?y", &[&["bad"]], Some("xy 1")),
            ("+bad|b", &[&["bad"], &["b"]], Some("B 0")),
            ("+bad1|bad2", &[&["bad1"], &["bad2"]], None),
            ("+bad1|bad2?", &[&["bad1"], &["bad2"]], Some(" 1")),
            ("[+a/+b]+c", &[&["a", "c"]], Some("AC 0")),
            ("[x+bad y+a/z+b]+c", &[&["bad", "a", "c"], &["b"]], Some("zBC 0")),
            ("[+bad|a/+b]", &[&["bad"], &["a"]], Some("A 0")),
            ("[+bad1|bad2/+b]", &[&["bad1"], &["bad2"], &["b"]], Some("B 0")),
            ("[+bad?x/+b]", &[&["bad"]], Some("x 1")),
            ("[+bad/+bad2]", &[&["bad"], &["bad2"]], None),
            ("[[+bad/+bad2]/+c]", &[&["bad"], &["bad2"], &["c"]], Some("C 0")),
            ("[[+bad/+b]x/+c]+d", &[&["bad", "d"], &["b"]], Some("BxD 0")),
            ("[x/+c]+d", &[&["d"]], Some("xD 0")),
            // What has failed fetches nothing more.
            ("+bad1+bad2|a", &[&["bad1", "bad2"]], None),
        ] {
            let (asked, text) = compose(&page(short));
            let rounds: Vec<Vec<String>> =
                rounds.iter().map(|round| round.iter().map(|&src| src.to_owned()).collect()).collect();
            assert_eq!((asked, text.as_deref()), (rounds, expected), "{short}");
        }
    }

    #[test]
    fn what_nobody_wanted_is_no_matter() {
        let parsed = parse(b"<esi:include src='a'/>", &EsiLimits::DEFAULT);
        let mut composition = Composition::new(&parsed);
        composition.provide(7, Some(()));
        assert_eq!(composition.wanted().len(), 1);
        assert!(composition.finish().is_none());
    }
}
