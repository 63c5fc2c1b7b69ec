//! Time series in bounded memory: when the number of points reaches the limit, the step increases.

use super::Sample;
use serde::{Deserialize, Serialize};

/// Maximum number of points in a series: ten minutes at one second, fifty minutes at five seconds, and so on.
pub const POINTS_MAX: usize = 600;

/// Possible steps, in seconds. Each divides the next, so whole points can be merged.
pub const STEPS_S: [u64; 8] = [1, 5, 10, 60, 300, 3_600, 21_600, 86_400];

/// Number of response-time classes per point: eight per doubling, from 1 µs to about an hour. They are the rows of the
/// heat map, and give percentiles of a point to within about 9 %.
pub const HEAT_CLASSES: usize = 256;

/// Binary logarithm of the lower bound of the first class in nanoseconds: about a microsecond.
const HEAT_BITS_MIN: u32 = 10;

/// Binary logarithm of the upper bound of the last class in nanoseconds: 73 minutes.
const HEAT_BITS_MAX: u32 = 42;

/// Values of one interval, which is one second or a longer step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Requests started.
    pub begun: u64,
    /// Complete responses.
    pub responses: u64,
    /// Failed requests.
    pub failures: u64,
    /// Responses with an unexpected status.
    pub errors: u64,
    /// Connections established.
    pub connections: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Sum of response times of successful responses, in nanoseconds.
    pub response_sum_ns: u64,
    /// Longest response time of a successful response, in nanoseconds.
    pub response_max_ns: u64,
    /// Sum of service times of successful responses, in nanoseconds.
    pub service_sum_ns: u64,
    /// Longest lag, in nanoseconds.
    pub lag_max_ns: u64,
    /// Number of responses by response-time class: pairs of a class ([`heat_class`]) and a count above 0, in order of
    /// class.
    pub heat: Vec<(u16, u32)>,
    /// The same for responses with an unexpected status, which `heat` includes. Empty in documents of versions that did not
    /// record it.
    #[serde(default)]
    pub error_heat: Vec<(u16, u32)>,
}

impl Point {
    /// Returns the number of successful responses.
    pub fn successes(&self) -> u64 {
        self.responses.saturating_sub(self.errors)
    }

    /// Returns the mean service time of the point's successful responses in nanoseconds; `None` without any.
    pub fn service_mean_ns(&self) -> Option<f64> {
        (self.successes() > 0).then(|| self.service_sum_ns as f64 / self.successes() as f64)
    }

    /// Returns the mean response time of the point's successful responses in nanoseconds; `None` without any.
    pub fn response_mean_ns(&self) -> Option<f64> {
        (self.successes() > 0).then(|| self.response_sum_ns as f64 / self.successes() as f64)
    }

    /// Returns the number of successful responses by response-time class: pairs as in `heat`, some with a count of 0.
    pub fn success_heat(&self) -> impl Iterator<Item = (u16, u32)> {
        self.heat.iter().map(|(class, count)| {
            let errors = self.error_heat.iter().find(|(other, _)| other == class).map_or(0, |(_, errors)| *errors);
            (*class, count.saturating_sub(errors))
        })
    }

    /// Returns the quantile `share` (0 to 1) of the point's response times in nanoseconds, to within about 9 %.
    #[cfg(test)]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let total: u64 = self.heat.iter().map(|(_, count)| u64::from(*count)).sum();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let class = self.heat.iter().find(|(_, count)| {
            seen += u64::from(*count);
            seen >= wanted
        });
        let (class, _) = class?;
        Some(heat_floor_ns(class + 1).min(self.response_max_ns))
    }
}

/// A point during recording, with space for all classes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tile {
    /// All values except the counts by response-time class.
    point: Point,
    heat: [u32; HEAT_CLASSES],
    error_heat: [u32; HEAT_CLASSES],
}

impl Tile {
    fn new() -> Self {
        Self { point: Point::default(), heat: [0; HEAT_CLASSES], error_heat: [0; HEAT_CLASSES] }
    }

    fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.point, &other.point);
        mine.begun += theirs.begun;
        mine.responses += theirs.responses;
        mine.failures += theirs.failures;
        mine.errors += theirs.errors;
        mine.connections += theirs.connections;
        mine.bytes_in += theirs.bytes_in;
        mine.bytes_out += theirs.bytes_out;
        mine.response_sum_ns = mine.response_sum_ns.saturating_add(theirs.response_sum_ns);
        mine.response_max_ns = mine.response_max_ns.max(theirs.response_max_ns);
        mine.service_sum_ns = mine.service_sum_ns.saturating_add(theirs.service_sum_ns);
        mine.lag_max_ns = mine.lag_max_ns.max(theirs.lag_max_ns);
        for (mine, theirs) in [(&mut self.heat, other.heat), (&mut self.error_heat, other.error_heat)] {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine = mine.saturating_add(theirs);
            }
        }
    }

    fn to_point(&self) -> Point {
        Point { heat: nonzero(&self.heat), error_heat: nonzero(&self.error_heat), ..self.point.clone() }
    }
}

/// Returns pairs of a class and a count above 0, in order of class.
fn nonzero(heat: &[u32; HEAT_CLASSES]) -> Vec<(u16, u32)> {
    let counts = heat.iter().enumerate().filter(|(_, count)| **count > 0);
    counts.map(|(class, count)| (class as u16, *count)).collect()
}

/// Returns the counts of all classes from such pairs.
fn every_class(counts: &[(u16, u32)]) -> Result<[u32; HEAT_CLASSES], String> {
    let mut heat = [0; HEAT_CLASSES];
    for (class, count) in counts {
        *heat.get_mut(usize::from(*class)).ok_or_else(|| format!("there is no heat-map class {class}"))? = *count;
    }
    Ok(heat)
}

/// A time series. In JSON, it is an object with start, step and points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Series {
    /// Start of the series, in nanoseconds on the run's clock.
    pub start_ns: u64,
    /// Length of each point in seconds, one of [`STEPS_S`].
    pub step_s: u64,
    tiles: Vec<Tile>,
}

/// Serialised form of the series.
#[derive(Serialize, Deserialize)]
struct Document {
    start_ns: u64,
    step_s: u64,
    points: Vec<Point>,
}

impl From<Series> for Document {
    fn from(series: Series) -> Self {
        Self { start_ns: series.start_ns, step_s: series.step_s, points: series.points() }
    }
}

impl TryFrom<Document> for Series {
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let Document { start_ns, step_s, points } = document;
        if !STEPS_S.contains(&step_s) {
            return Err(format!("a series cannot have steps of {step_s} s"));
        }
        if points.len() > POINTS_MAX {
            return Err(format!("a series may have at most {POINTS_MAX} points, not {}", points.len()));
        }
        let mut tiles = Vec::with_capacity(points.len());
        for mut point in points {
            let heat = every_class(&std::mem::take(&mut point.heat))?;
            let error_heat = every_class(&std::mem::take(&mut point.error_heat))?;
            tiles.push(Tile { point, heat, error_heat });
        }
        Ok(Self { start_ns, step_s, tiles })
    }
}

impl Series {
    /// Creates an empty series with room for all its points.
    pub fn new(start_ns: u64) -> Self {
        Self { start_ns, step_s: STEPS_S[0], tiles: Vec::with_capacity(POINTS_MAX) }
    }

    /// Returns the points so far in chronological order. The last point may be incomplete.
    pub fn points(&self) -> Vec<Point> {
        self.tiles.iter().map(Tile::to_point).collect()
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.tiles.is_empty()
    }

    pub(super) fn record_begun(&mut self, requests: u32, now_ns: u64) {
        self.tile(now_ns).point.begun += u64::from(requests);
    }

    pub(super) fn record_connected(&mut self, now_ns: u64) {
        self.tile(now_ns).point.connections += 1;
    }

    pub(super) fn record(&mut self, sample: &Sample, is_success: bool) {
        let tile = self.tile(sample.ended_ns);
        let point = &mut tile.point;
        point.bytes_in += sample.head_bytes + sample.body_bytes;
        point.bytes_out += sample.sent_bytes;
        point.lag_max_ns = point.lag_max_ns.max(sample.lag_ns());
        match sample.result {
            Ok(_) => {
                let response_ns = sample.response_ns();
                point.responses += 1;
                let class = usize::from(heat_class(response_ns));
                tile.heat[class] = tile.heat[class].saturating_add(1);
                if is_success {
                    point.response_sum_ns = point.response_sum_ns.saturating_add(response_ns);
                    point.response_max_ns = point.response_max_ns.max(response_ns);
                    point.service_sum_ns = point.service_sum_ns.saturating_add(sample.service_ns());
                } else {
                    point.errors += 1;
                    tile.error_heat[class] = tile.error_heat[class].saturating_add(1);
                }
            }
            Err(_) => point.failures += 1,
        }
    }

