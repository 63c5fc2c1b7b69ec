//! Signed sessions and tokens, as values of cookies and form fields: creation and verification.

use super::secret::{Secret, Use};
use aws_lc_rs::hmac::{self, Context};
use data_encoding::BASE64URL_NOPAD;
use flatout_http::base64;

/// Maximum length of a session's cookie value, in bytes. With a name and attributes, it fits the limits of browsers.
pub const SESSION_TEXT_BYTES_MAX: usize = 3800;
/// Validity of a session's signature, in seconds: 14 days.
pub const SESSION_LIFETIME_S: i64 = 14 * 86_400;
/// Age at which a session that is in use is signed again, in seconds.
pub const SESSION_RENEWAL_S: i64 = 86_400;
/// Length of a session's ID, in bytes.
pub const ID_BYTES: usize = 16;

const TAG_BYTES: usize = 32;
const HEAD_BYTES: usize = 1 + 8 + ID_BYTES;
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 16;

/// The content of a verified session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's ID, to which tokens are bound.
    pub id: [u8; ID_BYTES],
    /// The session's values, as JSON.
    pub content: Vec<u8>,
    /// True if the session should be signed again because of its age or its key.
    pub is_due: bool,
}

/// The error if a session is too large for a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Signs a session and encodes it in Base64: `version | time | id | content | HMAC-SHA256`.
pub fn seal_session(secret: &Secret, id: [u8; ID_BYTES], content: &[u8], now_s: i64) -> Result<String, TooLarge> {
    let key = secret.first(Use::Session).ok_or(TooLarge)?;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len() + TAG_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(&now_s.to_be_bytes());
    bytes.extend_from_slice(&id);
    bytes.extend_from_slice(content);
    let tag = hmac::sign(key, &bytes);
    bytes.extend_from_slice(tag.as_ref());
    if bytes.len().div_ceil(3) * 4 > SESSION_TEXT_BYTES_MAX {
        return Err(TooLarge);
    }
    Ok(BASE64URL_NOPAD.encode(&bytes))
}

/// Verifies a session. Returns `None` if the session was modified, has expired, is from the future, or was signed with
/// a key that has been removed. The visitor then has an empty session.
pub fn open_session(secret: &Secret, text: &[u8], now_s: i64) -> Option<Session> {
    if text.len() > SESSION_TEXT_BYTES_MAX {
        return None;
    }
    let bytes = base64::decode(text, &BASE64URL_NOPAD)?;
    let (signed, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG_BYTES)?)?;
    let position = secret.all(Use::Session).position(|key| hmac::verify(key, signed, tag).is_ok())?;
    let (head, content) = signed.split_at_checked(HEAD_BYTES)?;
    let (&[VERSION], when) = head.split_first_chunk::<1>()? else { return None };
    let (when, id) = when.split_first_chunk::<8>()?;
    // The clock of another machine may be slightly ahead.
    let age_s = now_s.checked_sub(i64::from_be_bytes(*when))?;
    if !(-300..SESSION_LIFETIME_S).contains(&age_s) {
        return None;
    }
    let is_due = position > 0 || age_s >= SESSION_RENEWAL_S;
    Some(Session { id: id.try_into().ok()?, content: content.to_vec(), is_due })
}

/// Creates a token for a form, bound to the session `id`. No two tokens are equal, so compressing the page does not
/// leak them (BREACH).
pub fn make_token(secret: &Secret, id: &[u8; ID_BYTES], nonce: [u8; NONCE_BYTES]) -> Option<String> {
    let tag = token_tag(secret.first(Use::Csrf)?, id, &nonce);
    Some(BASE64URL_NOPAD.encode(&[&nonce[..], tag.as_ref()].concat()))
}

/// Returns whether `token` was created for the session `id`.
pub fn check_token(secret: &Secret, id: &[u8; ID_BYTES], token: &[u8]) -> bool {
    if token.len() > 128 {
        return false;
    }
    let Some(bytes) = base64::decode(token, &BASE64URL_NOPAD) else { return false };
    let Some((nonce, tag)) = bytes.split_first_chunk::<NONCE_BYTES>() else { return false };
    secret.all(Use::Csrf).any(|key| hmac::verify(key, &[&id[..], nonce].concat(), tag).is_ok())
}

fn token_tag(key: &hmac::Key, id: &[u8; ID_BYTES], nonce: &[u8; NONCE_BYTES]) -> hmac::Tag {
    let mut context = Context::with_key(key);
    context.update(id);
    context.update(nonce);
    context.sign()
}

