//! Shapes of settings: the number of values, the allowed properties, and whether there is a block.

use super::reader::Reader;
use crate::code::Code;
use crate::diagnostic::{Report, Span};
use crate::syntax::{Node, Property, Scalar};

/// The maximum number of values of a setting. It must be limited because each entry of a list is compared with all
/// others.
pub(super) const VALUES_MAX: usize = 10_000;

/// The parts that a setting can have.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The minimum and maximum number of values.
    arguments: (usize, usize),
    /// The allowed properties that have no rows.
    pub(super) properties: &'static [&'static str],
    block: BlockRule,
    /// The parts of which the setting needs at least one, for messages: `memory, disk, or both`. Empty if none is
    /// required.
    needs: &'static str,
    /// An example of the correct form, for messages.
    pub(super) example: &'static str,
}

/// States if a setting takes a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRule {
    None,
    Optional,
    Needed,
}

impl Shape {
    /// A shape without values, properties or a block.
    pub const fn none(example: &'static str) -> Self {
        Self { arguments: (0, 0), properties: &[], block: BlockRule::None, needs: "", example }
    }

    /// A shape with exactly one value, and without properties or a block.
    pub const fn value(example: &'static str) -> Self {
        Self::none(example).takes(1, 1)
    }

    /// A shape with at least `least` values, and without properties or a block.
    pub const fn values(least: usize, example: &'static str) -> Self {
        Self::none(example).takes(least, VALUES_MAX)
    }

    /// A shape that allows anything, because the setting's reader checks the parts itself.
    pub(super) const fn any() -> Self {
        Self::none("")
    }

    pub(super) const fn is_any(&self) -> bool {
        self.example.is_empty()
    }

    /// Sets the minimum and maximum number of values.
    #[must_use]
    pub const fn takes(self, least: usize, most: usize) -> Self {
        Self { arguments: (least, most), ..self }
    }

    /// Sets the allowed properties that have no rows.
    #[must_use]
    pub const fn with(self, properties: &'static [&'static str]) -> Self {
        Self { properties, ..self }
    }

    /// Allows a block.
    #[must_use]
    pub const fn may_have_block(self) -> Self {
        Self { block: BlockRule::Optional, ..self }
    }

    /// Requires a block.
    #[must_use]
    pub const fn has_block(self) -> Self {
        Self { block: BlockRule::Needed, ..self }
    }

    /// Requires at least one of the parts that `needs` describes.
    pub(super) const fn needs(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }

    /// Checks a setting against this shape, with `properties` allowed in addition, and reports surplus and missing
    /// parts. Returns `false` if values are missing, in which case the setting must not be read.
    pub fn check(&self, node: &Node, properties: &[&'static str], report: &mut Report) -> bool {
        let name = &node.name;
        let (least, most) = self.arguments;
        let complete = node.arguments.len() >= least;
        let mut add = |code, span, message: String| {
            report.add(code, span, message).note(format!("as in: {}", self.example));
        };
        if !complete {
            let message = match least - node.arguments.len() {
                1 if least == 1 => format!("`{name}` needs a value"),
                1 => format!("`{name}` needs one more value"),
                more => format!("`{name}` needs {more} more values"),
            };
            add(Code::ValueMissing, node.span, message);
        }
        if let Some(extra) = node.arguments.get(most) {
            let message = match most {
                0 => format!("`{name}` takes no value"),
                1 => format!("`{name}` takes one value"),
                _ => format!("`{name}` takes {most} values"),
            };
            add(Code::ValueUnexpected, extra.span, message);
        }
        if !self.needs.is_empty() && node.arguments.is_empty() && node.properties.is_empty() && node.children.is_none()
        {
            let code = if most > 0 { Code::ValueMissing } else { Code::PropertyMissing };
            add(code, node.span, format!("`{name}` needs {}", self.needs));
        }
        match (&node.children, self.block) {
            (Some(_), BlockRule::None) => {
                add(Code::BlockUnexpected, node.span, format!("`{name}` takes no block"));
            }
            (None, BlockRule::Needed) => {
                add(Code::BlockMissing, node.span, format!("`{name}` needs a block"));
            }
            (Some(children), BlockRule::Needed) if children.is_empty() => {
                add(Code::BlockMissing, node.span, format!("the block of `{name}` is empty"));
            }
            _ => {}
        }
        let allowed = [properties, self.properties].concat();
        if let ([value], true) = (&node.arguments[..], allowed.contains(&"off"))
            && matches!(&value.scalar, Scalar::Text(text) if text == "off")
        {
            let draft = report.add(Code::Contradiction, value.span, format!("`off` is a property of `{name}`"));
            draft.label(format!("to turn it off, write: {name} off=#true"));
        }
        self.check_properties(node, &allowed, report);
        complete
    }

    fn check_properties(&self, node: &Node, allowed: &[&'static str], report: &mut Report) {
        for (index, property) in node.properties.iter().enumerate() {
            if !allowed.contains(&property.name.as_str()) {
                let message = format!("`{}` has no property `{}`", node.name, property.name);
                let near = foreign(&property.name, allowed).or_else(|| nearest(&property.name, allowed));
                let draft = report.add(Code::PropertyUnknown, property.span, message).meant(near);
                if allowed.is_empty() {
                    draft.note(format!("it has no properties; as in: {}", self.example));
                } else {
                    draft.note(format!("allowed here: {}", allowed.join(", ")));
                }
            } else if let Some(first) = node.properties[..index].iter().find(|first| first.name == property.name) {
                let message = format!("`{}` occurs twice", property.name);
                report.add(Code::GivenTwice, property.span, message).related(first.span, "first here");
            }
        }
    }
}

/// The settings that a block has contained so far, for reporting repeated settings.
#[derive(Debug, Default)]
pub struct SeenSettings<'a>(Vec<(&'a str, Span)>);

