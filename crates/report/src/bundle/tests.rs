use super::{OpenError, read, rerun, write};
use crate::tests::fixture;
use flatout_load::report::RunReport;
use std::fs;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flatout-bundle-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Returns a run that reads two files with the same name.
fn with_inputs(folder: &Path) -> RunReport {
    let mut report = fixture::single();
    for (name, content) in [("a/list", "/one\n"), ("b/list", "/two\n")] {
        fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        fs::write(folder.join(name), content).unwrap();
    }
    let path = |name: &str| folder.join(name).display().to_string();
    report.command =
        words(&format!("flatout bench http://a/ --urls {} --json x --body={}", path("a/list"), path("b/list")));
    report
}

#[test]
fn a_bundle_has_all_that_a_rerun_needs() {
    let folder = Folder::new("whole");
    let report = with_inputs(&folder.0);
    let bundle = folder.0.join("bundle");
    write(&bundle, &report).unwrap();
    // The original files may be deleted; their copies remain.
    fs::remove_dir_all(folder.0.join("a")).unwrap();
    let mut names: Vec<String> =
        fs::read_dir(&bundle).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = words(
        "bundle.json classes.csv command.txt environment.json errors.csv inputs latency.hlog percentiles.csv report.html run.json seed.txt series.csv steps.csv",
    );
    assert_eq!(names, expected);
    let (again, line) = rerun(&bundle).unwrap();
    assert_eq!(again.seed, report.seed);
    let copy = |name: &str| bundle.join("inputs").join(name).display().to_string();
    assert_eq!(line, words(&format!("flatout bench http://a/ --urls {} --body={}", copy("0-list"), copy("1-list"))));
    assert_eq!(fs::read_to_string(copy("0-list")).unwrap(), "/one\n");
    assert_eq!(fs::read_to_string(bundle.join("seed.txt")).unwrap(), "42\n");
    // The result alone is sufficient as long as its files are in their original places.
    let (_, line) = rerun(&bundle.join("run.json")).unwrap();
    assert_eq!(
        line,
        words(&format!("flatout bench http://a/ --urls {0}/a/list --body={0}/b/list", folder.0.display()))
    );
    // Writing the bundle again over itself changes nothing.
    fs::create_dir_all(folder.0.join("a")).unwrap();
    fs::write(folder.0.join("a/list"), "/one\n").unwrap();
    write(&bundle, &report).unwrap();
}

#[test]
fn what_is_no_result_is_said_to_be_none() {
    let folder = Folder::new("foreign");
    let file = folder.0.join("x.json");
    for (content, words) in [
        (&b"not json"[..], "not a result"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"{}", "it has no schema"),
        (br#"{"schema":"flatout-limits/1"}"#, "flatout-limits/1"),
        (br#"{"schema":"flatout-run","schema_version":999}"#, "newer flatout"),
        (br#"{"schema":"flatout-run","schema_version":1}"#, "missing field"),
    ] {
        fs::write(&file, content).unwrap();
        let error = read(&file).unwrap_err();
        assert!(matches!(error, OpenError::Result(..)) && error.to_string().contains(words), "{words}: {error}");
        assert!(error.to_string().contains("x.json"), "{error}");
    }
    let error = read(&folder.0.join("none")).unwrap_err();
    assert!(matches!(error, OpenError::Io(..)), "{error}");
    let error = read(&folder.0).unwrap_err();
    assert!(error.to_string().contains("run.json"), "{error}");
}

#[test]
fn a_bundle_that_is_not_whole_is_refused() {
    let folder = Folder::new("broken");
    let bundle = folder.0.join("bundle");
    write(&bundle, &with_inputs(&folder.0)).unwrap();
    let manifest = fs::read_to_string(bundle.join("bundle.json")).unwrap();
    for (from, to, words) in [
        ("inputs/0-list", "../a/list", "is missing"),
        ("inputs/0-list", "/etc/passwd", "is missing"),
        ("inputs/0-list", "inputs/none", "is missing"),
        ("flatout-bundle/1", "flatout-bundle/2", "its layout is"),
        ("a/list", "c/list", "does not match the command"),
        ("{", "", "not the list of a bundle"),
    ] {
        fs::write(bundle.join("bundle.json"), manifest.replacen(from, to, 1)).unwrap();
        let error = rerun(&bundle).unwrap_err();
        assert!(error.to_string().contains(words), "{to}: {error}");
    }
    fs::remove_file(bundle.join("bundle.json")).unwrap();
    assert!(matches!(rerun(&bundle), Err(OpenError::Io(..))));
}

#[test]
fn a_bundle_cannot_make_a_rerun_read_files_outside_it() {
    let folder = Folder::new("outside");
    let bundle = folder.0.join("bundle");
    write(&bundle, &with_inputs(&folder.0)).unwrap();
    let secret = folder.0.join("secret");
    fs::write(&secret, "hidden").unwrap();
    let list = bundle.join("inputs/0-list");
    for name in [secret.to_str().unwrap(), "../../secret", "secret"] {
        fs::write(&list, format!("/one\nPOST /x @{name}\n")).unwrap();
        assert!(matches!(rerun(&bundle), Err(OpenError::NamesFiles(path)) if path == list), "{name}");
    }
    // The same text is no name of a file in the content of a request.
    fs::write(&list, "POST /x a=@secret\n").unwrap();
    assert!(rerun(&bundle).is_ok());
    let body = bundle.join("inputs/1-list");
    fs::remove_file(&body).unwrap();
    std::os::unix::fs::symlink(&secret, &body).unwrap();
    assert!(rerun(&bundle).unwrap_err().to_string().contains("is missing"));
}

#[test]
fn a_file_that_cannot_be_copied_is_named_and_the_result_is_kept() {
    let folder = Folder::new("gone");
    let report = with_inputs(&folder.0);
    fs::remove_dir_all(folder.0.join("b")).unwrap();
    let (path, _) = write(&folder.0.join("bundle"), &report).unwrap_err();
    assert!(path.ends_with("b/list"), "{}", path.display());
    assert!(read(&folder.0.join("bundle")).is_ok());
}
