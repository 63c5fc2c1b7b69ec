//! Classification of field names that are treated specially when forwarding.

use flatout_http::forwarded::{ADDRESS_FIELDS, CLAIM_FIELDS, CLAIM_PREFIXES};
use flatout_http::lines::FORBIDDEN_IN_STREAMS;

/// Maximum length in bytes of a name with a special meaning.
const NAME_BYTES_MAX: usize = 40;

/// Class of a field, which determines how it is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldClass {
    /// No special treatment: forwarded unless Connection names it.
    Plain,
    /// Defined for all recipients: forwarded even if Connection names it.
    EndToEnd,
    /// Hop-by-hop: never forwarded.
    HopByHop,
    /// TE: hop-by-hop, but acceptance of trailers is forwarded.
    Te,
    /// Host.
    Host,
    /// Content-Length.
    Length,
    /// Via.
    Via,
    /// CDN-Loop (RFC 8586).
    CdnLoop,
    /// X-Forwarded-For.
    ForwardedFor,
    /// X-Forwarded-Proto.
    ForwardedProto,
    /// X-Forwarded-Host.
    ForwardedHost,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// Another field in which proxies describe the client, its user or themselves: removed unless the client is trusted,
    /// since it may be forged.
    ForwardedOther,
    /// A field that makes some origins respond for a different target or host. No cache key contains it, so an
    /// untrusted client could use it to store a different page under the key (cache poisoning).
    TargetOverride,
    /// A field that makes some origins apply a different method. Poses the same risk for GET and HEAD.
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
    /// Class of the name with every `_` replaced by `-`.
    pub kind: FieldClass,
    /// True if the name contains `_`.
    pub underscored: bool,
}

impl Name {
    /// Classifies `name`, ignoring case.
    pub fn new(name: &str) -> Self {
        let Some(start) = name.as_bytes().get(..name.len().min(NAME_BYTES_MAX)).filter(|start| !start.is_empty())
        else {
            return Self { kind: FieldClass::Plain, underscored: false };
        };
        let (folded, underscored) = FoldedName::new(start);
        let kind = if name.len() == start.len() { folded.kind() } else { folded.kind_of_prefix() };
        Self { kind, underscored }
    }

    /// Returns whether the name contains `_` and, spelled with `-`, is a name that the proxy treats specially.
    pub fn is_disguised(self) -> bool {
        self.underscored && !matches!(self.kind, FieldClass::Plain | FieldClass::EndToEnd)
    }
}

