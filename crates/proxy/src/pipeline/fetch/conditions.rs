//! Additions of a fetch to the client's request.

use crate::parts::PartSet;
use flatout_cache::validate::Conditions;
use flatout_http::ranges::ByteRange;
use std::rc::Rc;

/// Conditions and Range added to an upstream request.
#[derive(Clone)]
pub(crate) struct FetchConditions {
    /// Condition lines to add, which validate the stored response or parts.
    pub(super) conditions: Option<Conditions>,
    /// The parts to validate, if there are several.
    pub(super) set: Option<Rc<PartSet>>,
    /// The missing range to fetch, regardless of the client's Range.
    pub(super) stretch: Option<ByteRange>,
    /// True to send the client's Range along with the conditions. If the response has changed, only that range is
    /// needed.
    pub(super) keeps_range: bool,
}

impl FetchConditions {
    /// No additions to the client's request.
    pub(crate) const NONE: Self = Self { conditions: None, set: None, stretch: None, keeps_range: false };

    /// Creates the conditions that validate a stored response.
    pub(crate) fn validation(conditions: Conditions, set: Option<Rc<PartSet>>, keeps_range: bool) -> Self {
        Self { conditions: Some(conditions), set, stretch: None, keeps_range }
    }

    /// Creates the conditions that fetch the range `missing` of `set`.
    pub(crate) fn stretch(set: &Rc<PartSet>, missing: ByteRange, conditions: Conditions) -> Self {
        let conditions = Some(conditions).filter(|conditions| !conditions.0.is_empty());
        Self { conditions, set: Some(Rc::clone(set)), stretch: Some(missing), keeps_range: false }
    }

    /// Returns whether the client's request is sent without additions.
    pub(crate) const fn is_none(&self) -> bool {
        self.conditions.is_none() && self.stretch.is_none()
    }

    /// Returns the missing range to fetch, if there is one.
    pub(crate) const fn missing(&self) -> Option<ByteRange> {
        self.stretch
    }
}
