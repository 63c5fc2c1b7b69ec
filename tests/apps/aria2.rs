//! aria2c, which downloads a file over sixteen connections with many ranges.

use super::origin::{Origin, origin_log};
use super::stage::Stage;
use crate::harness::{Server, wait_until};
use crate::tool::{run, tool};
use std::fs;

const BYTES: usize = 64 << 20;

#[test]
fn a_second_aria2c_needs_no_origin() {
    let stage = Stage::new("aria2c");
    let root = stage.folder.path();
    // No two blocks are alike.
    let content: Vec<u8> =
        (0..BYTES / 8).flat_map(|number| (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    stage.folder.write("files/large.bin", &content);
    run(tool("touch").args(["--date", "30 days ago"]).arg(root.join("files/large.bin")));
    let origin = Origin::nginx(&stage.folder, &format!("root {}/files;\n", root.display()));
    let server = Server::accelerate(&origin.url(), &["--workers", "2"]);
    let fetch = |name: &str| {
        let mut aria2c = tool("aria2c");
        aria2c.args(["-x16", "-s16", "-k1M", "--file-allocation=none", "--no-conf", "--quiet", "--max-tries=1"]);
        aria2c.args(["--dir", root.to_str().unwrap(), "--out", name]);
        run(aria2c.arg(server.url("/large.bin")));
        assert!(fs::read(root.join(name)).unwrap() == content, "{name} is another file");
        origin_log(&stage.folder, &origin).len()
    };
    let after_first = fetch("first");
    // The client may receive the last byte before the cache has stored it.
    wait_until("all parts are stored", || {
        let mut curl = tool("curl");
        curl.args(["--silent", "--fail", "--output", "/dev/null", "--header", "Cache-Control: only-if-cached"]);
        curl.arg(server.url("/large.bin")).status().unwrap().success()
    });
    let after_second = fetch("second");
    assert_eq!(after_second, after_first, "{:?}", &origin_log(&stage.folder, &origin)[after_first..]);
    // A client that requests the full file needs no origin either.
    run(tool("curl").args(["--silent", "--fail", "--output"]).arg(root.join("third")).arg(server.url("/large.bin")));
    assert!(fs::read(root.join("third")).unwrap() == content);
    assert_eq!(origin_log(&stage.folder, &origin).len(), after_first);
}
