//! A folder of numbered changes, each applied once.
