use super::{Hdr, HistogramLog, ROWS_MAX, Row};

/// Rows that the Java library wrote (`jHiccup`), from the test data of the `hdrhistogram` crate.
const JAVA: &str = include_str!("tagged.hlog");

fn row(tag: &str, values: &[u64]) -> Row {
    let mut histogram = Hdr::new().unwrap();
    for value in values {
        histogram.record(*value);
    }
    Row { tag: Some(tag.to_owned()), start_s: 0.5, length_s: 10.25, histogram }
}

#[test]
fn logs_of_the_java_library_are_read() {
    let log = HistogramLog::parse(JAVA).unwrap();
    assert_eq!(log.started_unix_s, Some(1_441_812_279.474));
    assert_eq!(log.rows.len(), 4);
    assert_eq!((log.rows[0].tag.as_deref(), log.rows[1].tag.as_deref()), (None, Some("A")));
    assert_eq!(log.rows[0].histogram, log.rows[1].histogram);
    // The third field of each row is the largest value, as the library itself found it.
    for (row, max_ms) in log.rows.iter().zip([2.769, 2.769, 0.442, 0.442]) {
        let found_ms = row.histogram.histogram().max() as f64 / 1e6;
        assert!((found_ms - max_ms).abs() < 0.0006, "{found_ms} {max_ms}");
        assert!(row.histogram.histogram().len() > 500 && (row.length_s - 1.0).abs() < 0.01);
    }
}

#[test]
fn what_was_written_is_read_again() {
    let rows = vec![row("response", &[1, 5, 1_000_000, u64::MAX]), row("lag", &[])];
    let log = HistogramLog { started_unix_s: Some(1_000_000_000.5), base_unix_s: Some(7.0), rows };
    let text = log.encode();
    assert!(
        text.starts_with("#[Histogram log format version 1.3]\n#[StartTime: 1000000000.500 (seconds since epoch)]\n")
    );
    assert!(text.lines().nth(4).unwrap().starts_with("Tag=response,0.500,10.250,"));
    assert!(text.lines().all(|line| !line.contains("Compressed") || line.starts_with('"')));
    assert_eq!(HistogramLog::parse(&text).unwrap(), log);
    assert_eq!(HistogramLog::parse(&text.replace('\n', "\r\n")).unwrap(), log);
}

#[test]
fn a_tag_cannot_break_its_row() {
    let mut log = HistogramLog { rows: vec![row("a", &[3])], ..HistogramLog::default() };
    log.rows[0].tag = Some("one, two\n#three".to_owned());
    let read = HistogramLog::parse(&log.encode()).unwrap();
    assert_eq!(read.rows[0].tag.as_deref(), Some("onetwo#three"));
}

#[test]
fn hostile_logs_are_refused_with_the_line() {
    let good = row("a", &[3]).histogram.encode();
    for (line, reason) in [
        (String::from("#[Histogram log format version 2.0]"), "version"),
        ("#[StartTime: soon]".into(), "not a time"),
        ("#[StartTime: ]".into(), "not a time"),
        ("Tag=x".into(), "tag without a row"),
        ("1".into(), "no length"),
        ("1,2".into(), "no largest"),
        ("1,2,3".into(), "no histogram"),
        (format!("x,2,3,{good}"), "not a time"),
        (format!("-1,2,3,{good}"), "out of range for a time"),
        (format!("NaN,2,3,{good}"), "out of range for a time"),
        (format!("1,inf,3,{good}"), "out of range for a time"),
        (format!("1,2,much,{good}"), "not a number"),
        (format!("1,2,3,{good},4"), "more than four"),
        ("1,2,3,!!!!".into(), "base64"),
        ("1,2,3,AAAAAAAA".into(), "version 2"),
        (format!("1,2,3,{}", &good[..good.len() - 4]), "lengths disagree"),
    ] {
        let text = format!("#[Histogram log format version 1.3]\n\n{line}\n");
        let error = HistogramLog::parse(&text).unwrap_err();
        assert_eq!(error.line, 3, "{line}");
        assert!(error.to_string().contains(reason), "{line}: {error}");
    }
    let many = format!("1,2,3,{good}\n").repeat(ROWS_MAX + 1);
    assert_eq!(
        HistogramLog::parse(&many).unwrap_err().line,
        super::COUNTS_MAX / Hdr::new().unwrap().histogram().distinct_values() + 1
    );
}