/// Names that belong to a class other than `Plain`, in lower case.
const KNOWN: [(FieldClass, &[&str]); 24] = [
    (FieldClass::Host, &["host"]),
    (FieldClass::Length, &["content-length"]),
    (FieldClass::Via, &["via"]),
    (FieldClass::CdnLoop, &["cdn-loop"]),
    (FieldClass::Te, &["te"]),
    (FieldClass::HopByHop, &FORBIDDEN_IN_STREAMS),
    (FieldClass::HopByHop, &["http2-settings", "expect", "proxy"]),
    (FieldClass::Forwarded, &["forwarded"]),
    (FieldClass::ForwardedFor, &["x-forwarded-for"]),
    (FieldClass::ForwardedProto, &["x-forwarded-proto"]),
    (FieldClass::ForwardedHost, &["x-forwarded-host"]),
    (FieldClass::ForwardedOther, &["surrogate-capability"]),
    (FieldClass::ForwardedOther, &ADDRESS_FIELDS),
    (FieldClass::ForwardedOther, &CLAIM_FIELDS),
    (
        FieldClass::TargetOverride,
        &[
            "x-original-url",
            "x-rewrite-url",
            "x-original-uri",
            "x-original-host",
            "x-host",
            "x-http-host-override",
            "x-http-path-override",
            "x-override-url",
            "x-forwarded",
            "x-url-scheme",
            "base-url",
            "request-uri",
        ],
    ),
    (FieldClass::MethodOverride, &["x-http-method-override", "x-http-method", "x-method-override"]),
    (FieldClass::MaxForwards, &["max-forwards"]),
    (FieldClass::Cookie, &["cookie"]),
    (FieldClass::Authorization, &["authorization"]),
    (FieldClass::Condition, &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"]),
    (FieldClass::Range, &["range", "if-range"]),
    (FieldClass::Encoding, &["accept-encoding"]),
    (FieldClass::Date, &["date"]),
    (
        FieldClass::EndToEnd,
        &[
            "accept",
            "accept-language",
            "accept-charset",
            "accept-ranges",
            "age",
            "allow",
            "alt-svc",
            "authentication-info",
            "cache-control",
            "cache-status",
            "cdn-cache-control",
            "early-data",
            "etag",
            "expires",
            "from",
            "last-modified",
            "link",
            "location",
            "origin",
            "pragma",
            "priority",
            "proxy-status",
            "referer",
            "referrer-policy",
            "retry-after",
            "server",
            "set-cookie",
            "strict-transport-security",
            "surrogate-control",
            "surrogate-key",
            "cache-tag",
            "cache-groups",
            "cache-group-invalidation",
            "no-vary-search",
            "trailer",
            "user-agent",
            "vary",
            "warning",
            "www-authenticate",
            "x-content-type-options",
            "x-frame-options",
            "x-requested-with",
        ],
    ),
];

/// Prefixes of names that belong to a class other than `Plain`.
const PREFIXES: [(FieldClass, FoldedName); CLAIM_PREFIXES.len() + 5] = prefixes();

const fn prefixes() -> [(FieldClass, FoldedName); CLAIM_PREFIXES.len() + 5] {
    let others = [
        (FieldClass::HopByHop, "proxy-"),
        (FieldClass::EndToEnd, "content-"),
        (FieldClass::EndToEnd, "access-control-"),
        (FieldClass::EndToEnd, "sec-"),
        (FieldClass::EndToEnd, "cross-origin-"),
    ];
    let mut prefixes = [(FieldClass::Plain, FoldedName::new(b"").0); CLAIM_PREFIXES.len() + 5];
    let mut at = 0;
    while at < prefixes.len() {
        let (class, prefix) = if at < others.len() {
            others[at]
        } else {
            (FieldClass::ForwardedOther, CLAIM_PREFIXES[at - others.len()])
        };
        prefixes[at] = (class, FoldedName::new(prefix.as_bytes()).0);
        at += 1;
    }
    prefixes
}

/// Bit set, for each name length, of the first letters of names whose class may be other than `Plain` and `EndToEnd`.
static SPECIAL_LETTERS: [u32; NAME_BYTES_MAX + 1] = special_letters(false);

/// Bit set, for each name length, of the first letters of names whose class may matter in responses.
static SPECIAL_RESPONSE_LETTERS: [u32; NAME_BYTES_MAX + 1] = special_letters(true);

const fn special_letters(in_response: bool) -> [u32; NAME_BYTES_MAX + 1] {
    let mut letters = [0; NAME_BYTES_MAX + 1];
    let mut group = 0;
    while group < KNOWN.len() {
        let (class, names) = KNOWN[group];
        let mut at = 0;
        while at < names.len() && is_special(class, in_response) {
            let name = names[at].as_bytes();
            letters[name.len()] |= letter_bit(name[0]);
            at += 1;
        }
        group += 1;
    }
    let mut at = 0;
    while at < PREFIXES.len() {
        let (class, prefix) = PREFIXES[at];
        let mut bytes = prefix.bytes;
        while bytes <= NAME_BYTES_MAX && is_special(class, in_response) {
            letters[bytes] |= letter_bit(prefix.byte(0) as u8);
            bytes += 1;
        }
        at += 1;
    }
    letters
}

const fn is_special(class: FieldClass, in_response: bool) -> bool {
    use FieldClass::{Date, EndToEnd, HopByHop, Length, Plain, Te};
    if in_response { matches!(class, HopByHop | Te | Length | Date) } else { !matches!(class, Plain | EndToEnd) }
}

/// Returns the bit for a letter, which is the same for upper and lower case. All special names begin with a letter.
const fn letter_bit(letter: u8) -> u32 {
    1 << (letter & 0x1f)
}

/// Returns false if the length and first letter show that the class of `name` is `Plain` or `EndToEnd`, as for most
/// names.
pub(super) fn may_be_special(name: &str) -> bool {
    has_letter(&SPECIAL_LETTERS, name)
}

/// Returns false if `name` certainly needs no special treatment in a response, unless Connection names it.
pub(super) fn may_be_special_in_response(name: &str) -> bool {
    has_letter(&SPECIAL_RESPONSE_LETTERS, name)
}

#[inline]
fn has_letter(letters: &[u32; NAME_BYTES_MAX + 1], name: &str) -> bool {
    // Longer names may have a special prefix.
    let letters = letters[name.len().min(NAME_BYTES_MAX)];
    name.as_bytes().first().is_some_and(|letter| letters & letter_bit(*letter) != 0)
}

/// Number of bytes of a name that are compared at once.
const WORD_BYTES: usize = 8;

/// A name of 1 to 40 bytes in lower case, with `-` for `_`, padded with zeros.
#[derive(Clone, Copy, Debug)]
struct FoldedName {
    words: [u64; NAME_BYTES_MAX / WORD_BYTES],
    bytes: usize,
}

/// Hash table of the names in [`KNOWN`], with at most two names per bucket.
static TABLE: [[Option<(FoldedName, FieldClass)>; 2]; 256] = table();

#[expect(clippy::large_stack_arrays, reason = "evaluated by the compiler")]
const fn table() -> [[Option<(FoldedName, FieldClass)>; 2]; 256] {
    let mut table = [[None; 2]; 256];
    let mut group = 0;
    while group < KNOWN.len() {
        let (class, names) = KNOWN[group];
        let mut at = 0;
        while at < names.len() {
            let (name, _) = FoldedName::new(names[at].as_bytes());
            let bucket = &mut table[name.hash()];
            let free = if bucket[0].is_none() { 0 } else { 1 };
            assert!(bucket[free].is_none(), "three names have the same hash: choose other factors");
            bucket[free] = Some((name, class));
            at += 1;
        }
        group += 1;
    }
    table
}

impl FoldedName {
    /// Folds `name` and returns whether it contains `_`.
    const fn new(name: &[u8]) -> (Self, bool) {
        let mut words = [0; NAME_BYTES_MAX / WORD_BYTES];
        let (mut underscored, mut rest, mut index) = (false, name, 0);
        while let Some((chunk, following)) = rest.split_first_chunk::<WORD_BYTES>() {
            let (word, has_underscore) = fold(u64::from_le_bytes(*chunk));
            words[index] = word;
            underscored |= has_underscore;
            (rest, index) = (following, index + 1);
        }
        if !rest.is_empty() {
            let word = match name.last_chunk::<WORD_BYTES>() {
                Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD_BYTES - rest.len())),
                None => short_word(rest),
            };
            let (word, has_underscore) = fold(word);
            words[index] = word;
            underscored |= has_underscore;
        }
        (Self { words, bytes: name.len() }, underscored)
    }

    const fn byte(&self, at: usize) -> usize {
        (self.words[at / WORD_BYTES] >> (8 * (at % WORD_BYTES))) as usize & 0xff
    }

    const fn hash(&self) -> usize {
        let (first, middle, last) = (self.byte(0), self.byte(self.bytes / 2), self.byte(self.bytes - 1));
        (self.bytes * 3 + first * 7 + middle * 25 + last) % 256
    }

    fn starts_with(&self, prefix: &Self) -> bool {
        self.words.iter().zip(prefix.words).enumerate().all(|(index, (word, prefix_word))| {
            match prefix.bytes.saturating_sub(index * WORD_BYTES) {
                0 => true,
                bytes @ 1..WORD_BYTES => (word ^ prefix_word) << (8 * (WORD_BYTES - bytes)) == 0,
                _ => *word == prefix_word,
            }
        })
    }

    fn kind(&self) -> FieldClass {
        for (name, class) in TABLE[self.hash()].iter().flatten() {
            if name.bytes == self.bytes && name.words == self.words {
                return *class;
            }
        }
        self.kind_of_prefix()
    }

    fn kind_of_prefix(&self) -> FieldClass {
        let prefixed = PREFIXES.iter().find(|(_, prefix)| self.starts_with(prefix));
        prefixed.map_or(FieldClass::Plain, |(class, _)| *class)
    }
}

