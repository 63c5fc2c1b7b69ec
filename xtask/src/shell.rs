//! Finding the repository and running other programs.

use crate::failure::{Context, Outcome};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    // Cargo tells the running program where its package lies; the built-in path serves a binary run by hand.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The binary that FLATOUT_BIN names, or the release binary, which is built first if it is not up to date.
pub(crate) fn release_binary() -> Outcome<PathBuf> {
    if let Some(binary) = std::env::var_os("FLATOUT_BIN") {
        return Ok(PathBuf::from(binary));
    }
    output_of(cargo().args(["build", "--release", "--package", "flatout"]))?;
    let path = target_dir().join("release/flatout");
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// Returns true if a program of that name can be found.
pub(crate) fn is_installed(program: &str) -> bool {
    locate(program).is_some()
}

/// The full path of a program, so that one in sbin starts without it being in PATH.
pub(crate) fn locate(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps servers in sbin, which is not in everybody's PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Runs a command to its end and returns what it printed on stdout.
pub(crate) fn output_of(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    let output = command.output().cannot(&format!("run `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` ended with {}: {}", output.status, said.trim()).into());
    }
    String::from_utf8(output.stdout).cannot(&format!("read what `{shown}` printed"))
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&OsStr::to_string_lossy(word))).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted_into_a_shell() {
        let mut command = Command::new("wrk");
        command.args(["-H", "Connection: close", "http://127.0.0.1:1/"]);
        assert_eq!(shown(&command), "wrk -H 'Connection: close' http://127.0.0.1:1/");
    }

    #[test]
    fn a_failing_command_reports_its_words_and_its_complaint() {
        let failure = output_of(Command::new("sh").args(["-c", "echo no luck >&2; exit 3"]));
        let text = failure.err().map(|f| f.to_string()).unwrap_or_default();
        assert!(text.contains("no luck") && text.contains("exit"), "{text}");
    }
}