    /// Returns the point for a time, and increases the step until the time fits.
    fn tile(&mut self, now_ns: u64) -> &mut Tile {
        let since_s = now_ns.saturating_sub(self.start_ns) / 1_000_000_000;
        let mut index = since_s / self.step_s;
        while index >= POINTS_MAX as u64 && self.coarsen() {
            index = since_s / self.step_s;
        }
        // Beyond the longest step, which covers a year and a half, the last point counts everything.
        let index = index.min(POINTS_MAX as u64 - 1) as usize;
        while self.tiles.len() <= index {
            self.tiles.push(Tile::new());
        }
        &mut self.tiles[index]
    }

    /// Merges adjacent points to the next longer step. Returns false if the step is already the longest.
    fn coarsen(&mut self) -> bool {
        let Some(step_s) = STEPS_S.into_iter().find(|step_s| *step_s > self.step_s) else { return false };
        let group = (step_s / self.step_s) as usize;
        for index in 0..self.tiles.len() {
            if index % group == 0 {
                self.tiles.swap(index / group, index);
            } else {
                let (merged, rest) = self.tiles.split_at_mut(index);
                merged[index / group].merge(&rest[0]);
            }
        }
        self.tiles.truncate(self.tiles.len().div_ceil(group));
        self.step_s = step_s;
        true
    }

    /// Merges the series of another thread or agent. Times are relative to the start of each series.
    pub(super) fn merge(&mut self, other: &Self) {
        self.add(other, 0);
    }

    /// Appends a later series after this one's last point.
    pub(super) fn append(&mut self, other: &Self) {
        let other_s = other.tiles.len() as u64 * other.step_s;
        while (self.tiles.len() as u64 * self.step_s + other_s).div_ceil(self.step_s) > POINTS_MAX as u64
            && self.coarsen()
        {}
        self.add(other, self.tiles.len());
    }

    /// Adds the points of another series to this series, beginning at point `first`. Both are first brought to the
    /// larger step.
    fn add(&mut self, other: &Self, first: usize) {
        let mut other = std::borrow::Cow::Borrowed(other);
        let mut first = first;
        while self.step_s < other.step_s && self.coarsen() {
            first = first.min(self.tiles.len());
        }
        while other.step_s < self.step_s && other.to_mut().coarsen() {}
        for (index, tile) in other.tiles.iter().enumerate() {
            let index = (first + index).min(POINTS_MAX - 1);
            match self.tiles.get_mut(index) {
                Some(mine) => mine.merge(tile),
                None => self.tiles.push(tile.clone()),
            }
        }
    }

    /// Returns the successful responses per second in each whole interval of `interval_s` seconds, like httperf's samples
    /// of the reply rate every five seconds. Excludes intervals that begin before `from_ns` or end after `to_ns`. Also returns
    /// the interval used, which is longer than requested if the series has a longer step.
    pub fn reply_rates(&self, interval_s: u64, from_ns: u64, to_ns: u64) -> (u64, Vec<f64>) {
        // Steps divide one another, so round the interval up to a multiple.
        let interval_s = interval_s.max(1).next_multiple_of(self.step_s);
        let group = (interval_s / self.step_s) as usize;
        let is_within = |index: usize| {
            let begins_ns = self.start_ns.saturating_add(index as u64 * interval_s * 1_000_000_000);
            begins_ns >= from_ns && begins_ns.saturating_add(interval_s * 1_000_000_000) <= to_ns
        };
        let rate =
            |tiles: &[Tile]| tiles.iter().map(|tile| tile.point.successes()).sum::<u64>() as f64 / interval_s as f64;
        let samples = self.tiles.chunks(group).enumerate().filter(|(index, _)| is_within(*index));
        (interval_s, samples.map(|(_, tiles)| rate(tiles)).collect())
    }
}

/// Returns the class of a response time, below [`HEAT_CLASSES`].
pub fn heat_class(value_ns: u64) -> u16 {
    let value_ns = value_ns.clamp(1 << HEAT_BITS_MIN, (1 << HEAT_BITS_MAX) - 1);
    let bits = value_ns.ilog2();
    let eighth = (value_ns >> (bits - 3)) & 7;
    ((bits - HEAT_BITS_MIN) * 8) as u16 + eighth as u16
}

/// Returns the lower bound of a class in nanoseconds. For the class after the last, returns the end of the range.
pub fn heat_floor_ns(class: u16) -> u64 {
    let class = u64::from(class).min(HEAT_CLASSES as u64);
    (8 + class % 8) << (class / 8 + u64::from(HEAT_BITS_MIN) - 3)
}

#[cfg(test)]
mod tests;
