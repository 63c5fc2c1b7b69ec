//! Index from paths to the steps of a block that may apply, so that a thousand routes cost no more than the few that
//! match.
//!
//! Steps that are not routes, or whose paths do not begin with a fixed segment, are in a separate list. All others are
//! found by the whole path or by its first segments. The lists are merged in configuration order.

use crate::pattern::{KEY_SEGMENTS_MAX, Key};
use flatout_os::random::HashState;
use std::collections::HashMap;

type Lists = HashMap<Box<[u8]>, Vec<u32>, HashState>;

/// Index of the steps of a block, by path.
#[derive(Debug, Default)]
pub(crate) struct Index {
    always: Vec<u32>,
    exact: Lists,
    /// Steps by prefixes of one, two and three segments, including their slashes.
    segments: [Lists; KEY_SEGMENTS_MAX],
}

impl Index {
    /// Creates the index of the steps with `keys`, which are in configuration order. A step without keys may apply to
    /// every path.
    pub(crate) fn new(keys: impl Iterator<Item = Option<Vec<Key>>>) -> Self {
        let mut index = Self::default();
        for (step, keys) in keys.enumerate() {
            let step = step as u32;
            let Some(keys) = keys.filter(|keys| !keys.contains(&Key::Any)) else {
                index.always.push(step);
                continue;
            };
            for key in keys {
                let list = match key {
                    Key::Exact(path) => index.exact.entry(path.into()).or_default(),
                    Key::Segments(prefix) => {
                        let depth = prefix.split(|&byte| byte == b'/').count() - 1;
                        index.segments[depth.clamp(1, KEY_SEGMENTS_MAX) - 1].entry(prefix.into()).or_default()
                    }
                    Key::Any => &mut index.always,
                };
                if list.last() != Some(&step) {
                    list.push(step);
                }
            }
        }
        index
    }

    /// Returns the steps from `first` on that may apply to `path`, which is decoded and without its leading slash.
    #[inline]
    pub(crate) fn candidates(&self, path: &[u8], first: u32) -> Candidates<'_> {
        let mut candidates = Candidates { lists: [&[]; KEY_SEGMENTS_MAX + 2], used: 0 };
        candidates.add(&self.always, first);
        if !self.exact.is_empty() {
            candidates.add(self.exact.get(path).map_or(&[], Vec::as_slice), first);
        }
        if self.segments.iter().any(|lists| !lists.is_empty()) {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            for (depth, (slash, _)) in slashes.take(KEY_SEGMENTS_MAX).enumerate() {
                candidates.add(self.segments[depth].get(&path[..=slash]).map_or(&[], Vec::as_slice), first);
            }
        }
        candidates
    }
}

/// Steps that may apply, in configuration order.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    lists: [&'a [u32]; KEY_SEGMENTS_MAX + 2],
    /// Number of lists that are in use.
    used: usize,
}

impl<'a> Candidates<'a> {
    /// Adds the steps in `list` from the step `first` on.
    #[inline]
    fn add(&mut self, list: &'a [u32], first: u32) {
        let list = if first > 0 { &list[list.partition_point(|&step| step < first)..] } else { list };
        if !list.is_empty() {
            self.lists[self.used] = list;
            self.used += 1;
        }
    }
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let lists = &mut self.lists[..self.used];
        let step = lists.iter().filter_map(|list| list.first()).min().copied()?;
        for list in lists {
            if list.first() == Some(&step) {
                *list = &list[1..];
            }
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::Index;
    use crate::pattern::PathPattern;
    use proptest::prelude::*;

    fn index(steps: &[Vec<String>]) -> Index {
        let keys = |patterns: &Vec<String>| {
            let keys = patterns.iter().map(|pattern| PathPattern::new(pattern).key()).collect();
            if patterns.is_empty() { None } else { Some(keys) }
        };
        Index::new(steps.iter().map(keys))
    }

    #[test]
    fn lists_are_merged_in_written_order() {
        let steps: Vec<Vec<String>> = [&["/a/*"][..], &[], &["/a/b", "/a/b"], &["*.c"], &["/a/b/c/d/*", "/a/b"]]
            .iter()
            .map(|patterns| patterns.iter().map(|&pattern| pattern.to_owned()).collect())
            .collect();
        let found = |path: &str, first| index(&steps).candidates(path.as_bytes(), first).collect::<Vec<_>>();
        assert_eq!(found("a/b", 0), [0, 1, 2, 3, 4]);
        assert_eq!(found("a/x", 0), [0, 1, 3]);
        assert_eq!(found("a/b/c/x", 1), [1, 3, 4]);
        assert_eq!(found("", 0), [1, 3]);
        assert_eq!(found("a/b", 5), [0_u32; 0]);
    }

    proptest! {
        /// Whatever a naive walk over all steps would match is among the candidates, in the same order.
        #[test]
        fn nothing_that_matches_is_left_out(
            steps in prop::collection::vec(prop::collection::vec("[/*][ab/*]{0,8}", 0..3), 0..12),
            path in "[ab/]{0,10}",
            first in 0..12_u32,
        ) {
            let matches = |patterns: &Vec<String>| {
                patterns.is_empty()
                    || patterns.iter().any(|pattern| PathPattern::new(pattern).match_path(path.as_bytes()).is_some())
            };
            let naive: Vec<u32> =
                (first..steps.len() as u32).filter(|&step| matches(&steps[step as usize])).collect();
            let candidates: Vec<u32> = index(&steps).candidates(path.as_bytes(), first).collect();
            prop_assert!(candidates.is_sorted());
            let found: Vec<u32> = candidates.into_iter().filter(|&step| matches(&steps[step as usize])).collect();
            prop_assert_eq!(found, naive);
        }
    }
}
