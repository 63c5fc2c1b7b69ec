//! Field names with special treatment in forwarding.

/// Longer names have no special meaning.
const NAME_BYTES_MAX: usize = 40;

/// Bytes of a name that are compared together.
const WORD_BYTES: usize = 8;

/// Class of a field in forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldClass {
    /// No special treatment: forwarded, unless Connection names it.
    Plain,
    /// Defined for all recipients: forwarded even if Connection names it.
    EndToEnd,
    /// Specific to a connection: never forwarded.
    HopByHop,
    /// TE: specific to a connection, but acceptance of trailers is forwarded.
    Te,
    /// Host.
    Host,
    /// Content-Length.
    Length,
    /// Via.
    Via,
    /// X-Forwarded-For.
    ForwardedFor,
    /// X-Forwarded-Proto.
    ForwardedProto,
    /// X-Forwarded-Host.
    ForwardedHost,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// Another field in which proxies describe the client or themselves: removed unless the client is trusted, since
    /// it may be forged.
    ForwardedOther,
    /// A field that makes some origins respond for another target or host. No cache key contains it, so an untrusted
    /// client could use it to store another page under this key.
    TargetOverride,
    /// A field that makes some origins apply another method: the same risk, for GET and HEAD.
    MethodOverride,
    /// Max-Forwards.
    MaxForwards,
    /// Cookie.
    Cookie,
    /// Authorization.
    Authorization,
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    Condition,
    /// Range, If-Range.
    Range,
    /// Accept-Encoding.
    Encoding,
    /// Date.
    Date,
}

/// A classified field name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its class, with `_` read as `-`.
    pub kind: FieldClass,
    /// True if it contains `_`.
    pub underscored: bool,
}

impl Name {
    /// Classifies `name`, ignoring case.
    pub fn new(name: &str) -> Self {
        let mut room = [0_u8; NAME_BYTES_MAX];
        let Some(copy) = room.get_mut(..name.len()) else {
            return Self { kind: FieldClass::Plain, underscored: false };
        };
        copy.copy_from_slice(name.as_bytes());
        let mut underscored = false;
        let words = name.len().div_ceil(WORD_BYTES);
        for word in room.as_chunks_mut::<WORD_BYTES>().0.iter_mut().take(words) {
            let (lower, has_underscore) = fold(u64::from_ne_bytes(*word));
            underscored |= has_underscore;
            *word = lower.to_ne_bytes();
        }
        Self { kind: kind(&room[..name.len()]), underscored }
    }

    /// Returns whether it is a spelling with `_` of a name that matters to a proxy or to an origin's trust in it.
    pub fn is_disguised(self) -> bool {
        self.underscored && !matches!(self.kind, FieldClass::Plain | FieldClass::EndToEnd)
    }
}

/// Folds eight bytes of a name: to lower case, with `-` for `_`. Also returns whether there was a `_`.
const fn fold(word: u64) -> (u64, bool) {
    const ONES: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
    const HIGH: u64 = ONES * 0x80;
    // The additions carry into the highest bit of each byte, never beyond.
    let low = word & !HIGH;
    let from_a = low + ONES * (0x80 - b'A' as u64);
    let beyond_z = low + ONES * (0x80 - b'Z' as u64 - 1);
    let upper = from_a & !beyond_z & !word & HIGH;
    let differs = (low ^ (ONES * b'_' as u64)) + ONES * 0x7f;
    let underscores = !(differs | word) & HIGH;
    ((word | upper >> 2) ^ ((underscores >> 7) * (b'_' ^ b'-') as u64), underscores != 0)
}

