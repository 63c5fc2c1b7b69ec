//! Shapes of settings: the number of values, the properties, the block.

use super::setting::names;
use super::{Reader, cache, files, log, pages, php, process, proxy, site, step};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::syntax::{Node, Property};

/// Values of one setting: lists are compared entry by entry, so their length is bounded.
pub(super) const VALUES_MAX: usize = 10_000;

/// The shape of a setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Fewest and most values.
    arguments: (usize, usize),
    /// The properties that have no row of their own.
    pub(super) properties: &'static [&'static str],
    block: BlockRule,
    /// The parts of which a setting has at least one: `memory, disk, or both`. Empty: it may have none.
    needs: &'static str,
    /// How it is written, for those who wrote it otherwise.
    pub(super) example: &'static str,
}

/// True if a setting has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRule {
    None,
    Optional,
    Needed,
}

impl Shape {
    /// No value, no properties, no block.
    pub(super) const fn none(example: &'static str) -> Self {
        Self { arguments: (0, 0), properties: &[], block: BlockRule::None, needs: "", example }
    }

    /// One value, no properties, no block.
    pub(super) const fn value(example: &'static str) -> Self {
        Self::none(example).takes(1, 1)
    }

    /// Some values, no properties, no block.
    pub(super) const fn values(least: usize, example: &'static str) -> Self {
        Self::none(example).takes(least, VALUES_MAX)
    }

    /// As the setting's own reader checks it.
    pub(super) const fn any() -> Self {
        Self::none("")
    }

    pub(super) const fn is_any(&self) -> bool {
        self.example.is_empty()
    }

    /// The same with so many values.
    pub(super) const fn takes(self, least: usize, most: usize) -> Self {
        Self { arguments: (least, most), ..self }
    }

    /// The same with these properties, which have no row.
    pub(super) const fn with(self, properties: &'static [&'static str]) -> Self {
        Self { properties, ..self }
    }

    /// The same with a block, if one is given.
    pub(super) const fn may_have_block(self) -> Self {
        Self { block: BlockRule::Optional, ..self }
    }

    /// The same with a block.
    pub(super) const fn has_block(self) -> Self {
        Self { block: BlockRule::Needed, ..self }
    }

    /// The same with one of these parts at least.
    pub(super) const fn needs(self, needs: &'static str) -> Self {
        Self { needs, ..self }
    }
}

/// Settings seen in a block, so that none is given twice.
#[derive(Debug, Default)]
pub(super) struct SeenSettings<'a>(Vec<(&'a str, Span)>);

/// Where each setting belongs, for those who put it elsewhere.
fn homes() -> [(&'static str, Vec<&'static str>); 12] {
    let top = [&names(process::SETTINGS)[..], &["site"]].concat().into_iter().filter(|name| *name != "cache").collect();
    let steps = step::names().collect();
    let in_files = names(files::SETTINGS).into_iter().filter(|name| *name != "cache").collect();
    let in_proxy = names(proxy::SETTINGS).into_iter().filter(|name| !matches!(*name, "tls" | "host")).collect();
    [
        ("belongs at the top level of the file", top),
        ("belongs in a `site` block, not in a route", names(site::SETTINGS)),
        ("belongs in a `site` or `route` block", steps),
        ("belongs in the block of `files`", in_files),
        ("belongs in the first block of a `route`", vec!["match"]),
        ("belongs in the block of `timeouts`", names(process::TIMEOUTS.block)),
        ("belongs in the block of `log`", names(log::LOG.block)),
        ("belongs in the block of `proxy`, `php`, `pages` or `page`", vec!["trusted-proxies"]),
        ("belongs in the block of `proxy`", in_proxy),
        ("belongs in the block of `php`", names(php::SETTINGS)),
        ("belongs in the block of a site's `cache`", names(cache::SETTINGS)),
        ("belongs in the block of `pages` or `page`", names(pages::SETTINGS)),
    ]
}

/// Names that people bring along from other servers.
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
    // Earlier names of our own settings.
    ("accel", "accel-redirect"),
    ("hot-objects", "memory-objects"),
    ("recheck", "file-check-interval"),
    ("split", "script-extensions"),
    ("trust", "trusted-proxies"),
    ("trusted_proxies", "trusted-proxies"),
    ("uneven-parts", "mismatched-ranges"),
];

