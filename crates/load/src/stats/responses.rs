//! The kind of responses of each side of a comparison: their statuses and sizes.
//!
//! A redirect or an empty page is faster than the page that was requested. Such a difference is no difference in speed.

use super::compare::FAILED_SHARE_DIFFERENCE_MAX;
use crate::plan::{ExpectedStatuses, Plan};
use crate::record::{Moments, Recorder};
use flatout_units::show;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of standard errors by which shares of a status must differ if the statuses vary with the requests. The shares
/// then vary from run to run.
const STANDARD_ERRORS_MIN: f64 = 4.0;

/// Maximum number of responses with a status that say nothing. A resource may respond differently once, for example when
/// a PUT creates it.
const SINGULAR_MAX: u64 = 1;

/// Largest difference of the mean sizes of two sides that is not mentioned, as a share of the larger one.
const SIZE_DIFFERENCE_MAX: f64 = 0.1;

/// Maximum number of statuses that a sentence lists for a side.
const LISTED_MAX: usize = 3;

/// The responses of one or more runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responses {
    /// Successful responses by status.
    statuses: BTreeMap<u16, u64>,
    /// Responses of every status.
    count: u64,
    /// Bytes of their bodies.
    body_bytes: u64,
    /// True if requests were for several URLs.
    are_mixed: bool,
    /// True if the user named the expected statuses, so that a run may have any of them.
    are_named: bool,
}

impl Responses {
    /// Collects the responses of a run with this plan.
    pub fn of(record: &Recorder, plan: &Plan) -> Self {
        Self {
            statuses: record.statuses.iter().filter(|(status, _)| plan.expected.contains(*status)).collect(),
            count: record.counts.responses,
            body_bytes: record.counts.body_bytes_in,
            are_mixed: record.classes.len() > 1,
            are_named: plan.expected != ExpectedStatuses::default() && !plan.expects_as_first,
        }
    }

    /// Adds the responses of another run of the same side.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.count = self.count.saturating_add(other.count);
        self.body_bytes = self.body_bytes.saturating_add(other.body_bytes);
        self.are_mixed |= other.are_mixed;
        self.are_named |= other.are_named;
        self
    }

    /// Returns the number of different statuses of successful responses.
    pub fn statuses(&self) -> usize {
        self.statuses.len()
    }

    /// Returns the statuses of successful responses.
    pub fn seen(&self) -> ExpectedStatuses {
        ExpectedStatuses::of(self.statuses.keys().copied())
    }

    /// Returns whether the user named the expected statuses, so that a run may have any of them.
    pub const fn are_named(&self) -> bool {
        self.are_named
    }

    /// Returns whether any response was successful.
    pub fn has_successes(&self) -> bool {
        self.successes() > 0.0
    }

    /// Returns the number of successful responses.
    fn successes(&self) -> f64 {
        self.statuses.values().map(|count| *count as f64).sum()
    }

    /// Returns the responses without statuses that occurred at most [`SINGULAR_MAX`] times, unless there are no others.
    fn usual(&self) -> Self {
        let statuses = self.statuses.iter().filter(|(_, count)| **count > SINGULAR_MAX);
        let usual = Self { statuses: statuses.map(|(status, count)| (*status, *count)).collect(), ..self.clone() };
        if usual.has_successes() { usual } else { self.clone() }
    }

    /// Returns the share of a status among the successful responses, 0 to 1.
    fn share(&self, status: u16) -> f64 {
        self.statuses.get(&status).map_or(0.0, |count| *count as f64 / self.successes())
    }

    /// Returns the shares of the most frequent successful statuses as text: `80.0 % status 302, 20.0 % status 200`.
    pub fn shares(&self) -> String {
        let mut statuses: Vec<(u16, u64)> = self.statuses.iter().map(|(status, count)| (*status, *count)).collect();
        statuses.sort_by_key(|(_, count)| Reverse(*count));
        let shares = statuses.iter().take(LISTED_MAX);
        let shares = shares.map(|(status, _)| format!("{:.1} % status {status}", 100.0 * self.share(*status)));
        let mut shares: Vec<String> = shares.collect();
        shares.extend((statuses.len() > LISTED_MAX).then(|| "others".to_owned()));
        shares.join(", ")
    }
}