/// Returns up to seven bytes as a little-endian word.
const fn short_word(bytes: &[u8]) -> u64 {
    let (mut word, mut at) = (0, 0);
    while at < bytes.len() {
        word |= (bytes[at] as u64) << (8 * at);
        at += 1;
    }
    word
}

/// Folds eight bytes of a name to lower case and replaces `_` by `-`. Also returns whether they contain `_`.
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

#[cfg(test)]
mod tests {
    use super::{FieldClass, KNOWN, Name, fold, is_special, may_be_special, may_be_special_in_response};

    #[test]
    fn eight_bytes_at_once_as_one_by_one() {
        for byte in 0..=255_u8 {
            for at in 0..8 {
                let mut word = *b"a-Z_\x7f9@[";
                word[at] = byte;
                let one = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
                let (folded, underscored) = fold(u64::from_le_bytes(word));
                assert_eq!(folded.to_le_bytes(), word.map(one), "{word:?}");
                assert_eq!(underscored, word.contains(&b'_'), "{word:?}");
            }
        }
    }

    #[test]
    fn every_known_name_is_found_in_any_spelling() {
        for (class, names) in KNOWN {
            for name in names {
                assert_eq!(Name::new(name), Name { kind: class, underscored: false });
                assert_eq!(Name::new(&name.to_ascii_uppercase()), Name { kind: class, underscored: false });
                let underscored = name.contains('-');
                assert_eq!(Name::new(&name.replace('-', "_")), Name { kind: class, underscored }, "{name}");
            }
        }
    }

