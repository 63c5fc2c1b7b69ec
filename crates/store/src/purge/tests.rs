//! Tests of the log alone.

use super::{LastPurges, Purge, PurgeLog, PurgeTarget, Purged, Subject, tag_hash};

const SUBJECT: Subject<'_> = Subject { key: b"http://a.b/x/y", locator: b"a.b/x/y", tags: &[], generation: 0 };

#[test]
fn a_prefix_without_a_slash_is_a_host() {
    for (prefix, expected) in [
        ("a.b", true),
        ("a", false),
        ("a.b/", true),
        ("a.b/x", true),
        ("a.b/x/y", true),
        ("a.b/x/y/", false),
        ("", false),
    ] {
        let target = PurgeTarget::of(&Purge::Prefix(prefix.into()));
        assert_eq!(target.names(&SUBJECT), expected, "{prefix}");
        let log = PurgeLog::default();
        log.add(target, false);
        assert_eq!(log.verdict(&SUBJECT).0 == Purged::Hard, expected, "{prefix}");
    }
}

#[test]
fn a_port_that_is_named_counts() {
    let subject = |key: &'static [u8], before: usize| Subject { key, locator: &key[before..], ..SUBJECT };
    let (http, https) = (subject(b"r\0http://a.b/x", 9), subject(b"r\0https://a.b/x", 10));
    let (other, address) = (subject(b"r\0http://a.b:443/x", 9), subject(b"r\0http://[::1]/x", 9));
    for (host, expected) in [
        ("a.b", [true, true, true, false]),
        ("a.b:", [true, true, true, false]),
        ("a.b:80", [true, false, false, false]),
        ("a.b:443", [false, true, true, false]),
        ("a.b:8080", [false; 4]),
        ("[::1]", [false, false, false, true]),
        ("[::1]:80", [false, false, false, true]),
        ("[::1]:443", [false; 4]),
    ] {
        let target = PurgeTarget::of(&Purge::Host(host.into()));
        let log = PurgeLog::default();
        log.add(target.clone(), false);
        for (subject, expected) in [http, https, other, address].iter().zip(expected) {
            assert_eq!(target.names(subject), expected, "{host} {subject:?}");
            assert_eq!(log.verdict(subject).0 == Purged::Hard, expected, "{host} {subject:?}");
        }
    }
}

#[test]
fn all_prefixes_are_found_among_many() {
    let locator = b"a.b/c/d/e";
    let others = ["a.b/b", "a.b/c/c", "a.b/c/d/d/d", "a.b/c/d/ea", "a.b/c/e", "a.b/c/d/e/f", "a.a/", "a.b/c/d0"];
    for end in 4..=locator.len() {
        let log = PurgeLog::default();
        for other in others {
            log.add(PurgeTarget::of(&Purge::Prefix(other.into())), false);
        }
        let subject = Subject { locator, ..SUBJECT };
        assert_eq!(log.verdict(&subject), (Purged::No, others.len() as u64));
        log.add(PurgeTarget::of(&Purge::Prefix(locator[..end].to_vec())), true);
        assert_eq!(log.verdict(&subject).0, Purged::Soft, "{end}");
    }
}

#[test]
fn a_purge_of_everything_replaces_the_log() {
    let log = PurgeLog::default();
    log.add(PurgeTarget::Host(b"a.b"[..].into()), false);
    log.add(PurgeTarget::Tag(tag_hash(b"t")), true);
    assert_eq!(log.len(), 2);
    // A soft one says less than what was said before.
    log.add(PurgeTarget::All, true);
    assert_eq!((log.len(), log.verdict(&SUBJECT).0), (3, Purged::Hard));
    log.add(PurgeTarget::All, false);
    assert_eq!((log.len(), log.verdict(&SUBJECT).0), (1, Purged::Hard));
    assert_eq!(log.verdict(&Subject { generation: 4, ..SUBJECT }).0, Purged::No);
    log.forget(4);
    assert_eq!((log.len(), log.floor(), log.generation()), (0, 4, 4));
    assert!(log.remembers(4) && !log.remembers(3));
}

#[test]
fn what_is_written_down_is_read_again() {
    let log = PurgeLog::default();
    let targets = [
        Purge::Key(b"http://a.b/x/y".to_vec()),
        Purge::Url(b"a.b/x".to_vec()),
        Purge::Prefix(b"a.b/".to_vec()),
        Purge::Host(b"a.b".to_vec()),
        Purge::Tag(b"t".to_vec()),
        Purge::All,
    ];
    for (purge, soft) in targets.iter().zip([false, true, false, true, false, true]) {
        log.add(PurgeTarget::of(purge), soft);
    }
    let written: Vec<_> = log.entries().into_iter().map(|(target, last)| (target.encode(), last)).collect();
    assert_eq!(written.len(), 6);
    let read: Vec<(PurgeTarget, LastPurges)> =
        written.iter().map(|(bytes, last)| (PurgeTarget::decode(bytes).unwrap(), *last)).collect();
    let other = PurgeLog::default();
    other.restore(read, 9, 2);
    assert_eq!((other.generation(), other.floor(), other.len()), (9, 2, 6));
    for generation in 0..9 {
        let subject = Subject { generation, ..SUBJECT };
        assert_eq!(other.verdict(&subject).0, log.verdict(&subject).0);
    }
    for wrong in [&b""[..], b"x", b"ab", b"t1234567", b"t123456789"] {
        assert_eq!(PurgeTarget::decode(wrong), None);
    }
}