/// Returns why two sides are not compared if the shares of their statuses differ, as the end of a sentence: `the statuses
/// of the responses differ (A: 100.0 % status 200; B: 100.0 % status 302)`. Each side is its name and its responses.
/// Returns `None` if the user named the expected statuses, or if a side has no successful response.
pub fn answered_differently(one: (&str, &Responses), other: (&str, &Responses)) -> Option<String> {
    if one.1.are_named && other.1.are_named || !one.1.has_successes() || !other.1.has_successes() {
        return None;
    }
    let (mine, theirs) = (one.1.usual(), other.1.usual());
    let vary = mine.are_mixed || theirs.are_mixed || mine.statuses.len() > 1;
    let (ones, others) = (mine.successes(), theirs.successes());
    let differs = |status: &u16| {
        let (mine, theirs) = (mine.share(*status), theirs.share(*status));
        let pooled = (mine * ones + theirs * others) / (ones + others);
        let error = (pooled * (1.0 - pooled) * (1.0 / ones + 1.0 / others)).sqrt();
        let chance = if vary { STANDARD_ERRORS_MIN * error } else { 0.0 };
        (mine - theirs).abs() > FAILED_SHARE_DIFFERENCE_MAX.max(chance)
    };
    mine.statuses.keys().chain(theirs.statuses.keys()).any(differs).then(|| {
        format!(
            "the statuses of the responses differ ({}: {}; {}: {}); if that is intended, name each of them with --expect-status",
            one.0,
            one.1.shares(),
            other.0,
            other.1.shares()
        )
    })
}

/// Returns a sentence if the mean sizes of the responses differ by more than a tenth: `B's responses are smaller: 0 B on
/// average, A's 19.5 KiB`. Each side is its name and its responses.
pub fn sized_differently(one: (&str, &Responses), other: (&str, &Responses)) -> Option<String> {
    if one.1.count == 0 || other.1.count == 0 {
        return None;
    }
    let mean = |side: &Responses| side.body_bytes as f64 / side.count as f64;
    different_means((one.0, mean(one.1)), (other.0, mean(other.1)))
}

/// Returns such a sentence on the successful responses of two levels of a run, if the sizes differ by more than chance
/// allows. Each level is its name and the sizes of the bodies in bytes.
pub fn levels_sized_differently(one: (&str, &Moments), other: (&str, &Moments)) -> Option<String> {
    let (mine, theirs) = (one.1.mean()?, other.1.mean()?);
    let squared_error = |sizes: &Moments| sizes.deviation_sample().unwrap_or(0.0).powi(2) / sizes.count as f64;
    let chance = STANDARD_ERRORS_MIN * (squared_error(one.1) + squared_error(other.1)).sqrt();
    different_means((one.0, mine), (other.0, theirs)).filter(|_| (mine - theirs).abs() > chance)
}

/// Compares the mean sizes of two sides, in bytes.
fn different_means((one, mine): (&str, f64), (other, theirs): (&str, f64)) -> Option<String> {
    let how = if theirs < mine { "smaller" } else { "larger" };
    ((mine - theirs).abs() > SIZE_DIFFERENCE_MAX * mine.max(theirs)).then(|| {
        let (mine, theirs) = (show::bytes(mine.round()), show::bytes(theirs.round()));
        format!("{other}'s responses are {how}: {theirs} on average, {one}'s {mine}")
    })
}

#[cfg(test)]
mod tests {
    use super::{Responses, answered_differently, levels_sized_differently, sized_differently};
    use crate::record::Moments;

    fn responses(statuses: &[(u16, u64)], mean_bytes: u64) -> Responses {
        let count = statuses.iter().map(|(_, count)| count).sum::<u64>();
        let statuses = statuses.iter().copied().collect();
        Responses { statuses, count, body_bytes: count * mean_bytes, ..Responses::default() }
    }

