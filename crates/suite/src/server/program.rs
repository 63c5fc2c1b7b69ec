//! Programs: looking up their paths, and checking their versions.

use super::version;
use crate::document::Why;
use crate::model::{Program, VersionAsked};
use crate::why::Reason;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Folders that contain servers but are often not in `PATH`.
const SYSTEM_FOLDERS: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];

/// Timeout for a program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes of version output that are read.
const SAID_BYTES_MAX: u64 = 64 * 1024;

const KILL: i32 = 9;

/// A program that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocatedProgram {
    /// Path of the program.
    pub path: PathBuf,
    /// Version output of the program, in one line.
    pub version: Option<String>,
}

/// Looks up a program and checks its requirements. `flatout` is the executable `own`.
///
/// # Errors
/// Returns the reason the program cannot be used on this machine, with the package that contains it.
pub fn find(program: &Program, own: &Path, own_version: &str) -> Result<LocatedProgram, Why> {
    let name = program.name.text.as_str();
    let from_package = |package: &Option<String>| {
        package.as_ref().map_or_else(String::new, |package| format!("; the Debian package {package} provides it"))
    };
    if name == "flatout" {
        return Ok(LocatedProgram { path: own.to_owned(), version: Some(format!("flatout {own_version}")) });
    }
    let path = look_up(name).ok_or_else(|| {
        Reason::ProgramMissing.why(format!("{name} is not installed{}", from_package(&program.package)))
    })?;
    for (file, package) in &program.needs {
        if !Path::new(&file.text).exists() {
            return Err(Reason::NeedMissing.why(format!("{} is not installed{}", file.text, from_package(package))));
        }
    }
    let Some(asked) = &program.version else { return Ok(LocatedProgram { path, version: None }) };
    let said = say_version(&path, &asked.from);
    let found = version::parse(&said);
    let line = said.lines().find(|line| !version::parse(line).is_empty()).unwrap_or("").trim().to_owned();
    if found.is_empty() {
        let words = format!("{name} did not print its version with `{}`", asked.from.join(" "));
        return Err(Reason::VersionUnknown.why(words));
    }
    if !version::is_at_least(&found, &asked.at_least) {
        return Err(too_old(name, &found, asked, &from_package(&program.package)));
    }
    Ok(LocatedProgram { path, version: Some(line) })
}

fn too_old(name: &str, found: &[u64], asked: &VersionAsked, package: &str) -> Why {
    let found: Vec<String> = found.iter().map(u64::to_string).collect();
    Reason::TooOld.why(format!("{name} is {}, but {} or later is required{package}", found.join("."), asked.text))
}

/// Looks up a program by name, or by path if the name contains a slash.
pub fn look_up(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        // The program is started in another folder, so its path must be absolute.
        return std::path::absolute(name).ok().filter(is_program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(PathBuf::from)).collect();
    let found = folders.iter().map(|folder| folder.join(name)).find(is_program);
    found.or_else(|| newest(&folders, name).filter(is_program))
}

/// Returns the newest of the programs whose name is `name` followed by a version, such as Debian's php-fpm8.2.
fn newest(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let entries = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let versioned = entries.filter_map(|entry| {
        let numbers = entry.file_name().to_str()?.strip_prefix(name)?.to_owned();
        let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
        Some((numbers?, entry.path()))
    });
    versioned.max().map(|(_, path)| path)
}

/// Returns the first line of a program's output that contains a version.
pub fn version_line(path: &Path, arguments: &[&str]) -> Option<String> {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let said = say_version(path, &arguments);
    said.lines().find(|line| !version::parse(line).is_empty()).map(|line| line.trim().to_owned())
}

/// Returns a program's version output, on standard output or standard error.
fn say_version(path: &Path, arguments: &[String]) -> String {
    use std::os::unix::process::CommandExt;
    let Ok(mut said) = sheet() else { return String::new() };
    let (Ok(out), Ok(err)) = (said.try_clone(), said.try_clone()) else { return String::new() };
    let spawned = Command::new(path)
        .process_group(0)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .env("LC_ALL", "C")
        .spawn();
    let Ok(mut child) = spawned else { return String::new() };
    let begun = Instant::now();
    while begun.elapsed() < VERSION_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // A program that is still running did not just print its version, so kill it.
    super::group::signal(child.id(), &BTreeSet::from([child.id()]), KILL);
    let _ended = child.wait();
    let mut bytes = Vec::new();
    if let Ok(written) = said.stream_position()
        && said.rewind().is_ok()
    {
        let _read = said.take(written).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Creates a file for a program's output. A pipe could be held open by processes that the program leaves running.
fn sheet() -> std::io::Result<File> {
    let sheet = File::from(memfd_create("version", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    sheet.set_len(SAID_BYTES_MAX)?;
    fcntl_add_seals(&sheet, SealFlags::GROW)?;
    Ok(sheet)
}

#[cfg(test)]
mod tests {
    use super::{find, look_up};
    use crate::model::{Placed, Program, VersionAsked};
    use std::path::Path;

    fn program(name: &str) -> Program {
        let name = Placed { text: name.to_owned(), ..Placed::default() };
        Program { name, package: Some("some-package".to_owned()), ..Program::default() }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let why = find(&program("no-such-program-here"), Path::new("/x"), "1").unwrap_err();
        assert_eq!(why.name, "program-missing");
        assert_eq!(why.text, "no-such-program-here is not installed; the Debian package some-package provides it");
        assert!(look_up("/no/such").is_none() && look_up("/tmp").is_none());
    }

    #[test]
    fn one_that_is_too_old_says_how_old_and_one_that_says_nothing_is_unknown() {
        let mut asked = program("sh");
        let version = |text: &str, says: &str| VersionAsked {
            at_least: super::version::parse(text),
            text: text.to_owned(),
            from: vec!["-c".to_owned(), format!("echo {says} >&2")],
            ..VersionAsked::default()
        };
        asked.version = Some(version("9.1", "sh/2.0.1"));
        let why = find(&asked, Path::new("/x"), "1").unwrap_err();
        assert_eq!((why.name.as_str(), why.text.contains("sh is 2.0.1, but 9.1 or later")), ("too-old", true));
        asked.version = Some(version("2", "sh/2.0.1"));
        assert_eq!(find(&asked, Path::new("/x"), "1").unwrap().version.as_deref(), Some("sh/2.0.1"));
        // A program that leaves a process behind, which would keep its outputs open for a day.
        asked.version = Some(version("2", "sh/2.0.1; sleep 86400 & true"));
        assert_eq!(find(&asked, Path::new("/x"), "1").unwrap().version.as_deref(), Some("sh/2.0.1"));
        // A program that never stops printing reaches the limit of its output file.
        asked.version = Some(version("2", "sh/2.0.1; yes"));
        assert_eq!(find(&asked, Path::new("/x"), "1").unwrap().version.as_deref(), Some("sh/2.0.1"));
        asked.version = Some(version("2", "nothing"));
        assert_eq!(find(&asked, Path::new("/x"), "1").unwrap_err().name, "version-unknown");
    }
}