impl<'n> SeenSettings<'n> {
    /// Returns true if `node` is the first setting with its name in the block. Reports it otherwise.
    pub fn first(&mut self, node: &'n Node, report: &mut Report) -> bool {
        if let Some((_, first)) = self.0.iter().find(|(name, _)| *name == node.name) {
            let message = format!("`{}` occurs twice", node.name);
            report.add(Code::GivenTwice, node.span, message).related(*first, "first here");
            return false;
        }
        self.0.push((&node.name, node.span));
        true
    }
}

/// Names of settings in other servers, each with flatout's name for the setting.
const FOREIGN: &[(&str, &str)] = &[
    ("root", "files"),
    ("file_server", "files"),
    ("file-server", "files"),
    ("server", "site"),
    ("server_name", "site"),
    ("location", "route"),
    ("handle", "route"),
    ("return", "respond"),
    ("try_files", "try"),
    ("add_header", "header"),
    ("error_page", "error"),
    ("access_log", "log"),
    ("listen-tls", "listen"),
    ("gzip", "compress"),
    ("encode", "compress"),
    ("autoindex", "listing"),
    ("browse", "listing"),
    ("basicauth", "basic-auth"),
    ("basic_auth", "basic-auth"),
    ("ssl", "tls"),
    ("hsts", "header"),
    ("proxy_pass", "proxy"),
    ("fastcgi_pass", "php"),
    ("fastcgi_param", "env"),
    ("fastcgi_index", "index"),
    ("fastcgi_split_path_info", "script-extensions"),
    ("php_fastcgi", "php"),
    ("fastcgi", "php"),
    ("reverse_proxy", "proxy"),
    ("reverse-proxy", "proxy"),
    ("upstream", "proxy"),
    ("upstream", "origin"),
    ("backend", "origin"),
    ("server", "origin"),
    ("to", "origin"),
    ("lb_policy", "balance"),
    ("proxy_set_header", "request-header"),
    ("header_up", "request-header"),
    ("header", "request-header"),
    ("proxy_cache", "cache"),
    ("proxy_cache_path", "store"),
    ("proxy_cache_valid", "ttl"),
    ("default-ttl", "ttl"),
    ("grace", "stale-while-revalidate"),
    ("trusted_proxies", "trusted-proxies"),
];