    #[test]
    fn no_special_name_is_taken_for_an_ordinary_one() {
        let prefixed = ["proxy-", "x-forwarded-", "sec-"].into_iter().flat_map(|prefix| {
            [1, 40 - prefix.len(), 41]
                .map(|count| format!("{prefix}{}", "x".repeat(count)))
                .into_iter()
                .chain([prefix.to_owned()])
        });
        let known = KNOWN.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned()));
        for name in known.chain(prefixed) {
            for spelt in [name.clone(), name.to_ascii_uppercase(), name.replace('-', "_")] {
                let class = Name::new(&spelt).kind;
                let is_ordinary = matches!(class, FieldClass::Plain | FieldClass::EndToEnd);
                assert!(is_ordinary || may_be_special(&spelt), "{spelt}");
                let matters = is_special(class, true);
                assert!(!matters || may_be_special_in_response(&spelt), "{spelt}");
            }
        }
        for ordinary in ["", "etag", "Accept", "user-agent", "last-modified", "X-Id", "\u{e9}", &"h".repeat(41)] {
            assert!(!may_be_special(ordinary), "{ordinary}");
        }
    }

    #[test]
    fn names_of_any_length() {
        let new = |name: &str| Name::new(name);
        assert_eq!(new("HOST"), Name { kind: FieldClass::Host, underscored: false });
        assert_eq!(new("Content_Length"), Name { kind: FieldClass::Length, underscored: true });
        assert_eq!(new("X-Forwarded-Proto").kind, FieldClass::ForwardedProto);
        assert_eq!(new(&format!("X-Forwarded-{}", "x".repeat(28))).kind, FieldClass::ForwardedOther);
        let long = Name { kind: FieldClass::ForwardedOther, underscored: true };
        assert_eq!(new(&format!("X_Forwarded-{}", "x".repeat(29))), long);
        assert_eq!(new(&"x".repeat(41)).kind, FieldClass::Plain);
        assert_eq!(new("").kind, FieldClass::Plain);
    }
}
