//! Verification of response bodies.

use super::failure::RequestFailure;
use super::table::{DIGEST_BYTES, PreparedRequest};
use aws_lc_rs::digest::{Context, SHA256};
use std::cell::Cell;
use std::io::{self, Read};

/// The digest of a body that is being received.
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

/// Returns the SHA-256 of everything that the reader yields.
///
/// # Errors
/// Those of the reader.
pub fn sha256(mut source: impl Read) -> io::Result<[u8; DIGEST_BYTES]> {
    let mut digesting = Digesting::begin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(digesting.finish()),
            Ok(count) => digesting.take(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Selects the responses whose digests are computed: every nth response, beginning with the first.
#[derive(Debug)]
pub(super) struct Sampling {
    every: u32,
    until: Cell<u32>,
}

impl Sampling {
    pub(super) const fn new(every: u32) -> Self {
        Self { every, until: Cell::new(0) }
    }

    /// Returns a digest to compute for the next response, if that response is selected.
    pub(super) fn next(&self) -> Option<Digesting> {
        if self.every == 0 {
            return None;
        }
        let until = self.until.get();
        self.until.set(if until == 0 { self.every - 1 } else { until - 1 });
        (until == 0).then(Digesting::begin)
    }
}

/// Verifies a complete response. Only a response with status 200 must have the expected body.
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
    fn every_nth_response_is_verified() {
        let sampled = |every| {
            let sampling = Sampling::new(every);
            (0..6).map(|_| sampling.next().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(sampled(0), [false; 6]);
        assert_eq!(sampled(1), [true; 6]);
        assert_eq!(sampled(3), [true, false, false, true, false, false]);
    }

    #[test]
    fn known_lengths_and_digests_are_verified() {
        let mut request = PreparedRequest::plain(Vec::new());
        assert_eq!(check(&request, 200, 3, None), Ok(200));
        request.body_bytes = Some(3);
        assert_eq!(check(&request, 200, 4, None), Err(RequestFailure::WrongLength));
        assert_eq!(check(&request, 404, 4, None), Ok(404));
        // The digest of the first checked response becomes the expected digest.
        assert_eq!(check(&request, 200, 3, Some(digest(b"abc"))), Ok(200));
        assert_eq!(check(&request, 200, 3, Some(digest(b"abc"))), Ok(200));
        assert_eq!(check(&request, 200, 3, Some(digest(b"abd"))), Err(RequestFailure::WrongDigest));
        request.is_head = true;
        assert_eq!(check(&request, 200, 0, None), Ok(200));
    }
}
