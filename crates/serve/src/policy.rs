//! The header steps of the configuration, as applied to prebuilt heads.

use flatout_config::model::FieldOp;
use flatout_net::response::Head;
use std::rc::Rc;

/// The header steps in force where a request reached its handler. They are part of prebuilt heads, so every
/// combination has its own number.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeaderPolicy {
    /// Its number, unique among the policies of an engine.
    pub id: u32,
    /// The operations, in order.
    pub fields: Rc<[FieldOp]>,
}

impl HeaderPolicy {
    /// The head of `status` with `fields`, after the operations.
    pub fn head(&self, status: u16, fields: &[(&str, &str)]) -> Head {
        Head::with_operations(status, fields, &self.fields)
    }

    /// Returns whether the field `name`, which is sent outside the prebuilt head, is allowed.
    pub(crate) fn lets_through(&self, name: &str) -> bool {
        !self.fields.iter().any(|change| change.removes(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::HeaderPolicy;
    use flatout_config::model::FieldOp;

    fn lines(policy: &HeaderPolicy, status: u16, fields: &[(&str, &str)]) -> Vec<String> {
        let mut output = Vec::new();
        policy.head(status, fields).append_to(&mut output, &[b'd'; 29], b"", None);
        let text = String::from_utf8(output).unwrap();
        text.trim_end().split("\r\n").skip(2).map(ToOwned::to_owned).collect()
    }

    fn policy(fields: &[FieldOp]) -> HeaderPolicy {
        HeaderPolicy { id: 1, fields: fields.into() }
    }

    #[test]
    fn fields_are_set_added_and_removed_in_order() {
        let (set, add) = (
            |name: &str, value: &str| FieldOp::Set(name.into(), value.into()),
            |name: &str, value: &str| FieldOp::Add(name.into(), value.into()),
        );
        let fields = [("Content-Type", "text/html"), ("ETag", "\"a\""), ("Cache-Control", "no-cache")];
        let all = [
            set("cache-control", "max-age=60"),
            add("Link", "<a>"),
            add("Link", "<b>"),
            FieldOp::Remove("etag".into()),
            set("X", "1"),
            set("X", "2"),
        ];
        let expected = ["Content-Type: text/html", "cache-control: max-age=60", "Link: <a>", "Link: <b>", "X: 2"];
        assert_eq!(lines(&policy(&all), 200, &fields), expected);
        assert_eq!(lines(&policy(&[]), 200, &fields).len(), 3);
        let removed = policy(&[FieldOp::Remove("Expires".into()), add("Repr-Digest", "x")]);
        assert!(!removed.lets_through("expires") && removed.lets_through("Repr-Digest"));
    }

    #[test]
    fn framing_is_not_to_be_changed_and_no_line_is_ended() {
        let fields = [("Content-Type", "text/html"), ("Content-Length", "3")];
        let changes: Vec<FieldOp> = ["Content-Length", "Transfer-Encoding", "Connection", "Date", "Content-Range"]
            .into_iter()
            .flat_map(|name| [FieldOp::Set(name.into(), "1".into()), FieldOp::Remove(name.into())])
            .chain([FieldOp::Set("X".into(), "a\r\nB: c".into()), FieldOp::Add("Y Z".into(), "a".into())])
            .collect();
        assert_eq!(lines(&policy(&changes), 200, &fields), ["Content-Type: text/html", "Content-Length: 3"]);
        let typed = policy(&[FieldOp::Set("Content-Type".into(), "a/b".into())]);
        assert_eq!(lines(&typed, 200, &fields), ["Content-Length: 3", "Content-Type: a/b"]);
        assert_eq!(lines(&typed, 304, &[("ETag", "\"a\"")]), ["ETag: \"a\""]);
        let parts = [("Content-Type", "multipart/byteranges; boundary=x")];
        assert_eq!(lines(&typed, 206, &parts), ["Content-Type: multipart/byteranges; boundary=x"]);
    }
}
