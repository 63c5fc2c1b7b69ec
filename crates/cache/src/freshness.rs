//! How long an answer is fresh (RFC 9111 §4.2.1, §4.2.2).

/// Where a freshness lifetime comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LifetimeSource {
    /// A targeted field's `s-maxage` or `max-age` (RFC 9213).
    Targeted,
    /// `s-maxage`.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// Expires less Date.
    Expires,
    /// The owner's default.
    Default,
    /// A guess from Last-Modified.
    Heuristic,
    /// None of these: it is stale from the beginning.
    None,
    /// One of these is there and invalid: it is stale from the beginning (RFC 9111 §4.2.1).
    Invalid,
    /// The Age that it came with is invalid: it is taken for stale.
    AgeInvalid,
}
