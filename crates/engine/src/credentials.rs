//! Credentials of basic authentication (RFC 7617), and a cache of recently verified ones.
//!
//! The cache never contains a password, only a keyed hash (HMAC) of the name, password and configured hash together. If
//! a user's password is changed, cached entries no longer match.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use flatout_http::base64;
use flatout_os::random;
use std::io;
use std::rc::Rc;

/// HMAC of credentials.
pub(crate) type Proof = [u8; 32];

/// Lifetime of verified credentials in the cache, in milliseconds.
pub(crate) const BELIEVED_MS: u64 = 5 * 60 * 1000;

/// Number of sets of the cache, each of which has `WAYS` entries.
const SETS: usize = 64;
const WAYS: usize = 4;

/// The key of proofs, which is different in every process.
#[derive(derive_more::Debug)]
#[debug("ProofKey")]
pub(crate) struct ProofKey(Key);

impl ProofKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// Fails if the system cannot provide random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Key::new(HMAC_SHA256, &random::bytes::<32>()?)))
    }

    /// Returns the proof of `password` for `user`, whose configured password hash is `hash`.
    pub(crate) fn prove(&self, user: &[u8], hash: &[u8], password: &[u8]) -> Proof {
        let mut context = Context::with_key(&self.0);
        for part in [user, hash, password] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }
}

#[derive(Debug)]
struct Entry {
    proof: Proof,
    expires_ms: u64,
    user: Rc<str>,
}

/// A worker's cache of recently verified credentials.
#[derive(Debug, Default)]
pub(crate) struct Believed {
    entries: Vec<Option<Entry>>,
}

impl Believed {
    /// Returns the user of `proof`, if it was verified recently.
    pub(crate) fn find(&self, proof: &Proof, now_ms: u64) -> Option<Rc<str>> {
        let entries = self.entries.get(set(proof)..)?.iter().take(WAYS).flatten();
        let mut found = None;
        for entry in entries {
            if verify_slices_are_equal(&entry.proof, proof).is_ok() && entry.expires_ms > now_ms {
                found = Some(&entry.user);
            }
        }
        found.cloned()
    }

    /// Records that `proof` of `user` was verified.
    pub(crate) fn insert(&mut self, proof: Proof, user: Rc<str>, now_ms: u64) {
        if self.entries.is_empty() {
            self.entries.resize_with(SETS * WAYS, || None);
        }
        let ways = &mut self.entries[set(&proof)..][..WAYS];
        let age = |entry: &Option<Entry>| match entry {
            Some(entry) if entry.proof == proof => 0,
            Some(entry) => entry.expires_ms,
            None => 1,
        };
        if let Some(oldest) = ways.iter_mut().min_by_key(|entry| age(entry)) {
            *oldest = Some(Entry { proof, expires_ms: now_ms.saturating_add(BELIEVED_MS), user });
        }
    }
}

fn set(proof: &Proof) -> usize {
    usize::from(proof[0]) % SETS * WAYS
}

/// Parses the name and password from a value of Authorization. Returns `None` if the scheme is not Basic or the value
/// is invalid.
pub(crate) fn parse_basic(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, token) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = base64::decode(flatout_http::token::trim(token), &base64::BASE64_NOPAD)?;
    // RFC 7617 §2: a name contains no colon, but a password may.
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let password = decoded.split_off(colon + 1);
    decoded.pop();
    Some((decoded, password))
}

/// Checks that parsed credentials have a name without a colon, and that they are the same after being encoded and
/// parsed again.
///
/// # Panics
/// Panics if a check fails.
#[cfg(feature = "fuzzing")]
pub fn check_basic(value: &[u8]) {
    // Use `value` as a field value, and as the decoded credentials of another.
    let encoded = format!("Basic {}", base64::BASE64.encode(value));
    for value in [value, encoded.as_bytes()] {
        let Some((name, password)) = parse_basic(value) else { continue };
        assert!(!name.contains(&b':') && name.len() + password.len() < value.len());
        let joined = [&name[..], b":", &password].concat();
        let again = format!("basic  {}", base64::BASE64.encode(&joined));
        assert_eq!(parse_basic(again.as_bytes()), Some((name, password)));
    }
    assert_eq!(parse_basic(encoded.as_bytes()).is_some(), value.contains(&b':'));
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED_MS, Believed, ProofKey, parse_basic};
    use std::rc::Rc;

    #[test]
    fn credentials_as_rfc_7617_has_them() {
        let parse = |value: &str| {
            parse_basic(value.as_bytes())
                .map(|(user, password)| (String::from_utf8(user).unwrap(), String::from_utf8(password).unwrap()))
        };
        let aladdin = Some(("Aladdin".to_owned(), "open sesame".to_owned()));
        assert_eq!(parse("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(parse("bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ"), aladdin);
        assert_eq!(parse("Basic dGVzdDoxMjPCow=="), Some(("test".to_owned(), "123\u{a3}".to_owned())));
        assert_eq!(parse("Basic Ojo6"), Some((String::new(), "::".to_owned())));
        for bad in
            ["", "Basic", "Basic ", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic QQ==", "Basic !", "Basic QWx=hZGQ="]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_verified_credentials_are_cached_and_they_expire() {
        let key = ProofKey::new().unwrap();
        let right = key.prove(b"ada", b"$hash", b"secret");
        assert_eq!(right, key.prove(b"ada", b"$hash", b"secret"));
        for other in [
            key.prove(b"ada", b"$hash", b"wrong"),
            key.prove(b"bob", b"$hash", b"secret"),
            key.prove(b"ada", b"$other", b"secret"),
            key.prove(b"ada$", b"hash", b"secret"),
            ProofKey::new().unwrap().prove(b"ada", b"$hash", b"secret"),
        ] {
            assert_ne!(other, right);
        }
        let mut believed = Believed::default();
        assert_eq!(believed.find(&right, 0), None);
        believed.insert(right, "ada".into(), 1000);
        assert_eq!(believed.find(&right, 1000 + BELIEVED_MS - 1).as_deref(), Some("ada"));
        assert_eq!(believed.find(&right, 1000 + BELIEVED_MS), None);
        assert_eq!(believed.find(&key.prove(b"ada", b"$hash", b"wrong"), 1000), None);
        let name: Rc<str> = "crowd".into();
        for count in 0..10_000_u32 {
            believed.insert(key.prove(b"crowd", b"", &count.to_le_bytes()), Rc::clone(&name), 2000);
        }
        assert_eq!(believed.entries.len(), super::SETS * super::WAYS);
        assert_eq!(believed.find(&key.prove(b"crowd", b"", &9_999_u32.to_le_bytes()), 2000), Some(name));
    }
}
