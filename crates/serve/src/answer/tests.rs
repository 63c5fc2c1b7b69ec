use super::{Means, answer};
use crate::choice::{EncodingChoice, choose};
use crate::file_request::FileRequest;
use crate::outcome::FileOutcome;
use crate::rules::FileRules;
use crate::services::Services;
use crate::version::tests::temporary_folder;
use crate::version::{FileMetadata, Loading, Version, look_beside};
use flatout_config::model::{Compression, EncodedExtension, FieldOp, Files};
use flatout_handler::response::Body;
use flatout_handler::routed::HeaderPolicy;
use flatout_http::encoding::ContentCoding;
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::request::parse_request_head;
use flatout_os::clock::Now;
use flatout_os::root::{Named, Root};
use flatout_os::runtime::build_runtime;
use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

const CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// A version and what its responses depend on.
struct Site {
    version: Version,
    rules: FileRules,
    services: Services,
}

impl Site {
    /// Generated content that is compressed with gzip on the fly.
    fn compressing(content: &[u8]) -> Self {
        let compress = vec![Compression { coding: ContentCoding::Gzip, level: 6 }];
        let rules = FileRules::new(&Files { compress, ..Files::default() }, 1 << 20);
        let version = Version::of_content(content.to_vec(), CONTENT_TYPE, &rules, &Rc::default(), 784_111_777);
        Self { version, rules, services: Services::default() }
    }

