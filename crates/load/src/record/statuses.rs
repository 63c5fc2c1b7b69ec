//! Numbers of responses by status.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// The lowest status. A final response with a status of 1xx can only be a 101.
const STATUS_MIN: u16 = 100;

/// Number of counters: one for each status to 999.
const COUNT: usize = 900;

/// Number of complete responses by status, 100 to 999. In JSON it is an object with those that occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Box<[u64; COUNT]>);

impl Default for Statuses {
    fn default() -> Self {
        Self(Box::new([0; COUNT]))
    }
}

impl Statuses {
    /// Adds responses with this status. Ignores a status outside the range, which no parser accepts.
    pub(super) fn add(&mut self, status: u16, count: u64) {
        if let Some(counter) = self.0.get_mut(usize::from(status.wrapping_sub(STATUS_MIN))) {
            *counter += count;
        }
    }

    /// Returns the statuses that occurred with their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u64)> {
        (STATUS_MIN..).zip(self.0.iter().copied()).filter(|(_, count)| *count > 0)
    }

    /// Adds the counts of another record.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(status, count)| self.add(status, count));
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut statuses = Self::default();
        for (status, count) in BTreeMap::<u16, u64>::deserialize(deserializer)? {
            if !(STATUS_MIN..STATUS_MIN + COUNT as u16).contains(&status) {
                return Err(D::Error::custom(format!("{status} is not a status of a response")));
            }
            statuses.add(status, count);
        }
        Ok(statuses)
    }
}

#[cfg(test)]
mod tests {
    use super::Statuses;

    #[test]
    fn statuses_are_counted_and_stored() {
        let mut statuses = Statuses::default();
        for (status, count) in [(600, 1), (200, 2), (404, 3), (101, 4), (99, 9), (1000, 9), (0, 9)] {
            statuses.add(status, count);
        }
        statuses.merge(&statuses.clone());
        assert_eq!(statuses.iter().collect::<Vec<_>>(), [(101, 8), (200, 4), (404, 6), (600, 2)]);
        let json = serde_json::to_string(&statuses).unwrap();
        assert_eq!(json, r#"{"101":8,"200":4,"404":6,"600":2}"#);
        assert_eq!(serde_json::from_str::<Statuses>(&json).unwrap(), statuses);
        assert!(serde_json::from_str::<Statuses>(r#"{"1000":1}"#).is_err());
    }
}
