//! Prometheus text format 0.0.4. Existing crates keep a registry of live metrics, but here the values already exist.

use std::fmt::{Display, Write as _};

/// Appends the HELP and TYPE lines of a metric family. `kind` is `counter`, `gauge` or `summary`.
pub fn push_head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a sample. The label values are escaped.
pub fn push_sample<'l>(
    text: &mut String,
    name: &str,
    labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    value: impl Display,
) {
    text.push_str(name);
    let mut before = '{';
    for (label, value) in labels {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{before}{label}=\"{value}\"");
        before = ',';
    }
    let end = if before == '{' { "" } else { "}" };
    let _ = writeln!(text, "{end} {value}");
}

#[cfg(test)]
mod tests {
    use super::{push_head, push_sample};

    #[test]
    fn label_values_are_escaped() {
        let mut text = String::new();
        push_head(&mut text, "a_total", "counter", "All.");
        push_sample(&mut text, "a_total", [], 1);
        push_sample(&mut text, "a_total", [("b", "a\\b\"c\nd"), ("e", "")], 0.5);
        let expected =
            "# HELP a_total All.\n# TYPE a_total counter\na_total 1\na_total{b=\"a\\\\b\\\"c\\nd\",e=\"\"} 0.5\n";
        assert_eq!(text, expected);
    }
}
