use super::fault::FaultKind;
use super::fileset::{ContentGenerator, Fileset};
use super::log::AccessLog;
use super::mine::mine;
use super::{EntryContent, Workload, filelist, parse_named, urls};
use crate::record::CLASSES_MAX;

fn faults(text: &str) -> Vec<(u64, FaultKind)> {
    let faults = filelist::parse(text.as_bytes()).unwrap_err();
    faults.first.iter().map(|fault| (fault.line, fault.kind)).collect()
}

#[test]
fn webstones_standard_list_has_its_published_mean() {
    let set = Fileset::webstone_standard();
    let list = filelist::parse(set.filelist(|_| None).as_bytes()).unwrap();
    assert_eq!(list.body_bytes_mean(), Some(19_773.0));
    assert_eq!(list.entries.iter().map(|entry| entry.weight as u64).sum::<u64>(), 1000);
    assert_eq!(list.describe(), "filelist: files 5, weights 1000, mean body 19773 B");
    assert_eq!(list.classes[0].name, "/file500.html");
    assert!((list.classes[0].share - 0.35).abs() < 1e-12);
    let mut counts = [0_u32; 5];
    for request in 0..1_000_000 {
        counts[list.choose(42, request)] += 1;
    }
    for (count, entry) in counts.into_iter().zip(&list.entries) {
        let expected = entry.weight * 1000.0;
        assert!((f64::from(count) - expected).abs() < 4.5 * expected.sqrt(), "{counts:?}");
    }
}

