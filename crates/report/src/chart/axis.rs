//! Axes: the positions of values, and the tick labels.

/// The kind of quantity on an axis, which determines the tick labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A rate per second.
    PerSecond,
    /// Nanoseconds, shown in a suitable unit.
    Nanoseconds,
    /// Whole seconds since the start.
    Seconds,
    /// A number of items.
    Count,
    /// A part of 1, as a percentage.
    Share,
}

/// How values are laid out along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
    /// Quantiles, placed by their distance from 1: 0.9, 0.99 and 0.999 are equally far apart.
    Tail,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    title: String,
    quantity: Quantity,
    scale: Scale,
    /// Ends of the scale, in the measure of the scale, which is logarithmic for two of the three scales.
    ends: (f64, f64),
    ticks: Vec<(f64, String)>,
}

/// Approximate number of ticks: as many as fit on a phone.
const TICKS: f64 = 5.0;

/// Maximum number of decades on a logarithmic axis. Lower values are drawn at the lower end.
const DECADES_MAX: f64 = 7.0;

impl Axis {
    /// Creates a linear axis from zero to a round number above the largest of `values`.
    pub fn linear(what: &str, quantity: Quantity, values: impl Iterator<Item = f64>) -> Self {
        let max = values.filter(|value| value.is_finite()).fold(0.0_f64, f64::max);
        let max = if max > 0.0 { max } else { 1.0 };
        let (divisor, unit) = unit_of(quantity, max);
        let step = round_step(max / divisor / TICKS);
        let steps = (max / divisor / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as u64)
            .map(|index| {
                let shown = index as f64 * step;
                (shown * divisor, plain(shown, step))
            })
            .collect();
        let title = if unit.is_empty() { what.to_owned() } else { format!("{what} ({unit})") };
        Self { title, quantity, scale: Scale::Linear, ends: (0.0, steps * step * divisor), ticks }
    }

    /// Creates a logarithmic axis from a round number below the smallest of `values` to a round number above the
    /// largest. Values that are not above zero are drawn at the lower end.
    pub fn log(what: &str, quantity: Quantity, values: impl Iterator<Item = f64>) -> Self {
        let fold = |ends: (f64, f64), value: f64| (ends.0.min(value), ends.1.max(value));
        let (min, max) = values.filter(|value| value.is_finite() && *value > 0.0).fold((f64::INFINITY, 0.0), fold);
        let (min, max) = if min <= max { (min, max) } else { (1.0, 10.0) };
        let (low, high) = (below(min), above(max));
        let low = if high / low < 9.9 { low.min(high / 10.0) } else { low };
        let low = low.max(high / 10_f64.powf(DECADES_MAX));
        let ends = (low.log10(), high.log10());
        let ticks = log_ticks(ends).into_iter().map(|value| (value, written(quantity, value))).collect();
        let unit = if quantity == Quantity::PerSecond { "1/s, log scale" } else { "log scale" };
        Self { title: format!("{what} ({unit})"), quantity, scale: Scale::Log, ends, ticks }
    }

    /// Creates an axis of quantiles from 0 to 1 - 1/`count`, because `count` values cannot show higher quantiles.
    pub fn tail(what: &str, count: u64) -> Self {
        let nines = (count.max(10) as f64).log10().clamp(1.0, DECADES_MAX);
        let mut ticks = vec![(0.0, "0".to_owned()), (0.5, "50".to_owned()), (0.9, "90".to_owned())];
        for digits in 2..=nines.floor() as u16 {
            let value = 1.0 - 10_f64.powi(-i32::from(digits));
            ticks.push((value, format!("{:.*}", usize::from(digits) - 2, 100.0 * value)));
        }
        let title = format!("{what} (%, log scale of the share above)");
        Self { title, quantity: Quantity::Share, scale: Scale::Tail, ends: (0.0, nines), ticks }
    }

