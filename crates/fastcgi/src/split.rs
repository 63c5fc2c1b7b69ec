//! Which script a path means: the one place that decides what is run.
//!
//! Nothing is guessed from how a path looks. A script is a regular file that stands below the root, by the kernel's own
//! rules (openat2, RESOLVE_BENEATH), and whose name ends as a script's does; what follows it is PATH_INFO, to the byte.
//! So neither `/image.jpg/x.php` runs a picture, nor does a line feed in the path hide where the script ends
//! (CVE-2019-11043): there is no pattern that it could defeat.

use flatout_net::root::{Named, Root};
use std::ops::Range;

/// What makes a file a script, and what answers where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How scripts' names end: `.php`. Never empty texts.
    pub suffixes: Vec<String>,
    /// What answers for a folder, in this order. A name that is no script's is another step's to serve.
    pub index: Vec<String>,
    /// The script, below the root and without a first slash, that answers for whatever is no file.
    pub front_controller: Option<String>,
}

impl Rules {
    /// Whether `name`, a path or its last segment, ends as a script's does.
    pub fn is_script(&self, name: &[u8]) -> bool {
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        // A name that is nothing but an ending is a hidden file.
        self.suffixes.iter().any(|suffix| last.len() > suffix.len() && last.ends_with(suffix.as_bytes()))
    }
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This script, by its name below the root, and the bytes of the decoded path that are left for it as PATH_INFO.
    Script(Vec<u8>, Range<usize>),
    /// A folder with an index, whose path lacks its last slash.
    Slash,
    /// No script: another step may know.
    Pass(PassReason),
}

/// Why a request is not for a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The path names a script that is not there.
    ScriptMissing,
    /// The path leads to a hidden name.
    Hidden,
    /// The path names a file that is no script, or a folder with an index that is none.
    File,
    /// The path names nothing that is run.
    NoScript,
}

impl PassReason {
    /// What it means, for `explain`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::ScriptMissing => "there is no such script",
            Self::Hidden => "the name is hidden",
            Self::File => "a file that is no script",
            Self::NoScript => "the path names no script",
        }
    }
}

/// What `path` means: a path as `flatout_http::path::decode_path` leaves it.
pub fn find_script(path: &[u8], rules: &Rules, root: &Root) -> Meaning {
    // From the shortest: below a regular file there is nothing, so the first that is one is the longest as well. What does
    // not exist has nothing below it either, so a path full of scripts' names costs one look.
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
        // It reads REQUEST_URI. PATH_INFO would have to be decoded, and could not be told from a script's own.
        return Meaning::Script(controller.clone().into_bytes(), path.len()..path.len());
    }
    Meaning::Pass(if names_script { PassReason::ScriptMissing } else { PassReason::NoScript })
}

/// What answers for the folder `path`, which ends with its slash or is empty.
fn find_index(path: &[u8], rules: &Rules, root: &Root) -> Option<Meaning> {
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

/// What cannot be looked at is no file: whoever asks for it is told nothing else.
fn is_file(root: &Root, name: &[u8]) -> bool {
    matches!(root.identify(name), Ok(Named::File(_)))
}

/// Whether a segment begins with a dot, other than a first one `.well-known` (RFC 8615).
fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .enumerate()
        .any(|(index, segment)| segment.starts_with(b".") && !(index == 0 && segment == b".well-known"))
}

#[cfg(test)]
mod tests;