impl Reader<'_> {
    /// Holds a setting against its shape. What is too much is reported; `false` when values are missing, so that
    /// nobody reads them.
    pub(super) fn shape(&mut self, node: &Node, shape: &Shape) -> bool {
        self.shape_with(node, shape, &[])
    }

    /// The same for a setting some of whose properties have rows: these.
    pub(super) fn shape_with(&mut self, node: &Node, shape: &Shape, properties: &[&'static str]) -> bool {
        let name = &node.name;
        let (least, most) = shape.arguments;
        let complete = node.arguments.len() >= least;
        let mut report = |code, span, message: String| {
            self.report.add(code, span, message).note(format!("as in: {}", shape.example));
        };
        if !complete {
            let message = match least - node.arguments.len() {
                1 if least == 1 => format!("`{name}` needs a value"),
                1 => format!("`{name}` needs one more value"),
                more => format!("`{name}` needs {more} more values"),
            };
            report(Code::ValueMissing, node.span, message);
        }
        if let Some(extra) = node.arguments.get(most) {
            let message = match most {
                0 => format!("`{name}` takes no value"),
                1 => format!("`{name}` takes one value"),
                _ => format!("`{name}` takes {most} values"),
            };
            report(Code::ValueUnexpected, extra.span, message);
        }
        if !shape.needs.is_empty() && node.arguments.is_empty() && node.properties.is_empty() && node.children.is_none()
        {
            let code = if most > 0 { Code::ValueMissing } else { Code::PropertyMissing };
            report(code, node.span, format!("`{name}` needs {}", shape.needs));
        }
        match (&node.children, shape.block) {
            (Some(_), BlockRule::None) => {
                report(Code::BlockUnexpected, node.span, format!("`{name}` takes no block"));
            }
            (None, BlockRule::Needed) => {
                report(Code::BlockMissing, node.span, format!("`{name}` needs a block"));
            }
            (Some(children), BlockRule::Needed) if children.is_empty() => {
                report(Code::BlockMissing, node.span, format!("the block of `{name}` is empty"));
            }
            _ => {}
        }
        self.properties(node, shape, &[properties, shape.properties].concat());
        complete
    }

    fn properties(&mut self, node: &Node, shape: &Shape, allowed: &[&'static str]) {
        for (index, property) in node.properties.iter().enumerate() {
            if !allowed.contains(&property.name.as_str()) {
                let message = format!("`{}` has no property `{}`", node.name, property.name);
                let near = foreign(&property.name, allowed).or_else(|| nearest(&property.name, allowed));
                let draft = self.report.add(Code::PropertyUnknown, property.span, message);
                if let Some(near) = near {
                    draft.label(format!("did you mean `{near}`?"));
                }
                if allowed.is_empty() {
                    draft.note(format!("it has none; as in: {}", shape.example));
                } else {
                    draft.note(format!("allowed here: {}", allowed.join(", ")));
                }
            } else if let Some(first) = node.properties[..index].iter().find(|first| first.name == property.name) {
                let message = format!("`{}` is given twice", property.name);
                self.report.add(Code::GivenTwice, property.span, message).related(first.span, "first here");
            }
        }
    }

    /// A property that must be there.
    pub(super) fn needed<'n>(&mut self, node: &'n Node, name: &str, shape: &Shape) -> Option<&'n Property> {
        let property = property(node, name);
        if property.is_none() {
            let message = format!("`{}` needs the property `{name}`", node.name);
            self.report.add(Code::PropertyMissing, node.span, message).note(format!("as in: {}", shape.example));
        }
        property
    }

    /// Returns true if the setting comes for the first time in its block; reported when not.
    pub(super) fn first<'n>(&mut self, seen: &mut SeenSettings<'n>, node: &'n Node) -> bool {
        if let Some((_, first)) = seen.0.iter().find(|(name, _)| *name == node.name) {
            let message = format!("`{}` is given twice", node.name);
            self.report.add(Code::GivenTwice, node.span, message).related(*first, "first here");
            return false;
        }
        seen.0.push((&node.name, node.span));
        true
    }

    /// A setting that nobody here knows.
    pub(super) fn unknown(&mut self, node: &Node, allowed: &[&str]) {
        let name = node.name.as_str();
        if self.report.is_full() {
            self.report.add(Code::SettingUnknown, node.span, String::new());
            return;
        }
        let foreign = foreign(name, allowed);
        let home = homes().into_iter().find(|(_, names)| names.contains(&name));
        if let (None, Some((home, _))) = (foreign, home) {
            let draft = self.report.add(Code::WrongPlace, node.span, format!("`{name}` is not allowed here"));
            draft.label(format!("it {home}")).note(format!("allowed here: {}", allowed.join(", ")));
            return;
        }
        let near = foreign.or_else(|| nearest(name, allowed));
        let draft = self.report.add(Code::SettingUnknown, node.span, format!("unknown setting `{name}`"));
        if let Some(near) = near {
            draft.label(format!("did you mean `{near}`?"));
        }
        draft.note(format!("allowed here: {}", allowed.join(", ")));
    }
}

/// True if a list that has the property `off` is switched off; it has entries or is off, and never both or neither.
/// `shape` has been checked.
pub(super) fn is_off(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> bool {
    if !shape.properties.contains(&"off") {
        return false;
    }
    let off = property(node, "off").and_then(|off| reader.flag(&off.value)).unwrap_or(false);
    match (off, node.arguments.first()) {
        (true, Some(value)) => {
            let message = format!("`{}` is switched off, but has entries", node.name);
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

/// The allowed name for one that people bring along from elsewhere.
fn foreign(name: &str, allowed: &[&str]) -> Option<&'static str> {
    FOREIGN.iter().find(|(other, ours)| *other == name && allowed.contains(ours)).map(|(_, ours)| *ours)
}

/// A property by name; of several the last, as KDL has it.
pub(super) fn property<'n>(node: &'n Node, name: &str) -> Option<&'n Property> {
    node.properties.iter().rev().find(|property| property.name == name)
}

/// The candidate that was most likely meant, when one is near enough.
pub fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // Distances take word × candidate steps: nobody misspells a word of 40 characters.
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
