//! Mapping of paths to scripts: the only place that decides which script runs.
//!
//! The form of a path decides nothing. A script is a regular file below the root, as resolved by the kernel (openat2,
//! RESOLVE_BENEATH), whose name ends with a script suffix. The rest of the path is PATH_INFO, unchanged. So
//! `/image.jpg/x.php` does not run an image, and a line feed in the path cannot hide the end of the script's name
//! (CVE-2019-11043), because there is no pattern to defeat.

use flatout_os::root::{Named, Root};
use std::ops::Range;

/// The rules that identify scripts, and the fallbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRules {
    /// Suffixes of scripts, such as `.php`; never empty.
    pub suffixes: Vec<String>,
    /// Names of index files of folders, in order of preference. If the index is not a script, another step serves it.
    pub index: Vec<String>,
    /// The script for all paths that are not files, relative to the root and without a leading slash.
    pub front_controller: Option<String>,
}

impl ScriptRules {
    /// Returns whether `name`, which is a path or its last segment, ends with a script suffix.
    pub fn is_script(&self, name: &[u8]) -> bool {
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // A name that consists only of a suffix is a hidden file.
        self.suffixes.iter().any(|suffix| last.len() > suffix.len() && last.ends_with(suffix.as_bytes()))
    }
}

/// The result of mapping a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A script: its name relative to the root, and the range of the decoded path that is PATH_INFO.
    Script(Vec<u8>, Range<usize>),
    /// A folder with an index, requested without a trailing slash.
    Slash,
    /// Not a script, so a later step may handle the request.
    Pass(PassReason),
}

flatout_reason::reasons! {
    /// The reason why a request is not for a script.
    pub enum PassReason { text, }
    /// The script does not exist.
    ScriptMissing, "no script has this name";
    /// The path contains a hidden name.
    Hidden, "the name is hidden";
    /// The path is that of a file that is not a script, or of a folder whose index is not a script.
    File, "a file that is not a script";
    /// The path contains no name of a script.
    NoScript, "the path names no script";
}

/// Maps `path`, which must be the output of `flatout_http::path::decode_path`.
pub fn find_script(path: &[u8], rules: &ScriptRules, root: &Root) -> Meaning {
    // The shortest name is checked first. Nothing exists below a regular file, so the first script found is also the
    // longest. Nothing exists below a missing file either, so a path full of script names costs only one check.
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
        // The front controller uses REQUEST_URI. PATH_INFO would be decoded, and could not be distinguished from that
        // of another script.
        return Meaning::Script(controller.clone().into_bytes(), path.len()..path.len());
    }
    Meaning::Pass(if names_script { PassReason::ScriptMissing } else { PassReason::NoScript })
}

/// Finds the index of the folder `path`, which is empty or ends with a slash.
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

/// Returns whether `name` is a regular file. Errors count as no.
fn is_file(root: &Root, name: &[u8]) -> bool {
    matches!(root.identify(name), Ok(Named::File(_)))
}

/// Returns whether any segment begins with a dot, except for an initial `.well-known` (RFC 8615).
fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .enumerate()
        .any(|(index, segment)| segment.starts_with(b".") && !(index == 0 && segment == b".well-known"))
}

#[cfg(test)]
mod tests;