#[cfg(test)]
mod tests {
    use super::{SESSION_LIFETIME_S, Session, TooLarge, check_token, make_token, open_session, seal_session};
    use crate::api::secret::Secret;
    use proptest::prelude::*;

    const NEW: &str = "new-key-new-key-new-key-new-key-1";
    const OLD: &str = "old-key-old-key-old-key-old-key-2";
    const NOW: i64 = 1_800_000_000;

    fn secret(text: &str) -> Secret {
        Secret::parse(text, "example.com").unwrap()
    }

    #[test]
    fn what_was_signed_is_believed_for_its_time() {
        let secret = secret(NEW);
        let text = seal_session(&secret, [7; 16], b"{\"a\":1}", NOW).unwrap();
        let expected = Session { id: [7; 16], content: b"{\"a\":1}".to_vec(), is_due: false };
        assert_eq!(open_session(&secret, text.as_bytes(), NOW), Some(expected.clone()));
        assert_eq!(open_session(&secret, text.as_bytes(), NOW - 200), Some(expected.clone()));
        let later = open_session(&secret, text.as_bytes(), NOW + 100_000);
        assert_eq!(later, Some(Session { is_due: true, ..expected }));
        for at_s in [NOW - 301, NOW + SESSION_LIFETIME_S, i64::MAX, i64::MIN] {
            assert_eq!(open_session(&secret, text.as_bytes(), at_s), None);
        }
    }

    #[test]
    fn keys_change_one_after_the_other() {
        let text = seal_session(&secret(OLD), [1; 16], b"{}", NOW).unwrap();
        let both = secret(&format!("{NEW}\n{OLD}\n"));
        assert!(open_session(&both, text.as_bytes(), NOW).unwrap().is_due);
        assert_eq!(open_session(&secret(NEW), text.as_bytes(), NOW), None);
        let token = make_token(&secret(OLD), &[1; 16], [2; 16]).unwrap();
        assert!(check_token(&both, &[1; 16], token.as_bytes()));
        assert!(!check_token(&secret(NEW), &[1; 16], token.as_bytes()));
    }

    #[test]
    fn any_change_is_noticed() {
        let secret = secret(NEW);
        let text = seal_session(&secret, [7; 16], b"{\"admin\":false}", NOW).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(open_session(&secret, &changed, NOW), None, "{at}");
            assert_eq!(open_session(&secret, &text.as_bytes()[..at], NOW), None);
        }
        assert_eq!(open_session(&secret, format!("{text}A").as_bytes(), NOW), None);
    }

    #[test]
    fn a_session_fits_a_cookie() {
        let secret = secret(NEW);
        assert!(seal_session(&secret, [0; 16], &[b'x'; 2700], NOW).is_ok());
        assert_eq!(seal_session(&secret, [0; 16], &[b'x'; 2900], NOW), Err(TooLarge));
    }

    #[test]
    fn a_token_is_for_one_session() {
        let secret = secret(NEW);
        let token = make_token(&secret, &[1; 16], [3; 16]).unwrap();
        assert!(check_token(&secret, &[1; 16], token.as_bytes()));
        assert!(!check_token(&secret, &[2; 16], token.as_bytes()));
        // A session's signature is not a token, whatever is signed.
        let session = seal_session(&secret, [1; 16], b"", NOW).unwrap();
        assert!(!check_token(&secret, &[1; 16], session.as_bytes()));
        assert_ne!(token, make_token(&secret, &[1; 16], [4; 16]).unwrap());
        for wrong in [&b""[..], b"x", &token.as_bytes()[..60], &[b'A'; 200]] {
            assert!(!check_token(&secret, &[1; 16], wrong));
        }
    }

    #[test]
    fn what_one_site_has_signed_is_nothing_to_another() {
        let [one, other] = ["a.example", "b.example"].map(|realm| Secret::parse(NEW, realm).unwrap());
        let text = seal_session(&one, [1; 16], b"{\"user\":\"admin\"}", NOW).unwrap();
        assert!(open_session(&one, text.as_bytes(), NOW).is_some());
        assert_eq!(open_session(&other, text.as_bytes(), NOW), None);
        let token = make_token(&one, &[1; 16], [2; 16]).unwrap();
        assert!(check_token(&one, &[1; 16], token.as_bytes()));
        assert!(!check_token(&other, &[1; 16], token.as_bytes()));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_believed_or_fatal(text in any::<Vec<u8>>()) {
            let secret = secret(NEW);
            prop_assert_eq!(open_session(&secret, &text, NOW), None);
            prop_assert!(!check_token(&secret, &[0; 16], &text));
        }
    }
}