#[test]
fn the_choice_follows_from_seed_and_request_alone() {
    let list = filelist::parse(b"/a 1\n/b 1\n/c 5").unwrap();
    let chosen = |list: &Workload, seed| (0..100).map(|request| list.choose(seed, request)).collect::<Vec<_>>();
    assert_eq!(chosen(&list, 1), chosen(&list.clone(), 1));
    assert_ne!(chosen(&list, 1), chosen(&list, 2));
    let list = urls::parse(b"/a\n/b\n/c").unwrap();
    assert_eq!((0..7).map(|request| list.choose(9, request)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_filelist_is_read_as_the_original_reads_it() {
    let text = "# a comment\n\n/a.html\n\t/b.html   7 #123 # words\r\n/c 0\n/d -5#9\nhttp://h:81/e 2 # 12 bytes\n/f 3 #1 #sha256=00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00FF\n";
    let list = filelist::parse(text.as_bytes()).unwrap();
    let found: Vec<_> =
        list.entries.iter().map(|e| (e.address.to_string(), e.weight, e.body_bytes, e.sha256.is_some())).collect();
    let expected = [
        ("/a.html", 1.0, None, false),
        ("/b.html", 7.0, Some(123), false),
        ("/c", 1.0, None, false),
        ("/d", 1.0, Some(9), false),
        ("http://h:81/e", 2.0, None, false),
        ("/f", 3.0, Some(1), true),
    ];
    assert_eq!(found, expected.map(|(address, weight, bytes, digest)| (address.to_owned(), weight, bytes, digest)));
    assert_eq!(list.entries[5].sha256.map(|digest| (digest[0], digest[1], digest[31])), Some((0, 255, 255)));
    assert_eq!(list.body_bytes_mean(), None);
}

#[test]
fn every_malformed_line_is_named() {
    let long = "x".repeat(filelist::LINE_BYTES_MAX + 1);
    let text = format!(
        "/ok 5\nfile.html 3\n/a x\n/a 1.5\n/a 1 2\nftp://h/ 1\n/a 1 #sha256=12\n/a 1 #99999999999999999999\n/\u{7f}\n{long}\n/a 9999999999999\n12\n/a +\n"
    );
    let expected = [
        (2, FaultKind::NoAddress),
        (3, FaultKind::WeightInvalid),
        (4, FaultKind::WeightInvalid),
        (5, FaultKind::TooManyWords),
        (6, FaultKind::SchemeUnknown),
        (7, FaultKind::DigestInvalid),
        (8, FaultKind::SizeInvalid),
        (9, FaultKind::NotText),
        (10, FaultKind::LineTooLong),
        (11, FaultKind::WeightInvalid),
        (12, FaultKind::WebStone1),
        (13, FaultKind::WeightInvalid),
    ];
    assert_eq!(faults(&text), expected);
    assert_eq!(faults("# nothing\n"), [(0, FaultKind::Empty)]);
    assert_eq!(
        filelist::parse(b"/a\n\xff\n").unwrap_err().to_string(),
        "line 2: the line is not UTF-8, or contains a control character: \\xff"
    );
}

#[test]
fn lists_of_urls_have_comments_and_fragments() {
    let list = urls::parse(b"# urls\n/a#top\nhttp://h/b # words\n\n /c\n").unwrap();
    let found: Vec<_> = list.entries.iter().map(|entry| entry.address.to_string()).collect();
    assert_eq!(found, ["/a", "http://h/b", "/c"]);
    // A weight, as in WebStone's lists, is ignored; a second one is an error.
    assert_eq!(urls::parse(b"/a 5\n/b -1 # none\n").unwrap().entries.len(), 2);
    assert_eq!(urls::parse(b"/a 5 6\n").unwrap_err().first[0].kind, FaultKind::TooManyWords);
    let faults = urls::parse(b"/a\n/b /c\nnothing\n").unwrap_err();
    let found: Vec<_> = faults.first.iter().map(|fault| (fault.line, fault.kind)).collect();
    assert_eq!(found, [(2, FaultKind::TooManyWords), (3, FaultKind::NoAddress)]);
    assert_eq!(urls::parse(b"").unwrap_err().first[0].kind, FaultKind::Empty);
}

#[test]
fn many_entries_are_classed_by_size() {
    let text: String = (0..100).map(|n| format!("/{n} 1 #{}\n", 1_u64 << (n % 24))).collect();
    let list = filelist::parse(format!("{text}/x 1\n").as_bytes()).unwrap();
    let names: Vec<_> = list.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(
        names,
        ["under 1 KiB", "1 to 10 KiB", "10 to 100 KiB", "100 KiB to 1 MiB", "1 MiB and more", "unknown size"]
    );
    assert!((list.classes.iter().map(|class| class.share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(list.classes[usize::from(list.entries[100].class)].name, "unknown size");
    assert!(list.classes[0].body_bytes_mean.is_some() && list.classes[5].body_bytes_mean.is_none());
}

#[test]
fn sets_of_files_make_lists_that_read_back() {
    for set in [
        Fileset::webstone_standard(),
        Fileset::webstone_simple(),
        Fileset::web96(5.0, 4.0).unwrap(),
        Fileset::web99(1.0).unwrap(),
    ] {
        let list = filelist::parse(set.filelist(|index| Some([index as u8; 32])).as_bytes()).unwrap();
        assert_eq!(list.entries.len(), set.files.len(), "{}", set.name);
        for (entry, file) in list.entries.iter().zip(&set.files) {
            assert_eq!((&*entry.address.target, entry.body_bytes), (file.path.as_str(), Some(file.bytes)));
        }
        assert!(list.entries[0].sha256.is_some());
    }
    let set = Fileset::web96(5.0, 4.0).unwrap();
    let list = filelist::parse(set.filelist(|_| None).as_bytes()).unwrap();
    let (made, read) = (parse_named("web96:5").unwrap().body_bytes_mean(), list.body_bytes_mean());
    assert!((made.unwrap() - read.unwrap()).abs() < 0.01, "{made:?} {read:?}");
}

#[test]
fn content_is_made_the_same_in_any_pieces_and_does_not_compress() {
    let make = |path: &str, size: usize| {
        let mut content = ContentGenerator::of(path);
        let mut bytes = vec![0; 10_000];
        for piece in bytes.chunks_mut(size) {
            content.fill(piece);
        }
        bytes
    };
    let whole = make("/a", 10_000);
    for size in [1, 7, 4096] {
        assert_eq!(make("/a", size), whole);
    }
    assert_ne!(make("/b", 10_000), whole);
    assert!(whole.iter().all(|byte| byte.is_ascii_graphic() || *byte == b'\n'));
    // All 64 characters occur about equally often: six random bits per character.
    let mut counts = [0_u32; 256];
    for byte in &whole {
        counts[usize::from(*byte)] += 1;
    }
    assert!(counts.iter().filter(|count| **count > 0).count() == 65 && counts.iter().all(|count| *count < 250));
}

#[test]
fn named_workloads_say_what_they_need() {
    assert_eq!(parse_named("web96:5").unwrap().entries.len(), 360);
    assert!(parse_named("web96:5,lambda=2").unwrap().describe().contains("lambda 2"));
    assert_eq!(parse_named("web99:1").unwrap().session_length, Some("30%:1,70%:uniform:4.5..15.5"));
    for (text, part) in [
        ("web96", "web96:100"),
        ("web96:x", "web96:100"),
        ("web96:-1", "web96:100"),
        ("web96:5,mu=2", "lambda=4"),
        ("web96:5,lambda=0", "lambda is 0"),
        ("web96:1e300", "out of range"),
        ("web99:", "web99:50"),
        ("web05:1", "no workload called"),
    ] {
        let error = parse_named(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_mined_list_is_the_log_by_weight() {
    let line = |client: &str, method: &str, target: &str, status: u16, bytes: &str| {
        format!("{client} - - [21/Nov/2026:00:23:47 +0000] \"{method} {target} HTTP/1.1\" {status} {bytes}\n")
    };
    let text = [
        line("a", "GET", "/rare", 200, "10"),
        line("a", "GET", "/often", 200, "20"),
        line("b", "GET", "/often", 200, "20"),
        line("b", "GET", "/often", 304, "0"),
        line("b", "GET", "/changed", 200, "5"),
        line("b", "GET", "/changed", 200, "6"),
        line("b", "GET", "/none", 404, "6"),
        line("b", "POST", "/form", 200, "6"),
        line("b", "HEAD", "/often", 200, "20"),
        line("b", "GET", "/unsized", 200, "-"),
    ]
    .concat();
    let mined = mine(&AccessLog::read(text.as_bytes()), 10, true);
    assert_eq!((mined.urls, mined.requests, mined.left_out), (4, 6, 0));
    let lines: Vec<_> = mined.text.lines().skip(1).collect();
    assert_eq!(lines, ["/often\t2\t#20", "/changed\t2\t# 5 to 6 bytes", "/rare\t1\t#10", "/unsized\t1"]);
    let list = filelist::parse(mined.text.as_bytes()).unwrap();
    assert_eq!(list.entries.iter().map(|entry| entry.body_bytes).collect::<Vec<_>>(), [Some(20), None, Some(10), None]);
    // The sizes may be those of compressed responses.
    let mined = mine(&AccessLog::read(text.as_bytes()), 10, false);
    let lines: Vec<_> = mined.text.lines().skip(1).collect();
    assert_eq!(lines, ["/often\t2\t# 20 bytes", "/changed\t2\t# 5 to 6 bytes", "/rare\t1\t# 10 bytes", "/unsized\t1"]);
    let list = filelist::parse(mined.text.as_bytes()).unwrap();
    assert!(list.entries.iter().all(|entry| entry.body_bytes.is_none()));
    let mined = mine(&AccessLog::read(text.as_bytes()), 1, false);
    assert_eq!((mined.urls, mined.requests, mined.left_out), (1, 2, 3));
}

#[test]
fn each_url_of_a_list_is_a_class_and_the_rest_are_others() {
    let text: String = (0..300).map(|number| format!("/{number}\n")).chain(["/7\n".to_owned()]).collect();
    let list = urls::parse(text.as_bytes()).unwrap();
    assert_eq!((list.classes.len(), list.classes[255].name.as_str()), (CLASSES_MAX, "other URLs"));
    assert_eq!((list.classes[254].name.as_str(), list.entries[254].class), ("/254", 254));
    assert_eq!((list.entries[255].class, list.entries[299].class, list.entries[300].class), (255, 255, 7));
}

#[test]
fn lines_of_a_list_may_have_a_method_and_content() {
    let text =
        "/a\nDELETE /b   # remove it\n  POST /c  a=b c # d\nPUT http://127.0.0.1:8081/d @ dir/file x\nGET /e @f\n";
    let list = urls::parse(text.replace("@ dir", "@dir").as_bytes()).unwrap();
    let entries: Vec<_> = list.entries.iter().map(|entry| (entry.method_name(), entry.content.clone())).collect();
    let file = |name: &str| Some(EntryContent::File(name.into()));
    assert_eq!(
        entries,
        [
            ("GET", None),
            ("DELETE", None),
            ("POST", Some(EntryContent::Bytes(b"a=b c # d"[..].into()))),
            ("PUT", file("dir/file x")),
            ("GET", file("f")),
        ]
    );
    let names: Vec<&str> = list.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["/a", "DELETE /b", "POST /c", "PUT http://127.0.0.1:8081/d", "/e"]);
    for (text, kind) in [
        ("POST /a @", FaultKind::ContentInvalid),
        ("CONNECT /a", FaultKind::MethodInvalid),
        ("POST a", FaultKind::NoAddress),
        ("post /a x", FaultKind::TooManyWords),
    ] {
        let faults = urls::parse(text.as_bytes()).unwrap_err();
        assert_eq!(faults.first[0].kind, kind, "{text}");
    }
}