    /// The response to `method` with `lines`: status, head, and content if it is in memory. Waits for encodings.
    fn ask(&self, method: &str, lines: &str) -> (u16, String, Vec<u8>) {
        let text = format!("{method} /a.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let (question, mut grown) = (FileRequest::from(&head), false);
        let (services, rules) = (&self.services, &self.rules);
        let mut choice = choose(&self.version, &question, services, &mut grown);
        if let EncodingChoice::Wait(_, slot) = choice {
            build_runtime().unwrap().block_on(slot.ended());
            choice = choose(&self.version, &question, services, &mut grown);
        }
        let EncodingChoice::Take(representation, _) = choice else { panic!("the encoding failed") };
        let means = Means { rules, services, parts_answered: &Cell::new(0), now: Now::read() };
        let response = match answer(&means, &self.version, representation, &question, FileOutcome::Hit) {
            Ok(response) => response,
            Err(refusal) => return (refusal.status, String::new(), Vec::new()),
        };
        let mut shown = Vec::new();
        response.head.append_to(&mut shown, &[b'-'; 29], response.extra_lines(), None);
        let content = match response.body {
            Body::Bytes(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        (response.status, String::from_utf8(shown).unwrap(), content)
    }

    fn etag(&self, lines: &str) -> String {
        let (_, head, _) = self.ask("GET", lines);
        head.split("ETag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned()
    }
}

/// The content, and that an encoding of it exists.
fn check_ranges(site: &Site, content: &[u8]) {
    let gzip = "Accept-Encoding: gzip, deflate\r\n";
    let is_encoded = |head: &str| head.contains("\r\nContent-Encoding: gzip\r\n");
    let (status, head, encoded) = site.ask("GET", gzip);
    assert!(status == 200 && is_encoded(&head) && encoded != content, "{head}");
    let (plain_tag, encoded_tag) = (site.etag(""), site.etag(gzip));
    assert_ne!(plain_tag, encoded_tag);
    let is_part = |lines: &str| {
        let (status, head, part) = site.ask("GET", &format!("{gzip}Range: bytes=10-19\r\n{lines}"));
        let range = format!("\r\nContent-Range: bytes 10-19/{}\r\n", content.len());
        let is_plain = !is_encoded(&head) && head.contains(&format!("\r\nETag: {plain_tag}\r\n"));
        assert!(is_plain && head.contains("\r\nVary: "), "{lines}: {head}");
        match status {
            206 => assert!(head.contains(&range) && part == content[10..20], "{lines}: {head}"),
            _ => assert!(status == 200 && part == content, "{lines}: {head}"),
        }
        status == 206
    };
    assert!(is_part(""));
    assert!(is_part(&format!("If-Range: {plain_tag}\r\n")));
    assert!(!is_part(&format!("If-Range: {encoded_tag}\r\n")), "a client with a part of the encoding starts again");
    assert!(!is_part("If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "a date is that of every representation");
    // An encoding is never sent in parts, and only if the client refuses the plain file.
    let refusing = "Accept-Encoding: gzip, identity;q=0\r\nRange: bytes=10-19\r\n";
    for if_range in [String::new(), format!("If-Range: {encoded_tag}\r\n")] {
        let (status, head, whole) = site.ask("GET", &format!("{refusing}{if_range}"));
        assert!(status == 200 && is_encoded(&head) && whole == encoded, "{head}");
    }
    assert_eq!(site.ask("GET", &format!("{gzip}Range: bytes={}-\r\n", encoded.len())).0, 206, "within the plain file");
    assert_eq!(site.ask("GET", &format!("{gzip}Range: bytes={}-\r\n", content.len())).0, 416);
    // RFC 9110 §14.2: HEAD has no Range.
    let (status, head, _) = site.ask("HEAD", &format!("{gzip}Range: bytes=10-19\r\n"));
    assert!(status == 200 && is_encoded(&head), "{head}");
}

fn content() -> Vec<u8> {
    (0..2_000_u32).flat_map(|number| format!("{number} ").into_bytes()).collect()
}

#[test]
fn a_range_selects_the_plain_form_of_what_is_compressed_on_the_fly() {
    check_ranges(&Site::compressing(&content()), &content());
}

/// The file `name` in a folder with the content, as `a.txt`, and its encoding, as `a.txt.gz` and `a.svgz`.
fn site_with_file(name: &str, files: &Files, policy: HeaderPolicy) -> Site {
    let folder = temporary_folder(&format!("answer-{name}-{}", policy.fields.len()));
    let compression = Compression { coding: ContentCoding::Gzip, level: 6 };
    let encoded = crate::encode::encode(compression, &content()).unwrap().unwrap();
    for (name, bytes) in [("a.txt", &content()), ("a.txt.gz", &encoded), ("a.svgz", &encoded)] {
        fs::write(folder.join(name), bytes).unwrap();
    }
    let root = Root::open(&folder).unwrap();
    let Named::File(identity) = root.identify(name.as_bytes()).unwrap() else { panic!("not a file") };
    let rules = FileRules::new(files, 1 << 20);
    let (policy, services) = (Rc::new(policy), Services::default());
    let beside = look_beside(&root, name.as_bytes(), &identity, &rules.precompressed);
    let seen = FileMetadata { index_at: 0, identity, beside };
    let unix_ns = identity.changed_ns + 1_000_000_000;
    let loading = Loading { root: &root, rules: &rules, policy: &policy, services: &services, unix_ns };
    let version = Version::load(&loading, name.as_bytes(), &seen).unwrap();
    fs::remove_dir_all(folder).unwrap();
    Site { version, rules, services }
}

/// Some versions of `brotli` copy the time of a file without the fraction of a second.
#[test]
fn a_precompressed_file_is_as_new_as_its_original_even_without_the_fraction() {
    let folder = temporary_folder("beside");
    let root = Root::open(&folder).unwrap();
    let set_time = |name: &str, nanoseconds: u32| {
        let file = fs::File::create(folder.join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_700_000_000, nanoseconds)).unwrap();
    };
    set_time("a.txt", 500_000_000);
    let Named::File(identity) = root.identify(b"a.txt").unwrap() else { panic!("not a file") };
    for (nanoseconds, is_found) in [(500_000_000, true), (499_999_999, false), (0, true)] {
        set_time("a.txt.gz", nanoseconds);
        let found = look_beside(&root, b"a.txt", &identity, &[ContentCoding::Gzip]);
        assert_eq!(found.len(), usize::from(is_found), "{nanoseconds}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_range_selects_the_plain_form_of_a_precompressed_file() {
    let files = Files { precompressed: vec![ContentCoding::Gzip], ..Files::default() };
    check_ranges(&site_with_file("a.txt", &files, HeaderPolicy::default()), &content());
}

#[test]
fn a_file_that_is_stored_encoded_has_one_representation() {
    let gzip = EncodedExtension { extension: "svgz".to_owned(), coding: ContentCoding::Gzip };
    let compress = vec![Compression { coding: ContentCoding::Brotli, level: 6 }];
    let precompressed = vec![ContentCoding::Gzip];
    let files = Files { encoded: vec![gzip], compress, precompressed, ..Files::default() };
    let declared = || {
        let operation = FieldOp::set("content-encoding".to_owned(), "gzip".to_owned());
        HeaderPolicy { id: 1, fields: [operation].into() }
    };
    for (name, content_type, policy) in [
        ("a.svgz", "image/svg+xml", HeaderPolicy::default()),
        ("a.txt", "text/plain; charset=utf-8", declared()),
        ("a.svgz", "image/svg+xml", declared()),
    ] {
        let site = site_with_file(name, &files, policy);
        let tag = site.etag("");
        assert!(tag.ends_with("-gzip\""), "{tag}");
        let content_type = format!("\r\nContent-Type: {content_type}\r\n");
        let check = |method: &str, lines: &str| {
            let (status, head, content) = site.ask(method, lines);
            let count = |text: &str| head.to_ascii_lowercase().matches(text).count();
            let is_coded = count("\r\ncontent-encoding: gzip\r\n") == 1 && count("content-encoding") == 1;
            assert!(matches!(status, 304 | 416) || is_coded && head.contains(&content_type), "{lines}: {head}");
            assert!(status == 416 || head.contains(&format!("\r\nETag: {tag}\r\n")), "{lines}: {head}");
            assert!(count("vary") == 0 && (status != 304 || count("content-encoding") == 0), "{lines}: {head}");
            (status, content)
        };
        let whole = check("GET", "").1;
        for lines in ["Accept-Encoding: br\r\n", "Accept-Encoding: gzip;q=0\r\n", "Accept-Encoding: identity\r\n"] {
            assert_eq!(check("GET", lines), (200, whole.clone()), "{lines}");
        }
        assert_eq!(check("HEAD", "Accept-Encoding: gzip\r\n").0, 200);
        let part = whole[10..20].to_vec();
        for lines in ["", "Accept-Encoding: gzip\r\n", &format!("If-Range: {tag}\r\n")] {
            assert_eq!(check("GET", &format!("{lines}Range: bytes=10-19\r\n")), (206, part.clone()), "{lines}");
        }
        assert_eq!(check("GET", "If-Range: \"x\"\r\nRange: bytes=10-19\r\n"), (200, whole.clone()));
        assert_eq!(check("GET", "Range: bytes=0-9,1000-1009\r\n"), (200, whole.clone()));
        assert_eq!(check("GET", &format!("Range: bytes={}-\r\n", whole.len())).0, 416);
        assert_eq!(check("GET", &format!("If-None-Match: {tag}\r\n")).0, 304);
    }
}

#[test]
fn generated_content_is_not_in_the_coding_of_a_route() {
    let operation = FieldOp::set("Content-Encoding".to_owned(), "br".to_owned());
    let policy = Rc::new(HeaderPolicy { id: 1, fields: [operation].into() });
    let rules = FileRules::new(&Files::default(), 1 << 20);
    let version = Version::of_content(content(), CONTENT_TYPE, &rules, &policy, 784_111_777);
    let (status, head, listing) = Site { version, rules, services: Services::default() }.ask("GET", "");
    assert!(status == 200 && listing == content() && !head.contains("Content-Encoding"), "{head}");
}