/// Class of a lower-case name.
fn kind(name: &[u8]) -> FieldClass {
    match name {
        b"host" => FieldClass::Host,
        b"content-length" => FieldClass::Length,
        b"via" => FieldClass::Via,
        b"te" => FieldClass::Te,
        b"connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" | b"http2-settings" | b"expect"
        | b"proxy" => FieldClass::HopByHop,
        b"forwarded" => FieldClass::Forwarded,
        b"x-forwarded-for" => FieldClass::ForwardedFor,
        b"x-forwarded-proto" => FieldClass::ForwardedProto,
        b"x-forwarded-host" => FieldClass::ForwardedHost,
        b"x-real-ip"
        | b"x-client-ip"
        | b"x-cluster-client-ip"
        | b"x-remote-ip"
        | b"x-remote-addr"
        | b"x-originating-ip"
        | b"x-original-forwarded-for"
        | b"client-ip"
        | b"true-client-ip"
        | b"cf-connecting-ip"
        | b"surrogate-capability"
        | b"fastly-client-ip"
        | b"x-envoy-external-address"
        | b"front-end-https" => FieldClass::ForwardedOther,
        b"x-original-url"
        | b"x-rewrite-url"
        | b"x-original-uri"
        | b"x-original-host"
        | b"x-host"
        | b"x-http-host-override"
        | b"x-http-path-override"
        | b"x-override-url"
        | b"x-forwarded"
        | b"x-url-scheme"
        | b"base-url"
        | b"request-uri" => FieldClass::TargetOverride,
        b"x-http-method-override" | b"x-http-method" | b"x-method-override" => FieldClass::MethodOverride,
        b"max-forwards" => FieldClass::MaxForwards,
        b"cookie" => FieldClass::Cookie,
        b"authorization" => FieldClass::Authorization,
        b"if-match" | b"if-none-match" | b"if-modified-since" | b"if-unmodified-since" => FieldClass::Condition,
        b"range" | b"if-range" => FieldClass::Range,
        b"accept-encoding" => FieldClass::Encoding,
        b"date" => FieldClass::Date,
        b"accept"
        | b"accept-language"
        | b"accept-charset"
        | b"accept-ranges"
        | b"age"
        | b"allow"
        | b"alt-svc"
        | b"authentication-info"
        | b"cache-control"
        | b"cache-status"
        | b"cdn-cache-control"
        | b"cdn-loop"
        | b"early-data"
        | b"etag"
        | b"expires"
        | b"from"
        | b"last-modified"
        | b"link"
        | b"location"
        | b"origin"
        | b"pragma"
        | b"priority"
        | b"proxy-status"
        | b"referer"
        | b"referrer-policy"
        | b"retry-after"
        | b"server"
        | b"set-cookie"
        | b"strict-transport-security"
        | b"surrogate-control"
        | b"surrogate-key"
        | b"cache-tag"
        | b"cache-groups"
        | b"cache-group-invalidation"
        | b"no-vary-search"
        | b"trailer"
        | b"user-agent"
        | b"vary"
        | b"warning"
        | b"www-authenticate"
        | b"x-content-type-options"
        | b"x-frame-options"
        | b"x-requested-with" => FieldClass::EndToEnd,
        _ => prefixed(name),
    }
}

fn prefixed(name: &[u8]) -> FieldClass {
    if name.starts_with(b"proxy-") {
        return FieldClass::HopByHop;
    }
    if name.starts_with(b"x-forwarded-") {
        return FieldClass::ForwardedOther;
    }
    let end_to_end: [&[u8]; 4] = [b"content-", b"access-control-", b"sec-", b"cross-origin-"];
    if end_to_end.iter().any(|prefix| name.starts_with(prefix)) { FieldClass::EndToEnd } else { FieldClass::Plain }
}

#[cfg(test)]
mod tests {
    use super::{FieldClass, Name, fold};

    #[test]
    fn eight_bytes_at_once_as_one_by_one() {
        for byte in 0..=255_u8 {
            for at in 0..8 {
                let mut word = *b"a-Z_\x7f9@[";
                word[at] = byte;
                let one = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
                let (folded, underscored) = fold(u64::from_ne_bytes(word));
                assert_eq!(folded.to_ne_bytes(), word.map(one), "{word:?}");
                assert_eq!(underscored, word.contains(&b'_'), "{word:?}");
            }
        }
    }

    #[test]
    fn names_of_any_length() {
        let new = |name: &str| Name::new(name);
        assert_eq!(new("HOST"), Name { kind: FieldClass::Host, underscored: false });
        assert_eq!(new("Content_Length"), Name { kind: FieldClass::Length, underscored: true });
        assert_eq!(new("X-Forwarded-Proto").kind, FieldClass::ForwardedProto);
        assert_eq!(new(&format!("X-Forwarded-{}", "x".repeat(28))).kind, FieldClass::ForwardedOther);
        assert_eq!(new(&format!("X-Forwarded-{}", "x".repeat(29))).kind, FieldClass::Plain);
        assert_eq!(new("").kind, FieldClass::Plain);
    }
}
