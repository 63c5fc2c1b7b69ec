//! The manual's examples.
