//! pip, with a package index and wheels.

use super::origin::{Origin, origin_log, python, source};
use super::stage::Stage;
use crate::harness::Server;
use crate::tool::{run, tool};

const PACKAGES: &[&str] = &["probeone", "probetwo"];

#[test]
fn pip_installs_from_an_index() {
    let stage = Stage::new("pip");
    let folder = stage.folder.path();
    run(python().arg(source("wheels.py")).arg(folder.join("index")).args(PACKAGES));
    run(tool("find").args(["index", "-exec", "touch", "--date", "30 days ago", "{}", "+"]).current_dir(folder));
    let origin = Origin::nginx(&stage.folder, &format!("root {}/index;\n", folder.display()));
    let server = Server::accelerate(&origin.url(), &["--workers", "2"]);
    let mut seen = Vec::new();
    for round in ["first", "second"] {
        let place = folder.join(round);
        let mut pip = python();
        pip.args(["-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-cache-dir", "--target"]);
        pip.arg(&place).args(["--index-url", &server.url("/simple/")]);
        run(pip.args(PACKAGES));
        for name in PACKAGES {
            let printed =
                run(python().args(["-c", &format!("import {name}; print({name}.NAME)")]).env("PYTHONPATH", &place));
            assert_eq!(printed.trim(), *name);
        }
        seen.push(origin_log(&stage.folder, &origin));
    }
    // pip requests the index with `max-age=0`. The origin confirms it with 304 and does not send it again.
    let again = &seen[1][seen[0].len()..];
    assert!(again.iter().all(|line| !line.starts_with("200 ") && !line.contains(".whl")), "{again:?}");
}
