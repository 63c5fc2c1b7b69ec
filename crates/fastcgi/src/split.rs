//! Mapping of a path to a script: the only place that decides which script runs.
//!
//! The form of a path decides nothing. A script is a regular file below the root, as resolved by the kernel (openat2,
//! RESOLVE_BENEATH), whose name has a script suffix; the rest of the path is PATH_INFO, unchanged. So
//! `/image.jpg/x.php` does not run an image, and a line feed in the path cannot hide the end of the script name
//! (CVE-2019-11043): there is no pattern to defeat.

use flatout_os::root::{Named, Root};
use std::ops::Range;

/// Rules that identify scripts, and fallbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRules {
    /// Script suffixes, such as `.php`; not empty.
    pub suffixes: Vec<String>,
    /// Index names for folders, in order. If the index is not a script, another step serves it.
    pub index: Vec<String>,
    /// Script for all paths that are not files, below the root and without a leading slash.
    pub front_controller: Option<String>,
}

impl ScriptRules {
    /// Returns whether `name`, a path or its last segment, has a script suffix.
    pub fn is_script(&self, name: &[u8]) -> bool {
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // A name that consists of a suffix only is a hidden file.
        self.suffixes.iter().any(|suffix| last.len() > suffix.len() && last.ends_with(suffix.as_bytes()))
    }
}

/// Result of mapping a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A script, by its name below the root, and the range of the decoded path for PATH_INFO.
    Script(Vec<u8>, Range<usize>),
    /// A folder with an index, without a trailing slash.
    Slash,
    /// Not a script: a later step may handle it.
    Pass(PassReason),
}

/// Reason why a request is not for a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The script does not exist.
    ScriptMissing,
    /// The path contains a hidden name.
    Hidden,
    /// The path names a file that is not a script, or a folder whose index is not a script.
    File,
    /// The path names no script.
    NoScript,
}

impl PassReason {
    /// Description, for `explain`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::ScriptMissing => "there is no such script",
            Self::Hidden => "the name is hidden",
            Self::File => "a file that is not a script",
            Self::NoScript => "the path names no script",
        }
    }
}

/// Maps `path`, the output of `flatout_http::path::decode_path`.
pub fn find_script(path: &[u8], rules: &ScriptRules, root: &Root) -> Meaning {
    // Shortest first: nothing exists below a regular file, so the first one is also the longest. Nothing exists below
    // a missing file either, so a path full of script names costs one check.
    let ends = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
    let mut names_script = false;
    for end in ends.chain([path.len()]) {
        let name = &path[..end];
        if !rules.is_script(name) {
            continue;
        }
        names_script = true;
        if is_hidden(name) {
            return Meaning::Pass(PassReason::Hidden);
        }
        match root.identify(name) {
            Ok(Named::File(_)) => return Meaning::Script(name.to_vec(), end..path.len()),
            Ok(Named::Folder) => {}
            Err(_) => break,
        }
    }
    let is_folder = path.is_empty() || path.ends_with(b"/");
    if !is_hidden(path) {
        if is_folder {
            if let Some(index) = find_index(path, rules, root) {
                return index;
            }
        } else if rules.front_controller.is_some() {
            match root.identify(path) {
                Ok(Named::File(_)) if rules.is_script(path) => {}
                Ok(Named::File(_)) => return Meaning::Pass(PassReason::File),
                Ok(Named::Folder) if find_index(&[path, b"/"].concat(), rules, root).is_some() => {
                    return Meaning::Slash;
                }
                Ok(Named::Folder) | Err(_) => {}
            }
        }
    }
    if let Some(controller) = &rules.front_controller
        && is_file(root, controller.as_bytes())
    {
        // It uses REQUEST_URI. PATH_INFO would be decoded, and indistinguishable from a script's own.
        return Meaning::Script(controller.clone().into_bytes(), path.len()..path.len());
    }
    Meaning::Pass(if names_script { PassReason::ScriptMissing } else { PassReason::NoScript })
}

/// Finds the index of the folder `path`, which ends with a slash or is empty.
fn find_index(path: &[u8], rules: &ScriptRules, root: &Root) -> Option<Meaning> {
    rules.index.iter().find_map(|index| {
        let name = [path, index.as_bytes()].concat();
        is_file(root, &name).then(|| {
            if rules.is_script(&name) {
                Meaning::Script(name, path.len()..path.len())
            } else {
                Meaning::Pass(PassReason::File)
            }
        })
    })
}

/// Returns whether `name` is a regular file; errors count as no.
fn is_file(root: &Root, name: &[u8]) -> bool {
    matches!(root.identify(name), Ok(Named::File(_)))
}

/// Returns whether a segment begins with a dot, except an initial `.well-known` (RFC 8615).
fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .enumerate()
        .any(|(index, segment)| segment.starts_with(b".") && !(index == 0 && segment == b".well-known"))
}

#[cfg(test)]
mod tests;
