//! `flatout workload`: file sets that are created and served, logs that are mined, lists and logs that are checked.

use super::harness::{Folder, Server, flatout};
use super::tool::tool;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

fn workload(arguments: &[&str]) -> Output {
    flatout().arg("workload").args(arguments).output().unwrap()
}

fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_file_set_is_served_as_its_list_says() {
    let folder = Folder::new();
    let files = folder.path().join("files");
    let made = workload(&["make", "webstone-standard", path_of(&files), "--json"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let value: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(
        (&value["schema"], &value["kind"], &value["files"]),
        (&"flatout-workload".into(), &"fileset".into(), &5.into())
    );

    // Other programs confirm the sizes and digests in the list for what is served.
    let list = fs::read_to_string(files.join("filelist")).unwrap();
    let server = Server::start(&files, &[]);
    let mut seen = 0;
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [path, _, size, digest] = words[..] else { panic!("{line}") };
        let copy = folder.path().join("copy");
        let fetched = tool("curl").args(["-sf", "-o", path_of(&copy), &server.url(path)]).status().unwrap();
        assert!(fetched.success(), "{path}");
        assert_eq!(format!("#{}", fs::metadata(&copy).unwrap().len()), size);
        let sum = tool("sha256sum").arg(&copy).output().unwrap().stdout;
        assert_eq!(format!("#sha256={}", String::from_utf8_lossy(&sum[..64])), digest);
        seen += 1;
    }
    assert_eq!(seen, 5);

    let checked = workload(&["check", path_of(&files.join("filelist"))]);
    assert!(
        checked.status.success() && stdout(&checked).contains("the mean body size is 19773 bytes"),
        "{}",
        stdout(&checked)
    );
    let other = workload(&["make", "web96", path_of(folder.path())]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("does not overwrite"), "{}", stderr(&other));
    let senseless = workload(&["make", "webstone-simple", path_of(&files), "--rate", "5"]);
    assert_eq!(senseless.status.code(), Some(2));
    assert!(stderr(&senseless).contains("only for web96"), "{}", stderr(&senseless));
}

#[test]
fn our_log_can_be_mined_in_both_formats() {
    for format in ["combined", "json"] {
        let folder = Folder::with(&[("a.html", b"0123456789"), ("b.html", b"01234")]);
        let log = folder.path().join("access.log");
        let text = format!(
            "log {:?} format={format:?}\nsite \"*\" {{\n    listen \"127.0.0.1:0\"\n    files {:?}\n}}\n",
            log,
            folder.path()
        );
        let server = Server::run(&folder, &text);
        for path in ["/a.html", "/a.html", "/b.html", "/none.html"] {
            server.get(path);
        }
        server.exchange(b"nonsense\r\n\r\n");
        let (status, _) = server.stop();
        assert!(status.success());
        let list = folder.path().join("list");
        let mine = ["mine", path_of(&log), "--output", path_of(&list), "--json"];
        let mined = workload(&[&mine[..], &["--verify-sizes"]].concat());
        assert!(mined.status.success(), "{format}: {}", stderr(&mined));
        let value: Value = serde_json::from_slice(&mined.stdout).unwrap();
        assert_eq!((&value["urls"], &value["requests"]), (&2.into(), &3.into()), "{format}: {value}");
        assert_eq!(value["log"]["skipped"], serde_json::json!({ "no-request": 1 }), "{format}");
        let text = fs::read_to_string(&list).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, ["/a.html\t2\t#10", "/b.html\t1\t#5"], "{format}");
        let checked = workload(&["check", path_of(&log), "--json"]);
        let value: Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!((&value["kind"], &value["requests"], &value["clients"]), (&"log".into(), &4.into(), &1.into()));
    }
}

