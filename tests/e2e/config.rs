//! Valid and invalid configurations: `flatout validate`, `fmt`, `adapt`, `passwd` and `help`, as users run them.
//!
//! Each file in `config/bad` has a file with its exact diagnostics. With FLATOUT_BLESS=1, these are rewritten: read the
//! diff before you commit it.

use super::harness::{Folder, flatout};
use super::tool::{said, tool};
use flatout_config::{Code, MemorySource, load};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/config").join(name)
}

/// flatout in a folder, without environment variables that could change its output.
fn flatout_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = flatout();
    command
        .current_dir(folder)
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("XDG_CONFIG_HOME")
        .env("HOME", folder);
    command
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    flatout_in(folder, arguments).output().unwrap()
}

fn with_input(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = flatout_in(folder, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that rejects its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The names of the files in a folder with one of these extensions, sorted.
fn configurations(folder: &Path, endings: &[&str]) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.extension().is_some_and(|ending| endings.iter().any(|other| ending == *other));
    let names = paths.filter(named).filter_map(|path| path.file_name()?.to_str().map(String::from));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Returns true if the file has the expected content. With FLATOUT_BLESS=1, writes it first.
fn matches_file(path: &Path, expected: &str) -> bool {
    if std::env::var_os("FLATOUT_BLESS").is_some() {
        fs::write(path, expected).unwrap();
        return true;
    }
    fs::read_to_string(path).is_ok_and(|written| written == expected)
}

#[test]
fn every_invalid_configuration_gets_the_exact_diagnostics() {
    let folder = folder("bad");
    let names = configurations(&folder, &["kdl", "json"]);
    assert!(names.len() >= 60, "{}", names.len());
    let mut stale = Vec::new();
    for name in &names {
        let output = output(&folder, &["validate", "--no-machine-checks", "-c", name]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{name}");
        let said = String::from_utf8(output.stderr).unwrap();
        if !matches_file(&folder.join(name).with_extension("txt"), &said) {
            stale.push(format!("{name}:\n{said}"));
        }
    }
    assert!(stale.is_empty(), "these differ from their expected output:\n{}", stale.join("\n"));
}

/// Errors that no example file can show: files that are missing, too large or too many.
#[test]
fn every_diagnostic_code_has_an_example() {
    let folder = folder("bad");
    let snapshots =
        configurations(&folder, &["kdl", "json"]).into_iter().map(|name| folder.join(name).with_extension("txt"));
    let snapshots: String = snapshots.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
    let mut met: BTreeSet<Code> =
        Code::ALL.iter().copied().filter(|code| snapshots.contains(&format!("[{}]", code.id()))).collect();
    let codes = |sources: &MemorySource| {
        let found = load(Path::new("flatout.kdl"), sources).unwrap_err();
        found.list.into_iter().map(|diagnostic| diagnostic.code).collect::<Vec<_>>()
    };
    met.extend(codes(&MemorySource::new()));
    met.extend(codes(&MemorySource::new().file("flatout.kdl", " ".repeat(1024 * 1024 + 1))));
    let mut chain = MemorySource::new().file("flatout.kdl", "include \"0.kdl\"\n");
    for level in 0..20 {
        chain = chain.file(format!("{level}.kdl"), format!("include \"{}.kdl\"\n", level + 1));
    }
    met.extend(codes(&chain));
    // The template compiler's examples cover the errors in pages (P).
    let of_settings = Code::ALL.iter().filter(|code| code.id().starts_with('C'));
    let missed: Vec<&str> = of_settings.filter(|code| !met.contains(code)).map(|code| code.id()).collect();
    assert!(missed.is_empty(), "no example for {missed:?}");
}

#[test]
fn every_valid_configuration_is_formatted_and_has_a_json_equivalent() {
    let folder = folder("good");
    let mut stale = Vec::new();
    for name in &configurations(&folder, &["kdl"]) {
        let valid = output(&folder, &["validate", "--no-machine-checks", "-c", name]);
        assert_eq!(valid.status.code(), Some(0), "{name}: {}", said(&valid));
        assert!(stdout(&valid).starts_with(&format!("{name} is valid: ")), "{}", stdout(&valid));
        let neat = output(&folder, &["fmt", "--check", name]);
        assert_eq!((neat.status.code(), stdout(&neat)), (Some(0), String::new()), "{name}");
        let twin = output(&folder, &["adapt", "-c", name]);
        assert_eq!(twin.status.code(), Some(0), "{name}: {}", said(&twin));
        if !matches_file(&folder.join(name).with_extension("json"), &stdout(&twin)) {
            stale.push(format!("{name}:\n{}", stdout(&twin)));
        }
    }
    assert!(stale.is_empty(), "these differ from their expected output:\n{}", stale.join("\n"));
    for name in &configurations(&folder, &["json"]) {
        let valid = output(&folder, &["validate", "--no-machine-checks", "-c", name]);
        assert_eq!(valid.status.code(), Some(0), "{name}: {}", said(&valid));
        // Converting back and forth gives the same result.
        let kdl = stdout(&output(&folder, &["adapt", "-c", name]));
        let copy = Folder::with(&[("back.kdl", kdl.as_bytes())]);
        let back = stdout(&output(copy.path(), &["adapt", "-c", "back.kdl"]));
        assert_eq!(back, fs::read_to_string(folder.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn diagnostics_can_be_printed_as_json() {
    let output = output(&folder("bad"), &["validate", "--json", "-c", "never-reached.kdl"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(2), 0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema"], &json["valid"]), (&1.into(), &false.into()));
    let error = &json["errors"][0];
    assert_eq!((&error["code"], &error["place"]["line"]), (&"C0404".into(), &3.into()));
    assert_eq!(error["related"][0]["place"]["line"], 2);
    let valid = flatout_in(&folder("good"), &["validate", "--no-machine-checks", "--json", "-c", "least.kdl"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&valid.stdout).unwrap();
    assert_eq!((valid.status.code(), &json["valid"]), (Some(0), &true.into()));
}

#[test]
fn colours_are_printed_only_on_request() {
    let said_with = |arguments: &[&str]| {
        let output = output(&folder("bad"), &[&["validate", "-c", "empty.kdl"], arguments].concat());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said_with(&["--color", "always"]).contains("\x1b[1;31merror:\x1b[0m"));
    assert!(!said_with(&["--color", "never"]).contains('\x1b'));
    assert!(!said_with(&[]).contains('\x1b'));
}

#[test]
fn the_configuration_is_found_in_its_default_places() {
    let empty = Folder::new();
    let none = output(empty.path(), &["validate"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).starts_with("error: no configuration found; searched for flatout.kdl, "), "{}", said(&none));
    let user = Folder::new();
    fs::create_dir(user.path().join("flatout")).unwrap();
    fs::write(user.path().join("flatout/flatout.kdl"), "site { files \".\" }").unwrap();
    let found = flatout_in(empty.path(), &["validate", "--no-machine-checks"])
        .env("XDG_CONFIG_HOME", user.path())
        .output()
        .unwrap();
    assert!(stdout(&found).contains("flatout/flatout.kdl is valid"), "{}", said(&found));
    let here = Folder::with(&[("flatout.kdl", b"site { files \".\" }")]);
    let found = flatout_in(here.path(), &["validate", "--no-machine-checks"])
        .env("XDG_CONFIG_HOME", user.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&found), "flatout.kdl is valid: 1 site\n");
}

#[test]
fn fmt_changes_only_the_layout() {
    let untidy = "site   \"a\"  { // here\n\n\n  files \".\" ;\n     /* why */ header \"X\"   \"y\" ; }";
    let neat = "site \"a\" { // here\n    files \".\"\n    /* why */ header \"X\" \"y\"\n}\n";
    let copy = Folder::with(&[("flatout.kdl", untidy.as_bytes()), ("bad.kdl", b"site {")]);
    let read = || fs::read_to_string(copy.path().join("flatout.kdl")).unwrap();
    let check = output(copy.path(), &["fmt", "--check"]);
    assert_eq!((check.status.code(), stdout(&check)), (Some(1), "flatout.kdl\n".into()));
    assert_eq!(read(), untidy);
    let piped = with_input(copy.path(), &["fmt", "-"], untidy);
    assert_eq!((piped.status.code(), stdout(&piped)), (Some(0), neat.into()));
    let written = output(copy.path(), &["fmt"]);
    assert_eq!((written.status.code(), stdout(&written)), (Some(0), "flatout.kdl\n".into()));
    assert_eq!(read(), neat);
    let again = output(copy.path(), &["fmt", "--check", "flatout.kdl"]);
    assert_eq!((again.status.code(), stdout(&again)), (Some(0), String::new()));
    let bad = output(copy.path(), &["fmt", "bad.kdl", "none.kdl", "flatout.kdl"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(said(&bad).contains("[C0111]") && said(&bad).contains("cannot read none.kdl"), "{}", said(&bad));
    assert_eq!(fs::read_dir(copy.path()).unwrap().count(), 2);
    // File permissions stay the same, and a partly read configuration is never taken for the complete one.
    fs::write(copy.path().join("flatout.kdl"), untidy).unwrap();
    fs::set_permissions(copy.path().join("flatout.kdl"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(output(copy.path(), &["fmt"]).status.success());
    let mode = fs::metadata(copy.path().join("flatout.kdl")).unwrap().permissions().mode();
    assert_eq!((read(), mode & 0o777), (neat.to_owned(), 0o640));
    let long = with_input(copy.path(), &["fmt", "-"], &"// a\n".repeat(300_000));
    assert_eq!((long.status.code(), long.stdout.len()), (Some(2), 0), "{}", said(&long));
}

#[test]
fn passwd_prints_hashes_that_a_configuration_accepts() {
    let folder = Folder::new();
    for (flags, prefix) in [(&["passwd"][..], "$argon2id$v=19$"), (&["passwd", "--bcrypt"], "$2b$12$")] {
        let output = with_input(folder.path(), flags, "correct horse\n");
        let hash = stdout(&output);
        assert!(output.status.success() && hash.starts_with(prefix), "{}", said(&output));
        let text = format!("site {{ basic-auth {{ user \"ann\" {:?} }}; files \".\" }}", hash.trim_end());
        flatout_config::load_text(&text).unwrap();
    }
    let refused = |flags: &[&str], input: &str| {
        let output = with_input(folder.path(), flags, input);
        assert_eq!((output.status.code().is_some_and(|code| code != 0), output.stdout.len()), (true, 0));
        said(&output)
    };
    assert!(refused(&["passwd"], "\n").contains("empty"));
    assert!(refused(&["passwd", "--bcrypt"], &"x".repeat(72)).contains("71 bytes"));
    assert!(refused(&["passwd", "--bcrypt", "--argon2"], "x\n").contains("cannot be used with"));
}

/// Reads the output up to these words, or to its end.
fn read_until(stdout: &mut impl Read, words: &str, shown: &mut String) {
    let mut buffer = [0; 1024];
    while !shown.contains(words) {
        match stdout.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => shown.push_str(&String::from_utf8_lossy(&buffer[..length])),
        }
    }
}

/// `script` provides a terminal. The test does not check whether input is hidden: echo is switched off just after the
/// prompt, and this test types faster than any person.
#[test]
fn passwd_asks_twice_on_a_terminal() {
    let ask = |first: &[u8], second: &[u8]| {
        let program = format!("{} passwd", flatout().get_program().display());
        let mut command = tool("script");
        command.args(["--quiet", "--return", "--command", &program, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut shown = String::new();
        read_until(&mut stdout, "Password: ", &mut shown);
        input.write_all(first).unwrap();
        read_until(&mut stdout, "Repeat the password: ", &mut shown);
        input.write_all(second).unwrap();
        read_until(&mut stdout, "\0", &mut shown);
        (child.wait().unwrap().code(), shown)
    };
    let (code, shown) = ask(b"correct horse\n", b"correct horse\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("$argon2id$v=19$"), "{shown}");
    let (code, shown) = ask(b"correct horse\n", b"correct hose\n");
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("the passwords do not match") && !shown.contains("$argon2"), "{shown}");
}

#[test]
fn help_explains_codes_and_commands() {
    let folder = Folder::new();
    for code in Code::ALL {
        let output = output(folder.path(), &["help", code.id()]);
        assert_eq!(stdout(&output), format!("{}: {}\n\n{}\n", code.id(), code.title(), code.text()));
    }
    assert!(stdout(&output(folder.path(), &["help", "validate"])).contains("Usage: flatout validate"));
    assert!(stdout(&output(folder.path(), &["help"])).contains("Usage: flatout <COMMAND>"));
    let unknown = output(folder.path(), &["help", "C9999"]);
    assert_eq!(unknown.status.code(), Some(2));
}