    #[test]
    fn other_statuses_are_no_comparison() {
        let differ = |a: &Responses, b: &Responses| answered_differently(("A", a), ("B", b));
        let (pages, redirects) = (responses(&[(200, 1_000)], 0), responses(&[(302, 400)], 0));
        let why = "the statuses of the responses differ (A: 100.0 % status 200; B: 100.0 % status 302); if that is \
                   intended, name each of them with --expect-status";
        assert_eq!(differ(&pages, &redirects).as_deref(), Some(why));
        let mixed = responses(&[(200, 200), (302, 800)], 0);
        let text = differ(&pages, &mixed).unwrap();
        assert!(text.contains("(A: 100.0 % status 200; B: 80.0 % status 302, 20.0 % status 200)"), "{text}");
        assert_eq!(differ(&pages, &pages), None);
        let of_both = redirects.clone().and(&pages);
        assert!(differ(&of_both, &pages).is_some());
        // The shares of random requests vary by chance.
        let drawn = |redirects| responses(&[(200, 1_000 - redirects), (301, redirects)], 0);
        assert_eq!(differ(&drawn(100), &drawn(115)), None);
        assert!(differ(&drawn(100), &drawn(200)).is_some());
        // A PUT that creates the resource, and a rare redirect among few responses.
        assert_eq!(differ(&responses(&[(201, 1), (204, 199)], 0), &responses(&[(204, 20_000)], 0)), None);
        assert_eq!(differ(&responses(&[(200, 9), (301, 1)], 0), &responses(&[(200, 9_991), (301, 9)], 0)), None);
        // One in a thousand is the limit of failures too.
        let few = |count| responses(&[(200, 1_000_000 - count), (204, count)], 0);
        assert_eq!(differ(&few(0), &few(990)), None);
        assert!(differ(&few(0), &few(1_100)).is_some());
        let named = |side: &Responses| Responses { are_named: true, ..side.clone() };
        assert_eq!(differ(&named(&pages), &named(&redirects)), None);
        assert!(differ(&pages, &named(&redirects)).is_some());
        assert_eq!(differ(&pages, &Responses::default()), None, "failures are judged by their share");
    }

    #[test]
    fn at_most_three_statuses_are_listed() {
        let many = responses(&[(200, 1), (201, 2), (202, 3), (203, 4)], 0);
        assert_eq!(many.shares(), "40.0 % status 203, 30.0 % status 202, 20.0 % status 201, others");
    }

    #[test]
    fn other_sizes_of_a_level_are_mentioned_if_they_are_not_by_chance() {
        let of = |sizes: &[u64], times: u64| {
            let mut moments = Moments::default();
            (0..times).for_each(|_| sizes.iter().for_each(|size| moments.record(*size)));
            moments
        };
        let differ = |one: &Moments, other: &Moments| levels_sized_differently(("level 1", one), ("level 3", other));
        let pages = of(&[100], 200);
        let text = differ(&pages, &of(&[4], 200)).unwrap();
        assert_eq!(text, "level 3's responses are smaller: 4 B on average, level 1's 100 B");
        assert!(differ(&pages, &of(&[100, 4], 100)).is_some());
        assert_eq!(differ(&pages, &of(&[91], 200)), None);
        // Sizes that vary with the URLs.
        let of_urls = |times| of(&[1, 10, 100, 1_000, 10_000], times);
        assert_eq!(differ(&of_urls(10), &of(&[1, 10, 100, 1_000], 12)), None);
        assert!(differ(&of_urls(1_000), &of(&[1, 10, 100, 1_000], 1_200)).is_some());
        assert_eq!(differ(&pages, &Moments::default()), None);
    }

    #[test]
    fn other_sizes_are_mentioned() {
        let of = |mean_bytes| responses(&[(200, 10)], mean_bytes);
        let sized_differently = |a: &Responses, b: &Responses| sized_differently(("A", a), ("B", b));
        assert_eq!(sized_differently(&of(1_000), &of(901)), None);
        let text = sized_differently(&of(20_000), &of(0)).unwrap();
        assert_eq!(text, "B's responses are smaller: 0 B on average, A's 19.5 KiB");
        assert!(sized_differently(&of(0), &of(1)).unwrap().starts_with("B's responses are larger: 1 B"));
        assert_eq!(sized_differently(&of(0), &of(0)), None);
        assert_eq!(sized_differently(&of(0), &Responses::default()), None);
    }
}