impl Reader<'_> {
    /// Checks a setting whose properties have no rows against its shape.
    pub(super) fn shape(&mut self, node: &Node, shape: &Shape) -> bool {
        shape.check(node, &[], self.report)
    }

    /// Returns a required property, or reports that it is missing.
    pub(super) fn needed<'n>(&mut self, node: &'n Node, name: &str, shape: &Shape) -> Option<&'n Property> {
        let property = property(node, name);
        if property.is_none() {
            let message = format!("`{}` needs the property `{name}`", node.name);
            self.report.add(Code::PropertyMissing, node.span, message).note(format!("as in: {}", shape.example));
        }
        property
    }

    /// Reports an unknown setting, or one that is allowed only elsewhere.
    pub(super) fn unknown(&mut self, node: &Node, allowed: &[&str]) {
        let name = node.name.as_str();
        if self.report.is_full() {
            self.report.add(Code::SettingUnknown, node.span, String::new());
            return;
        }
        let foreign = foreign(name, allowed);
        if let (None, Some(home)) = (foreign, (self.home_of)(name)) {
            let draft = self.report.add(Code::WrongPlace, node.span, format!("`{name}` is not allowed here"));
            draft.label(format!("it {home}")).note(format!("allowed here: {}", allowed.join(", ")));
            return;
        }
        report_unknown(node, allowed, self.report);
    }
}

/// Reports an unknown setting and suggests a similar name.
pub fn report_unknown(node: &Node, allowed: &[&str], report: &mut Report) {
    let near = foreign(&node.name, allowed).or_else(|| nearest(&node.name, allowed));
    let draft = report.add(Code::SettingUnknown, node.span, format!("unknown setting `{}`", node.name)).meant(near);
    draft.note(format!("allowed here: {}", allowed.join(", ")));
}

/// Returns true if a list with the property `off` is turned off. Reports a list that is off but has entries, and a list
/// that is neither. The shape has already been checked.
pub(super) fn is_off(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> bool {
    if !shape.properties.contains(&"off") {
        return false;
    }
    let off = property(node, "off").and_then(|off| reader.flag(&off.value)).unwrap_or(false);
    match (off, node.arguments.first()) {
        (true, Some(value)) => {
            let message = format!("`{}` is turned off, but has values", node.name);
            reader.report.add(Code::Contradiction, value.span, message);
        }
        (false, None) => {
            let message = format!("`{}` needs a value, or off=#true", node.name);
            reader.report.add(Code::ValueMissing, node.span, message).note(format!("as in: {}", shape.example));
        }
        _ => {}
    }
    off
}

/// The allowed name for a name that other servers use, if there is one.
fn foreign(name: &str, allowed: &[&str]) -> Option<&'static str> {
    FOREIGN.iter().find(|(other, ours)| *other == name && allowed.contains(ours)).map(|(_, ours)| *ours)
}

/// Finds a property by its name. If it occurs more than once, the last occurrence counts, as KDL specifies.
pub fn property<'n>(node: &'n Node, name: &str) -> Option<&'n Property> {
    node.properties.iter().rev().find(|property| property.name == name)
}

/// The candidate that was most likely meant, if any is similar enough.
pub fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // The cost is word length × candidate length, and longer words are unlikely to be misspelt settings.
    if word.chars().count() > 40 {
        return None;
    }
    let plain = word.to_lowercase().replace('_', "-");
    let distance = |candidate: &&&str| {
        let begins = plain.len() > 1 && (candidate.starts_with(&plain) || plain.starts_with(**candidate));
        if begins { 1 } else { strsim::damerau_levenshtein(&plain, candidate) }
    };
    let near = candidates.iter().min_by_key(distance)?;
    let allowed = match near.chars().count() {
        0..=3 => 1,
        4..=6 => 2,
        _ => 3,
    };
    (distance(&near) <= allowed).then_some(*near)
}
