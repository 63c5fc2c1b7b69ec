//! Sweeps: `100..1100:100`, `1..512:x2`, or a single number.

use super::PlanError;
use super::quantity::parse_number;
use serde::{Deserialize, Serialize};

/// Maximum number of levels in a sweep; the record of each level is stored until the end.
pub const LEVELS_MAX: usize = 200;

/// Step from one level to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stride {
    /// Add this number.
    Add(f64),
    /// Multiply by this number.
    Times(f64),
}

/// Levels from one number to another. The last number is included if the stride reaches it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// First level.
    pub from: f64,
    /// Largest value a level can have.
    pub to: f64,
    /// Step from one level to the next.
    pub stride: Stride,
}

impl Sweep {
    /// Creates a sweep with a single level.
    pub const fn single(value: f64) -> Self {
        Self { from: value, to: value, stride: Stride::Add(1.0) }
    }

    /// Parses `N`, `A..B:STEP` or `A..B:xK`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        Self::read(text).map_err(|what| PlanError::Meaningless(format!("{text:?}: {what}")))
    }

    fn read(text: &str) -> Result<Self, String> {
        let Some((from, rest)) = text.split_once("..") else {
            let value = parse_number(text)?;
            return if value > 0.0 { Ok(Self::single(value)) } else { Err("use more than 0".to_owned()) };
        };
        let Some((to, stride)) = rest.split_once(':') else {
            return Err("specify the step between the ends: A..B:STEP or A..B:xK".to_owned());
        };
        let stride = match stride.strip_prefix(['x', '×']) {
            Some(factor) => Stride::Times(parse_number(factor)?),
            None => Stride::Add(parse_number(stride)?),
        };
        let sweep = Self { from: parse_number(from)?, to: parse_number(to)?, stride };
        if sweep.from <= 0.0 {
            return Err("a sweep must begin above 0".to_owned());
        }
        if sweep.to < sweep.from {
            return Err("a sweep must end above its beginning".to_owned());
        }
        match stride {
            Stride::Add(step) if step <= 0.0 => return Err("the step must be above 0".to_owned()),
            Stride::Times(factor) if factor <= 1.0 => return Err("the factor must be above 1".to_owned()),
            Stride::Add(_) | Stride::Times(_) => {}
        }
        if sweep.iter().nth(LEVELS_MAX).is_some() {
            return Err(format!("that is more than {LEVELS_MAX} levels"));
        }
        Ok(sweep)
    }

    /// Returns the levels in order, between one and [`LEVELS_MAX`] of them.
    pub fn levels(&self) -> Vec<f64> {
        self.iter().take(LEVELS_MAX).collect()
    }

    fn iter(&self) -> impl Iterator<Item = f64> {
        let sweep = *self;
        // Tolerate rounding errors: 0.1..0.3:0.1 has three levels.
        let end = sweep.to * (1.0 + 1e-9);
        (0..=LEVELS_MAX as u32)
            .map(move |index| match sweep.stride {
                Stride::Add(step) => sweep.from + f64::from(index) * step,
                Stride::Times(factor) => sweep.from * factor.powi(index.cast_signed()),
            })
            .take_while(move |level| *level <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::{LEVELS_MAX, Sweep};

    fn levels(text: &str) -> Vec<f64> {
        Sweep::parse(text).unwrap().levels()
    }

    #[test]
    fn sweeps_add_or_multiply_and_include_their_ends() {
        assert_eq!(levels("100..1100:100").len(), 11);
        assert_eq!(levels("100..1100:100").last(), Some(&1100.0));
        assert_eq!(levels("1..512:x2"), vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0]);
        assert_eq!(levels("1..500:x2").last(), Some(&256.0));
        assert_eq!(levels("0.1..0.3:0.1").len(), 3);
        assert_eq!(levels("7"), vec![7.0]);
        assert_eq!(levels("5..5:1"), vec![5.0]);
        assert_eq!(levels("1k..3k:1k"), vec![1000.0, 2000.0, 3000.0]);
    }

    #[test]
    fn what_is_no_sweep_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "number"),
            ("0", "more than 0"),
            ("10..20", "between the ends"),
            ("20..10:1", "end above its beginning"),
            ("0..10:1", "above 0"),
            ("1..10:0", "step"),
            ("1..10:x1", "factor"),
            ("1..1000:1", "more than 200"),
            ("1..10:-1", "number"),
            ("a..b:c", "number"),
            ("1..2:1ms", "plain"),
        ] {
            let error = Sweep::parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!(levels(&format!("1..{LEVELS_MAX}:1")).len(), LEVELS_MAX);
    }
}
