//! Lists and access logs that a load run is made of.

use flatout_load::record::{Hdr, hlog};
use flatout_load::report::RunReport;
use flatout_load::workload::log::{LogReader, parse_line};
use flatout_load::workload::mine::mine;
use flatout_load::workload::{AccessLog, Replay, filelist, urls};

/// Lists of files and of URLs.
pub(crate) const LIST_SEEDS: &[&[u8]] = &[
    b"# list\n/file500.html 350 #500\n/file5k.html\t500 #5125 # words\n/f -1 #1#sha256=00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff\n",
    b"http://h:81/a 3\nhttps://[::1]/b#c\r\n\n/x 18446744073709551616\n12\n",
];

/// Lines of logs in each form.
pub(crate) const LOG_SEEDS: &[&[u8]] = &[
    b"::1 - me [21/Nov/2026:00:23:47 +0000] \"GET /a?b=\\x22c HTTP/1.1\" 200 1024 \"-\" \"curl/7.88.1\" hit sent 21\n",
    b"h - - [10/Oct/2000:13:55:36 -0700] \"HEAD / HTTP/1.0\" 304 -\r\nh - - [10/Oct/2000:13:55:36 -0700] \"-\" 400 0\n",
    b"{\"time\":\"2026-11-21T00:23:47.123Z\",\"client\":\"::1\",\"host\":\"a:8\",\"method\":\"GET\",\"target\":\"/\\u00e9\",\"status\":200,\"body_bytes\":7,\"tls\":true}\n{\"time\":\"2026-11-21T00:23:47Z\",\"method\":null,\"target\":\"\",\"status\":null}",
];

/// Histograms in HdrHistogram's V2 form: three digits from 1 to an hour in nanoseconds, without and with a count.
pub(crate) const HISTOGRAM_SEEDS: &[&[u8]] = &[
    b"\x1c\x84\x93\x13\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\x03\x46\x30\xb8\xa0\0\x3f\xf0\0\0\0\0\0\0",
    b"\x1c\x84\x93\x13\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\x03\x46\x30\xb8\xa0\0\x3f\xf0\0\0\0\0\0\0\x05\x02",
];

/// A log of histograms, and lines that are none.
pub(crate) const HLOG_SEEDS: &[&[u8]] = &[
    b"#[Histogram log format version 1.3]\n#[StartTime: 1441812279.474 (seconds since epoch)]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\nTag=A,0.127,1.007,2.769,HISTFAAAABV42pNpmSzMwMDAxAABTAxQwAQANQoBAg==\n",
    b"0.1,1,2,HISTFAAA\n#[BaseTime: x\nTag=,\n",
];

/// Beginnings of results.
pub(crate) const RESULT_SEEDS: &[&[u8]] = &[
    b"{\"schema\":\"flatout-run\",\"schema_version\":1,\"steps\":[]}",
    b"{\"schema\":\"flatout-run\",\"schema_version\":4294967295}",
];

/// Bytes are refused, or are a histogram that is the same after it was written and read again.
pub(crate) fn check_histograms(bytes: &[u8]) {
    let Ok(histogram) = Hdr::decode(bytes) else { return };
    let again = Hdr::parse(&histogram.encode());
    assert_eq!(again.as_ref(), Ok(&histogram));
    // All that a document may hold can be added up with ours.
    if let (Ok(text), Ok(mut ours)) = (serde_json::to_string(&histogram), Hdr::new())
        && let Ok(theirs) = serde_json::from_str::<Hdr>(&text)
    {
        assert!(ours.merge(&theirs).is_ok());
        assert_eq!(ours.percentiles(1), theirs.percentiles(1));
    }
}

/// A log is refused with the number of a line, or is the same after it was written and read again.
pub(crate) fn check_histogram_logs(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match hlog::HistogramLog::parse(&text) {
        Ok(log) => {
            let again = hlog::HistogramLog::parse(&log.encode());
            assert_eq!(again.map(|again| again.rows.len()).ok(), Some(log.rows.len()));
        }
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line)),
    }
}

/// A result is refused in words, or can be written and read again.
pub(crate) fn check_results(bytes: &[u8]) {
    match RunReport::parse(&String::from_utf8_lossy(bytes)) {
        Ok(report) => {
            let again = report.encode().and_then(|text| RunReport::parse(&text));
            assert!(again.is_ok_and(|again| again.steps.len() == report.steps.len()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A list is refused with numbers of its lines, or every entry of it can be asked for and is written as it is read.
pub(crate) fn check_lists(bytes: &[u8]) {
    let lines = bytes.split(|&byte| byte == b'\n').count() as u64;
    for parsed in [filelist::parse(bytes), urls::parse(bytes)] {
        match parsed {
            Ok(workload) => {
                let shares: f64 = workload.classes.iter().map(|class| class.share).sum();
                assert!((shares - 1.0).abs() < 1e-6, "shares add up to {shares}");
                for entry in &workload.entries {
                    let target = &entry.address.target;
                    assert!(target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic()));
                    assert!(usize::from(entry.class) < workload.classes.len());
                    let line = filelist::format_line(
                        &entry.address.to_string(),
                        entry.weight as u64,
                        entry.body_bytes,
                        entry.sha256.as_ref(),
                    );
                    assert_eq!(
                        filelist::parse_line(line.trim_ascii()).map(|read| read.map(|read| read.address)),
                        Ok(Some(entry.address.clone()))
                    );
                }
                for request in 0..20 {
                    assert!(workload.choose(1, request) < workload.entries.len());
                }
            }
            Err(faults) => {
                assert!(faults.count > 0 && faults.first.iter().all(|fault| fault.line <= lines));
                let is_plain = |text: &str| text.len() < 300 && !text.chars().any(char::is_control);
                assert!(faults.first.iter().all(|fault| is_plain(&fault.excerpt)));
            }
        }
    }
}

/// A log is the same in whatever pieces it comes; each of its lines is kept, passed over or named.
pub(crate) fn check_logs(bytes: &[u8]) {
    let whole = AccessLog::read(bytes);
    for size in [1, 3, 16] {
        let mut reader = LogReader::default();
        for piece in bytes.chunks(size) {
            reader.handle_bytes(piece);
        }
        assert_eq!(format!("{:?}", reader.finish()), format!("{whole:?}"));
    }
    let told = |line: &&[u8]| !line.trim_ascii().is_empty();
    let lines = bytes.split(|&byte| byte == b'\n').filter(told).count() as u64;
    assert_eq!(lines, whole.requests.len() as u64 + whole.skipped_total() + whole.faults.count);
    assert!(whole.requests.iter().all(|request| request.client < whole.clients));
    if let Ok(replay) = Replay::of(&whole, 1.0) {
        assert!(replay.requests.is_sorted_by_key(|request| request.at_ns));
        assert_eq!(replay.requests.len(), whole.requests.len());
    }
    // What is made of a log is a list.
    for verifies_sizes in [false, true] {
        let mined = mine(&whole, 100, verifies_sizes);
        if mined.urls > 0 {
            assert_eq!(filelist::parse(mined.text.as_bytes()).map(|list| list.entries.len()), Ok(mined.urls));
        }
    }
    let _ = parse_line(bytes);
}
