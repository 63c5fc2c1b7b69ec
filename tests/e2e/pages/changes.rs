//! Pages and configurations that change while pages are being served.

use super::{configure, page, site, text};
use crate::e2e::harness::{Folder, TICK, flatout, wait_until};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::thread;

#[test]
fn a_page_is_recompiled_when_it_or_an_include_changes() {
    let files = [("site/index.lhtml", "<?include \"part.lhtml\" ?>-one"), ("site/part.lhtml", "<?= 1 ?>")];
    let (folder, server) = site(&files, "file-check-interval \"0s\"", "");
    assert_eq!(page(&server, "/"), "1-one");
    folder.write("site/part.lhtml", b"<?= 2 ?>");
    assert_eq!(page(&server, "/"), "2-one");
    folder.write("site/index.lhtml", b"<?include \"part.lhtml\" ?>-two");
    assert_eq!(page(&server, "/"), "2-two");
    // A page that is created, a page that is removed, and a page whose include is removed and restored.
    assert_eq!(server.get("/new").status, 404);
    folder.write("site/new.lhtml", b"new");
    assert_eq!(page(&server, "/new"), "new");
    fs::remove_file(folder.path().join("site/new.lhtml")).unwrap();
    assert_eq!(server.get("/new").status, 404);
    fs::remove_file(folder.path().join("site/part.lhtml")).unwrap();
    assert_eq!(server.get("/").status, 500);
    folder.write("site/part.lhtml", b"<?= 3 ?>");
    assert_eq!(page(&server, "/"), "3-two");
}

#[test]
fn pages_are_run_from_the_folder_that_their_path_names_now() {
    let (folder, server) = site(&[("site/index.lhtml", "<?= 1 ?>-one")], "", "");
    assert_eq!(page(&server, "/"), "1-one");
    folder.write("next/index.lhtml", b"<?= 2 ?>-two");
    fs::rename(folder.path().join("site"), folder.path().join("before")).unwrap();
    fs::rename(folder.path().join("next"), folder.path().join("site")).unwrap();
    wait_until("the new folder is served", || page(&server, "/") == "2-two");
}

#[test]
fn changes_are_not_seen_before_the_recheck_interval() {
    let (folder, server) = site(&[("site/index.lhtml", "one")], "file-check-interval \"1h\"", "");
    assert_eq!(page(&server, "/"), "one");
    folder.write("site/index.lhtml", b"two");
    thread::sleep(TICK);
    assert_eq!(page(&server, "/"), "one");
}

#[test]
fn dev_mode_sees_changes_immediately_and_reloads_the_browser() {
    let (folder, server) = site(&[("site/index.lhtml", "one")], "dev; file-check-interval \"1h\"", "");
    assert!(page(&server, "/").starts_with("one<script>"));
    let mut stream = server.connect();
    stream.write_all(b"GET /?flatout-dev-events HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap_or_default);
    let mut next_event = || lines.find(|line| line.starts_with("data: ")).expect("an event");
    let first = next_event();
    folder.write("site/index.lhtml", b"two");
    let second = next_event();
    assert_ne!(first, second);
    wait_until("the change is seen", || page(&server, "/").starts_with("two"));
    // An open event stream does not prevent the server from stopping.
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn a_reload_keeps_running_pages_and_applies_new_settings() {
    let files = [
        ("site/index.lhtml", "<?= 1 ?>"),
        ("site/slow.lhtml", "<?lua kv.incr(\"begun\") local n = 0; while n < 5000000 do n = n + 1 end ?><?= n ?>"),
        ("site/begun.lhtml", "<?= kv.get(\"begun\") or 0 ?>"),
    ];
    let (folder, server) = site(&files, "cpu-limit \"20s\"", "");
    let slow = thread::scope(|scope| {
        let slow = scope.spawn(|| server.get("/slow"));
        wait_until("the page runs", || page(&server, "/begun") == "1");
        folder.write("flatout.kdl", configure("cpu-limit \"1ms\"; cpu-slice \"20us\"", "").as_bytes());
        let reload = |folder: &Folder| {
            let socket = folder.path().join("admin.sock");
            let output = flatout().arg("reload").arg("--admin").arg(socket).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        reload(&folder);
        slow.join().unwrap()
    });
    // The run continues with the settings that it started with.
    assert_eq!((slow.status, text(&slow).as_str()), (200, "5000000"));
    assert_eq!(server.get("/slow").status, 503);
    assert_eq!(page(&server, "/"), "1");
}
