//! stub
pub(super) const CLOSES: [&str; 0] = [];
