//! Verification of response bodies.

use super::failure::RequestFailure;
use super::table::{DIGEST_BYTES, PreparedRequest};
use aws_lc_rs::digest::{Context, SHA256};
use std::cell::Cell;

/// The digest of a partially received body.
pub(super) struct Digesting(Context);

impl std::fmt::Debug for Digesting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Digesting")
    }
}

impl Digesting {
    pub(super) fn begin() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> [u8; DIGEST_BYTES] {
        let mut digest = [0; DIGEST_BYTES];
        let finished = self.0.finish();
        for (to, from) in digest.iter_mut().zip(finished.as_ref()) {
            *to = *from;
        }
        digest
    }
}

/// SHA-256 of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digesting = Digesting::begin();
    digesting.take(bytes);
    digesting.finish()
}

/// Selects the responses whose digests are computed: every nth, beginning with the first.
#[derive(Debug)]
pub(super) struct Sampling {
    every: u32,
    until: Cell<u32>,
}

impl Sampling {
    pub(super) const fn new(every: u32) -> Self {
        Self { every, until: Cell::new(0) }
    }

    /// A digest for the next response, if it is selected.
    pub(super) fn next(&self) -> Option<Digesting> {
        if self.every == 0 {
            return None;
        }
        let until = self.until.get();
        self.until.set(if until == 0 { self.every - 1 } else { until - 1 });
        (until == 0).then(Digesting::begin)
    }
}

/// Verifies a complete response. Only a 200 has the body that was expected of its request.
pub(super) fn check(
    request: &PreparedRequest,
    status: u16,
    body_bytes: u64,
    digesting: Option<Digesting>,
) -> Result<u16, RequestFailure> {
    if status != 200 || request.is_head {
        return Ok(status);
    }
    if request.body_bytes.is_some_and(|expected| expected != body_bytes) {
        return Err(RequestFailure::WrongLength);
    }
    match digesting.map(Digesting::finish) {
        Some(digest) if *request.digest.get_or_init(|| digest) != digest => Err(RequestFailure::WrongDigest),
        _ => Ok(status),
    }
}

#[cfg(test)]
mod tests {
    use super::{Digesting, Sampling, check};
    use crate::{PreparedRequest, RequestFailure};

    fn digest(bytes: &[u8]) -> Digesting {
        let mut digesting = Digesting::begin();
        bytes.chunks(2).for_each(|piece| digesting.take(piece));
        digesting
    }

    #[test]
    fn one_answer_in_so_many_is_looked_at() {
        let sampled = |every| {
            let sampling = Sampling::new(every);
            (0..6).map(|_| sampling.next().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(sampled(0), [false; 6]);
        assert_eq!(sampled(1), [true; 6]);
        assert_eq!(sampled(3), [true, false, false, true, false, false]);
    }

    #[test]
    fn lengths_and_digests_must_be_right_where_they_are_known() {
        let mut request = PreparedRequest::plain(Vec::new());
        assert_eq!(check(&request, 200, 3, None), Ok(200));
        request.body_bytes = Some(3);
        assert_eq!(check(&request, 200, 4, None), Err(RequestFailure::WrongLength));
        assert_eq!(check(&request, 404, 4, None), Ok(404));
        // The first answer looked at says what the others must be.
        assert_eq!(check(&request, 200, 3, Some(digest(b"abc"))), Ok(200));
        assert_eq!(check(&request, 200, 3, Some(digest(b"abc"))), Ok(200));
        assert_eq!(check(&request, 200, 3, Some(digest(b"abd"))), Err(RequestFailure::WrongDigest));
        request.is_head = true;
        assert_eq!(check(&request, 200, 0, None), Ok(200));
    }
}
