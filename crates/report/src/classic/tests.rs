use super::{Classic, parse_url, spread};
use crate::tests::fixture;
use flatout_load::report::RunReport;

/// Asserts that a text contains the words of the original's layout, with varying text in between.
fn assert_layout(text: &str, layout: &str) {
    let lines: Vec<&str> = text.lines().collect();
    for line in layout.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split('…').collect();
        let fits = |text: &&&str| {
            let mut rest = **text;
            words.iter().all(|word| match rest.find(word) {
                Some(at) => {
                    rest = &rest[at + word.len()..];
                    true
                }
                None => false,
            })
        };
        assert!(lines.iter().find(fits).is_some(), "no line like {line:?} in\n{text}");
    }
}

#[test]
fn httperf_is_as_httperf_prints_it() {
    let text = Classic::Httperf.print(&fixture::single());
    let (report, notes) = text.split_once("\n# ").unwrap();
    assert_eq!(report, include_str!("tests/httperf.txt"));
    assert!(notes.contains("addrunavail is counted"));
    let text = Classic::Httperf.print(&fixture::failing());
    assert!(text.contains("Errors: total 12 client-timo 0 socket-timo 0 connrefused 0 connreset 12\n"), "{text}");
}

#[test]
fn webstone_is_as_webstone_prints_it() {
    let text = Classic::Webstone.print(&fixture::single());
    let (report, _) = text.split_once("\n# ").unwrap();
    assert_eq!(report, include_str!("tests/webstone.txt"));
    let text = Classic::Webstone.print(&fixture::failing());
    assert_layout(&text, "Error Level:\t\t\t4.0000 %\n300 connection(s) to server, 12 errors\n# /b: …pages");
}

#[test]
fn ptester_is_as_ptester_prints_it() {
    let text = Classic::Ptester.print(&fixture::single());
    let (report, _) = text.split_once("\n# ").unwrap();
    assert_eq!(report, include_str!("tests/ptester.txt"));
}

#[test]
fn wrk_is_as_wrk_prints_it() {
    let text = Classic::Wrk.print(&fixture::single());
    let (report, notes) = text.split_once("\n# ").unwrap();
    assert_eq!(report, include_str!("tests/wrk.txt"));
    assert!(notes.contains("From the intended start"));
    let text = Classic::Wrk.print(&fixture::failing());
    assert_layout(&text, "  Socket errors: connect 0, read 12, write 0, timeout 0");
}

#[test]
fn autobench_has_a_row_for_each_rate() {
    let text = Classic::Autobench.print(&fixture::sweep("sweep", 10));
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 11);
    assert!(rows.iter().all(|row| row.len() == 10), "{rows:?}");
    assert_eq!(rows[0][..3], ["dem_req_rate", "req_rate_127.0.0.1", "con_rate_127.0.0.1"]);
    assert_eq!(rows[1][..3], ["100", "100.0", "100.0"]);
    assert_eq!(rows[10][9], "2.5");
    assert!(text.contains("# client-saturated: 97 % busy"));
}

#[test]
fn every_view_says_what_must_not_be_believed_and_takes_an_empty_result() {
    for &view in Classic::ALL {
        assert_eq!(Classic::parse(view.name()), Ok(view));
        let text = view.print(&fixture::sweep("sweep", 10));
        assert!(text.contains("# client-saturated"), "{}", view.name());
        let mut empty = fixture::single();
        empty.steps.clear();
        view.print(&empty);
    }
    assert!(Classic::parse("siege").unwrap_err().contains("httperf, webstone"));
}

#[test]
fn urls_are_taken_apart_and_samples_summed_up() {
    let parts = |text: &str| {
        let url = parse_url(&RunReport { url: text.to_owned(), ..fixture::single() });
        (url.secure, url.host, url.port, url.target)
    };
    assert_eq!(parts("http://a:8080/b?c"), (false, "a".to_owned(), 8080, "/b?c".to_owned()));
    assert_eq!(parts("https://[::1]"), (true, "[::1]".to_owned(), 443, "/".to_owned()));
    assert_eq!(parts(""), (false, String::new(), 80, "/".to_owned()));
    assert_eq!(spread(&[1.0, 2.0, 3.0]), (1.0, 2.0, 3.0, 1.0));
    assert_eq!(spread(&[5.0]), (5.0, 5.0, 5.0, 0.0));
    assert_eq!(spread(&[]), (0.0, 0.0, 0.0, 0.0));
}
