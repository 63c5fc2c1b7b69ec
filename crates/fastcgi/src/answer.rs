//! Conversion of a script's response to an HTTP response.

use crate::head::CgiHead;
use crate::outcome::PhpOutcome;
use flatout_config::model::FieldOp;
use flatout_handler::response::{Body, Head, Response};
use flatout_http::date::{DATE_BYTES, format_date};
use flatout_http::lines::{each_line, write_changed, write_line};
use flatout_os::clock::Now;

/// Fields of a response with a file that the script must not set.
const FILE_DECIDES: [&str; 7] =
    ["accept-ranges", "content-encoding", "content-range", "date", "etag", "last-modified", "vary"];

/// Builds the response with `body` and the fields of `head`, to which header operations have been applied. `length` is
/// that of the body, if known.
pub(crate) fn respond(
    head: &CgiHead,
    length: Option<u64>,
    body: Body,
    changes: &[FieldOp],
    outcome: PhpOutcome,
) -> Response {
    let mut lines = Vec::with_capacity(head.lines.len() + 128);
    write_changed(head.status, &head.lines, changes, &mut lines);
    if !head.has_date {
        write_line(b"Date", &format_date(Now::read().unix_s), &mut lines);
    }
    if let Some(length) = length {
        write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
    }
    Response::new(head.status, Head::from_lines(head.status, &lines), body, outcome)
}

/// Adds the fields of the script's `head` to `file`, which is the response with the requested file.
pub(crate) fn respond_file(mut file: Response, head: &CgiHead, changes: &[FieldOp]) -> Response {
    let date: [u8; DATE_BYTES] = format_date(Now::read().unix_s);
    let mut whole = Vec::with_capacity(file.head.len() + head.lines.len() + 128);
    file.head.append_to(&mut whole, &date, file.extra_lines(), None);
    // Skips the status line, and the empty line at the end.
    let begin = whole.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let of_file = &whole[begin..whole.len() - 2];
    let is_parts = file.status == 206
        && each_line(of_file).any(|(name, line)| {
            name.eq_ignore_ascii_case(b"content-type") && line[name.len()..].starts_with(b": multipart/byteranges")
        });
    let takes = |name: &[u8]| {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        // Multipart responses set their own type, and responses without the file's content have no type.
        let has_type = !is_parts && !matches!(file.status, 304 | 416);
        !FILE_DECIDES.iter().any(|other| is(other)) && (has_type || !is("content-type"))
    };
    let mut merged = Vec::with_capacity(whole.len() + head.lines.len());
    for (name, line) in each_line(of_file) {
        let is_set = takes(name) && each_line(&head.lines).any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !is_set {
            merged.extend_from_slice(line);
        }
    }
    for (name, line) in each_line(&head.lines) {
        if takes(name) {
            merged.extend_from_slice(line);
        }
    }
    let mut lines = Vec::with_capacity(merged.len());
    if file.status == 200 {
        file.status = head.status;
    }
    write_changed(file.status, &merged, changes, &mut lines);
    file.head = Head::from_lines(file.status, &lines);
    file.extra = None;
    file.outcome = PhpOutcome::FileSent.into();
    file
}

#[cfg(test)]
mod tests {
    use super::{respond, respond_file};
    use crate::head::CgiHead;
    use crate::outcome::PhpOutcome;
    use flatout_config::model::FieldOp;
    use flatout_handler::response::{Body, Head, Response};

    fn text(response: &Response) -> String {
        let mut output = Vec::new();
        response.head.append_to(&mut output, &[b'-'; 29], response.extra_lines(), None);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_script_head_becomes_a_response_head() {
        let head = CgiHead::parse(b"Status: 404\nX-A: 1\nDate: Sun, 06 Nov 1994 08:49:37 GMT\nB: 2\n\n").unwrap();
        let changes = [FieldOp::set("x-a".into(), "2".into()), FieldOp::remove("B".into())];
        let response = respond(&head, Some(3), Body::Empty, &changes, PhpOutcome::Answered);
        let expected = "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nx-a: 2\r\n\
                        Content-Length: 3\r\n\r\n";
        assert_eq!((response.status, text(&response).as_str()), (404, expected));
        let dated = respond(&CgiHead::parse(b"\n").unwrap(), None, Body::Empty, &[], PhpOutcome::Answered);
        assert_eq!(text(&dated).matches("Date: ").count(), 1);
    }

    #[test]
    fn a_file_response_keeps_its_own_fields() {
        let fields = [("Content-Type", "text/plain"), ("Content-Length", "3"), ("ETag", "\"f\""), ("Vary", "x")];
        let file = |status| {
            Response::new(status, Head::new(status, &fields), Body::Bytes(b"abc".to_vec().into()), PhpOutcome::Answered)
        };
        let head = CgiHead::parse(
            b"Content-Type: image/png\nETag: \"s\"\nContent-Disposition: attachment\nContent-Length: 0\nVary: y\n\n",
        )
        .unwrap();
        let told = text(&respond_file(file(200), &head, &[]));
        for line in [
            "Content-Type: image/png",
            "ETag: \"f\"",
            "Vary: x",
            "Content-Disposition: attachment",
            "Content-Length: 3",
        ] {
            assert!(told.contains(&format!("\r\n{line}\r\n")), "{told}");
        }
        assert!(!told.contains("\"s\"") && !told.contains("text/plain") && !told.contains("Vary: y"));
        assert!(text(&respond_file(file(304), &head, &[])).contains("text/plain"));
    }
}