    /// Creates an axis of seconds from 0 to the end of a run.
    pub fn time(end_s: f64) -> Self {
        let mut axis = Self::linear("time since the start", Quantity::Seconds, [end_s].into_iter());
        // The axis ends with the run, not at the next round number.
        axis.ends.1 = end_s.max(1.0);
        let end = axis.ends.1;
        axis.ticks.retain(|(value, _)| *value <= end);
        axis
    }

    /// Returns the title: the quantity that the axis shows, with its unit.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the position of a value along the axis, from 0 to 1. Values beyond the ends are clamped. Returns `None`
    /// for NaN.
    pub fn place(&self, value: f64) -> Option<f64> {
        if value.is_nan() {
            return None;
        }
        let measured = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Tail => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        };
        Some(((measured - self.ends.0) / (self.ends.1 - self.ends.0)).clamp(0.0, 1.0))
    }

    /// Returns the positions and labels of the ticks.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, &str)> {
        self.ticks.iter().filter_map(|(value, text)| Some((self.place(*value)?, text.as_str())))
    }

    /// Returns a value as text with its unit, for a marker.
    pub fn words(&self, value: f64) -> String {
        written(self.quantity, value)
    }
}

/// Returns divisor and name of the unit in which a linear axis up to `max` is labelled.
fn unit_of(quantity: Quantity, max: f64) -> (f64, &'static str) {
    match quantity {
        Quantity::Nanoseconds if max < 1e3 => (1.0, "ns"),
        Quantity::Nanoseconds if max < 1e6 => (1e3, "µs"),
        Quantity::Nanoseconds if max < 1e9 => (1e6, "ms"),
        Quantity::Nanoseconds => (1e9, "s"),
        Quantity::PerSecond => (1.0, "1/s"),
        Quantity::Seconds => (1.0, "s"),
        Quantity::Share => (0.01, "%"),
        Quantity::Count => (1.0, ""),
    }
}

/// Returns the smallest number that is not below `rough` and is 1, 2 or 5 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let leading = [1.0, 2.0, 5.0, 10.0].into_iter().find(|leading| leading * power >= rough * 0.999_999);
    leading.unwrap_or(10.0) * power
}

const LEADING: [f64; 3] = [1.0, 2.0, 5.0];

fn below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    LEADING.into_iter().rev().map(|leading| leading * power).find(|round| *round <= value * 1.000_001).unwrap_or(power)
}

fn above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let rounds = LEADING.into_iter().chain([10.0]).map(|leading| leading * power);
    rounds.into_iter().find(|round| *round >= value * 0.999_999).unwrap_or(10.0 * power)
}

/// Returns the ticks of a logarithmic axis: powers of ten and, if there are few of them, their multiples by 2 and 5.
fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let leading: &[f64] = if high - low <= 2.01 { &LEADING } else { &[1.0] };
    let mut ticks = Vec::new();
    for decade in low.floor() as i32..=high.ceil() as i32 {
        for leading in leading {
            let value = leading * 10_f64.powi(decade);
            if (low - 1e-9..=high + 1e-9).contains(&value.log10()) {
                ticks.push(value);
            }
        }
    }
    ticks
}

/// Formats a number on a linear axis with as many decimals as the step between ticks needs.
fn plain(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if decimals > 0 { format!("{value:.decimals$}") } else { flatout_units::show::count(value.round() as u64) }
}

/// Formats a value with its unit and without redundant digits: `200 µs`, `1 ms`, `2,000`.
fn written(quantity: Quantity, value: f64) -> String {
    let (divisor, unit) = match quantity {
        Quantity::Nanoseconds => unit_of(quantity, value * 1.000_001),
        Quantity::Share => (0.01, "%"),
        Quantity::PerSecond => (1.0, "1/s"),
        Quantity::Seconds => (1.0, "s"),
        Quantity::Count => (1.0, ""),
    };
    let shown = value / divisor;
    let text = if shown >= 999.5 { flatout_units::show::count(shown.round() as u64) } else { three_digits(shown) };
    format!("{text} {unit}").trim_end().to_owned()
}

fn three_digits(value: f64) -> String {
    let decimals = if value >= 99.95 { 0 } else { 2 - usize::from(value >= 9.995) };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
