//! git's smart HTTP, served by git-http-backend on lighttpd.

use super::origin::Origin;
use super::stage::Stage;
use crate::harness::Server;
use crate::process::free_port;
use crate::tool::{run, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn git(folder: &Path) -> Command {
    let mut command = tool("git");
    command.arg("-C").arg(folder).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_TERMINAL_PROMPT", "0").env("HOME", folder);
    for (name, value) in [("GIT_AUTHOR", "a writer"), ("GIT_COMMITTER", "a writer")] {
        command.env(format!("{name}_NAME"), value).env(format!("{name}_EMAIL"), "writer@example.org");
    }
    command
}

fn backend() -> PathBuf {
    let path = run(tool("git").arg("--exec-path"));
    Path::new(path.trim()).join("git-http-backend")
}

/// lighttpd, which serves every repository below `repositories`.
fn serve(stage: &Stage) -> Origin {
    let (root, port) = (stage.folder.path().display(), free_port());
    fs::create_dir_all(stage.folder.path().join("uploads")).unwrap();
    let text = format!(
        "server.modules = (\"mod_alias\", \"mod_setenv\", \"mod_cgi\")\nserver.document-root = \"{root}\"\n\
         server.bind = \"127.0.0.1\"\nserver.port = {port}\nserver.errorlog = \"{root}/lighttpd.log\"\n\
         server.upload-dirs = (\"{root}/uploads\")\nalias.url = (\"/git\" => \"{}\")\ncgi.assign = (\"\" => \"\")\n\
         setenv.set-environment = (\"GIT_PROJECT_ROOT\" => \"{root}/repositories\", \"GIT_HTTP_EXPORT_ALL\" => \"1\", \"HOME\" => \"{root}\")\n",
        backend().display()
    );
    stage.folder.write("lighttpd.conf", text.as_bytes());
    Origin::listening(port, tool("lighttpd").arg("-D").arg("-f").arg(stage.folder.path().join("lighttpd.conf")))
}

fn commit(clone: &Path, file: &str, content: &[u8]) -> String {
    fs::write(clone.join(file), content).unwrap();
    run(git(clone).args(["add", "."]));
    run(git(clone).args(["commit", "--quiet", "--message", file]));
    run(git(clone).args(["rev-parse", "HEAD"])).trim().to_owned()
}

#[test]
fn git_clones_pushes_and_fetches() {
    let stage = Stage::new("git");
    let folder = stage.folder.path();
    let repository = folder.join("repositories/probe.git");
    fs::create_dir_all(&repository).unwrap();
    run(git(&repository).args(["init", "--quiet", "--bare", "--initial-branch=main"]));
    run(git(&repository).args(["config", "http.receivepack", "true"]));
    let origin = serve(&stage);
    let servers =
        [Server::accelerate(&origin.url(), &["--workers", "2"]), stage.serve(&origin.url(), "ttl \"60s\"", "")];
    let mut random: u64 = 0x1234_5678_9ABC_DEF1;
    for (round, server) in servers.iter().enumerate() {
        let url = server.url("/git/probe.git");
        let name = |what: &str| folder.join(format!("{what}{round}"));
        run(git(folder).args(["clone", "--quiet", &url]).arg(name("writer")));
        run(git(&name("writer")).args(["checkout", "--quiet", "-B", "main"]));
        commit(&name("writer"), "small", format!("{round}").as_bytes());
        // Incompressible data.
        let large: Vec<u8> = (0..20 << 17)
            .flat_map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random.to_le_bytes()
            })
            .collect();
        let pushed = commit(&name("writer"), &format!("large{round}"), &large);
        run(git(&name("writer")).args(["push", "--quiet", "origin", "main"]));
        // The new state is visible immediately, over protocol 2 and over the older one.
        for version in ["2", "0"] {
            let references = run(git(folder).args(["-c", &format!("protocol.version={version}"), "ls-remote", &url]));
            assert!(references.contains(&format!("{pushed}\trefs/heads/main")), "{references}");
        }
        run(git(folder).args(["clone", "--quiet", "--depth=1", &url]).arg(name("shallow")));
        assert_eq!(run(git(&name("shallow")).args(["rev-list", "--count", "HEAD"])).trim(), "1");
        assert!(fs::read(name("shallow").join(format!("large{round}"))).unwrap() == large);
        run(git(&name("shallow")).args(["fetch", "--quiet", "--deepen=1"]));
        assert_eq!(run(git(&name("shallow")).args(["rev-list", "--count", "HEAD"])).trim(), "2");
        // Existing clones get a later push.
        let later = commit(&name("writer"), "small", b"later");
        run(git(&name("writer")).args(["push", "--quiet", "origin", "main"]));
        run(git(&name("shallow")).args(["pull", "--quiet"]));
        assert_eq!(run(git(&name("shallow")).args(["rev-parse", "HEAD"])).trim(), later);
        run(git(&name("shallow")).args(["fsck", "--strict"]));
    }
}
