//! Strings with placeholders: `{port}`, `{size}`, `{url:origin}`.
//!
//! Only `{name}` and `{name:of}` without blanks are placeholders. Every other brace is literal, so that server
//! configurations, which are full of braces, can be written unchanged. An unknown name is also literal; if it can only
//! be a mistake, it has been reported when the file was read.

/// A part of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Literal text.
    Literal(&'t str),
    /// A placeholder.
    Name(Name<'t>),
}

/// A placeholder in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'t> {
    /// The name. It ends at the colon, if there is one.
    pub name: &'t str,
    /// The part after the colon, which names a server.
    pub of: Option<&'t str>,
    /// The whole placeholder, including its braces.
    pub whole: &'t str,
}

/// Splits a string into literal text and placeholders.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        let name = text[open..].find('}').and_then(|length| name_of(&text[open..=open + length]));
        let Some(name) = name else {
            at = open + 1;
            continue;
        };
        if from < open {
            parts.push(Part::Literal(&text[from..open]));
        }
        at = open + name.whole.len();
        from = at;
        parts.push(Part::Name(name));
    }
    if from < text.len() {
        parts.push(Part::Literal(&text[from..]));
    }
    parts
}

/// Returns the placeholders in a string.
pub fn names(text: &str) -> impl Iterator<Item = Name<'_>> {
    parts(text).into_iter().filter_map(|part| match part {
        Part::Name(name) => Some(name),
        Part::Literal(_) => None,
    })
}

/// Replaces every placeholder for which `value` returns a value.
pub fn expand(text: &str, value: &dyn Fn(Name<'_>) -> Option<String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    for part in parts(text) {
        match part {
            Part::Literal(literal) => expanded.push_str(literal),
            Part::Name(name) => match value(name) {
                Some(value) => expanded.push_str(&value),
                None => expanded.push_str(name.whole),
            },
        }
    }
    expanded
}

fn name_of(whole: &str) -> Option<Name<'_>> {
    let inner = whole.strip_prefix('{')?.strip_suffix('}')?;
    let (name, of) = inner.split_once(':').map_or((inner, None), |(name, of)| (name, Some(of)));
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_of_name);
    let is_of = of.is_none_or(|of| !of.is_empty() && of.chars().all(|c| is_of_name(c) || matches!(c, '+' | '.')));
    (is_name && is_of).then_some(Name { name, of, whole })
}

/// Returns whether a character may be part of a name: lower-case letters, digits, hyphens and underscores.
pub fn is_of_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::{Part, expand, names, parts};

    #[test]
    fn names_are_told_from_the_braces_of_configurations() {
        let text = "server { listen {address}:{port}; {size}{x:y} } {} {A} {a b} {port";
        let found: Vec<&str> = names(text).map(|name| name.whole).collect();
        assert_eq!(found, ["{address}", "{port}", "{size}", "{x:y}"]);
        let whole: String = parts(text)
            .into_iter()
            .map(|part| match part {
                Part::Literal(literal) => literal,
                Part::Name(name) => name.whole,
            })
            .collect();
        assert_eq!(whole, text);
    }

    #[test]
    fn what_is_known_is_put_in_and_the_rest_stays() {
        let value = |name: super::Name<'_>| match (name.name, name.of) {
            ("port", None) => Some("80".to_owned()),
            ("port", Some(of)) => Some(format!("<{of}>")),
            _ => None,
        };
        assert_eq!(expand("é{port}{{port}}{port:ä}{port:b+c}{path}", &value), "é80{80}{port:ä}<b+c>{path}");
        assert_eq!(expand("", &value), "");
    }
}