/// A log of a server that compresses contains the sizes of compressed responses.
#[test]
fn the_sizes_of_a_mined_log_are_checked_only_on_request() {
    let site = Folder::with(&[("a.txt", &[b'a'; 1_000])]);
    let server = Server::start(site.path(), &[]);
    let line = b"h - - [10/Oct/2000:13:55:36 -0700] \"GET /a.txt HTTP/1.1\" 200 29\n";
    let folder = Folder::with(&[("log", line)]);
    let (log, list) = (folder.path().join("log"), folder.path().join("list"));
    for (flags, text, code) in [(&[][..], "/a.txt\t1\t# 29 bytes\n", 0), (&["--verify-sizes"], "/a.txt\t1\t#29\n", 1)] {
        let mined = workload(&[&["mine", path_of(&log), "--output", path_of(&list)], flags].concat());
        assert!(mined.status.success(), "{}", stderr(&mined));
        assert!(fs::read_to_string(&list).unwrap().ends_with(text), "{text}");
        let result = folder.path().join("result.json");
        let mut bench = flatout();
        bench.args(["bench", &server.url("/"), "--filelist", path_of(&list), "-n", "4", "-c", "1"]);
        let run = bench.arg("--json").arg(&result).output().unwrap();
        // On a busy machine, the figures of so short a run may not be valid.
        let is_expected = run.status.code() == Some(code) || code == 0 && run.status.code() == Some(5);
        assert!(is_expected, "{flags:?} {}", stdout(&run));
        let value: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
        assert_eq!(value["errors"]["by_kind"]["wrong-body"], 4 * code, "{flags:?} {value:#}");
    }
}

#[test]
fn malformed_lines_are_reported_with_their_numbers() {
    let folder = Folder::with(&[
        ("list", b"/a 1\n/b one\n\nc 3\n/d 1 #sha256=5\n"),
        ("urls", b"/a\n/b /c\n"),
        ("log", b"h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\nnonsense\nh - - [x] \"GET /\" 1 1\n"),
        ("empty", b""),
    ]);
    let at = |name: &str| folder.path().join(name);
    for (name, more, lines) in [
        ("list", &[][..], &["line 2: the weight", "line 4: there is no URL", "line 5: a digest"][..]),
        ("urls", &["--as", "urls"], &["line 2: the line has more"]),
        ("log", &[], &["line 2: the line has an unknown format", "line 3: the time"]),
        ("empty", &[], &["contains no requests"]),
    ] {
        let file = at(name);
        let checked = workload(&[&["check", path_of(&file)], more].concat());
        assert_eq!(checked.status.code(), Some(1), "{name}: {}", stderr(&checked));
        for line in lines {
            assert!(stderr(&checked).contains(line), "{name}: {}", stderr(&checked));
        }
        let checked = workload(&[&["check", path_of(&file), "--json"], more].concat());
        let value: Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!(value["faults_count"], lines.len(), "{name}: {value}");
    }
    let refused = workload(&["mine", path_of(&at("log"))]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(
        stderr(&refused).contains("line 2: ") && stderr(&refused).contains("--skip-malformed"),
        "{}",
        stderr(&refused)
    );
    let taken = workload(&["mine", path_of(&at("log")), "--skip-malformed"]);
    assert!(taken.status.success() && stdout(&taken).ends_with("/\t1\t# 1 byte\n"), "{}", stdout(&taken));
    let missing = workload(&["check", path_of(&at("missing"))]);
    assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
}

#[test]
fn a_full_disk_is_reported_and_complete_files_are_kept() {
    let folder = Folder::new();
    let files = folder.path().join("files");
    assert!(workload(&["make", "webstone-standard", path_of(&files)]).status.success());
    // The disk is full for one of the files.
    let large = files.join("file5m.html");
    fs::remove_file(&large).unwrap();
    std::os::unix::fs::symlink("/dev/full", &large).unwrap();
    let made = workload(&["make", "webstone-standard", path_of(&files)]);
    assert_eq!(made.status.code(), Some(1), "{}", stderr(&made));
    let told = stderr(&made);
    assert!(told.contains("file5m.html: No space left") && told.contains("4 of 5 files were written"), "{told}");
    assert_eq!(fs::metadata(files.join("file500k.html")).unwrap().len(), 512_500);
    assert!(fs::symlink_metadata(&large).is_err(), "an incomplete file has its final name");
    // A list that cannot be written is reported too.
    fs::write(folder.path().join("log"), "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\n").unwrap();
    let mined = workload(&["mine", path_of(&folder.path().join("log")), "--output", "/dev/full"]);
    assert_eq!(mined.status.code(), Some(1));
    assert!(stderr(&mined).contains("cannot write /dev/full"), "{}", stderr(&mined));
}
