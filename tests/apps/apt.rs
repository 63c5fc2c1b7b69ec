//! apt, with a flat repository and a pooled one.

use super::origin::{Origin, origin_log};
use super::stage::Stage;
use crate::harness::Server;
use crate::tool::{run, tool};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const PACKAGES: &[&str] = &["probe-one", "probe-two", "probe-three"];

/// Builds a package that contains a file of 256 KiB.
fn build(folder: &Path, name: &str) {
    let tree = folder.join("build").join(name);
    fs::create_dir_all(tree.join("DEBIAN")).unwrap();
    fs::create_dir_all(tree.join("usr/share").join(name)).unwrap();
    let control = format!(
        "Package: {name}\nVersion: 1.0~rc1+b1\nArchitecture: all\nMaintainer: Nobody <a@b.example>\nDescription: a probe\n"
    );
    fs::write(tree.join("DEBIAN/control"), control).unwrap();
    let content: Vec<u8> = (0..256 * 1024).map(|number: usize| ((number * number) >> 7) as u8).collect();
    fs::write(tree.join("usr/share").join(name).join("content"), content).unwrap();
    for place in ["flat", "pooled/pool/main/p/probe"] {
        let place = folder.join(place);
        fs::create_dir_all(&place).unwrap();
        run(tool("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&tree).arg(place));
    }
}

/// Writes the output of apt-ftparchive to a file.
fn index(folder: &Path, arguments: &[&str], file: &str) {
    let output = tool("apt-ftparchive").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(folder.join(file), output.stdout).unwrap();
}

fn repositories(folder: &Path) {
    for name in PACKAGES {
        build(folder, name);
    }
    let (flat, pooled) = (folder.join("flat"), folder.join("pooled"));
    index(&flat, &["packages", "."], "Packages");
    index(&flat, &["release", "."], "Release");
    let list = "dists/stable/main/binary-amd64";
    fs::create_dir_all(pooled.join(list)).unwrap();
    index(&pooled, &["packages", "pool"], &format!("{list}/Packages"));
    run(tool("gzip").arg("--keep").arg(pooled.join(list).join("Packages")));
    let names = ["Suite=stable", "Codename=stable", "Components=main", "Architectures=amd64"];
    let options: Vec<String> = names.iter().map(|name| format!("APT::FTPArchive::Release::{name}")).collect();
    let options = options.iter().flat_map(|option| ["-o", option.as_str()]);
    index(&pooled, &options.chain(["release", "dists/stable"]).collect::<Vec<_>>(), "dists/stable/Release");
    // The files of a mirror are old, too.
    run(tool("find")
        .args(["flat", "pooled", "-exec", "touch", "--date", "30 days ago", "{}", "+"])
        .current_dir(folder));
}

/// An apt-get command with its own root directory and these sources.
fn apt_get(root: &Path, sources: &str) -> Command {
    for name in [
        "etc/apt/apt.conf.d",
        "etc/apt/preferences.d",
        "var/lib/apt/lists/partial",
        "var/cache/apt/archives/partial",
        "var/lib/dpkg",
        "packages",
    ] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    fs::write(root.join("etc/apt/sources.list"), sources).unwrap();
    let mut command = tool("apt-get");
    command.current_dir(root.join("packages")).env("APT_CONFIG", "/dev/null");
    let status = root.join("var/lib/dpkg/status");
    let options = [
        format!("Dir={}", root.display()),
        format!("Dir::State::status={}", status.display()),
        "Dir::Bin::methods=/usr/lib/apt/methods".to_owned(),
        "APT::Architecture=amd64".to_owned(),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::Retries=0".to_owned(),
        "Acquire::http::Proxy=DIRECT".to_owned(),
        "Acquire::http::Timeout=60".to_owned(),
    ];
    for option in options {
        command.args(["-o", option.as_str()]);
    }
    command
}

fn check(name: &'static str, repository: &str, suffix: &str) {
    let stage = Stage::new(name);
    let folder = stage.folder.path();
    repositories(folder);
    let origin = Origin::nginx(&stage.folder, &format!("root {};\n", folder.display()));
    let server = Server::accelerate(&origin.url(), &["--workers", "2"]);
    let mut sources = String::new();
    writeln!(sources, "deb [trusted=yes] {}{repository} {suffix}", server.url("/")).unwrap();
    let mut seen = Vec::new();
    for round in ["first", "second"] {
        let root = folder.join(round);
        let update = run(apt_get(&root, &sources).args(["--error-on=any", "update"]));
        assert!(!update.contains("Err:"), "{update}");
        run(apt_get(&root, &sources).arg("download").args(PACKAGES));
        for name in PACKAGES {
            let file = fs::read_dir(root.join("packages"))
                .unwrap()
                .flatten()
                .find(|file| file.file_name().to_string_lossy().starts_with(name));
            let listing = run(tool("dpkg-deb").arg("--contents").arg(file.unwrap().path()));
            assert!(listing.contains(&format!("/usr/share/{name}/content")), "{listing}");
        }
        seen.push(origin_log(&stage.folder, &origin));
    }
    // apt requests package lists with `max-age=0`. The origin confirms them with 304, so no list is sent twice.
    let again = &seen[1][seen[0].len()..];
    assert!(again.iter().all(|line| !line.starts_with("200 ") && !line.contains(".deb")), "{again:?}");
}

#[test]
fn apt_fetches_from_a_flat_repository() {
    check("apt, flat", "flat/", "./");
}

#[test]
fn apt_fetches_from_a_pooled_repository() {
    check("apt, pooled", "pooled", "stable main");
}

/// apt resumes a half-downloaded package with `Range`, and with the date of the file in `If-Range`.
#[test]
fn apt_resumes_a_package() {
    let stage = Stage::new("apt, resumed");
    let folder = stage.folder.path();
    repositories(folder);
    let origin = Origin::nginx(&stage.folder, &format!("root {};\n", folder.display()));
    // A limit below the size of a package, so that the range itself is forwarded.
    let server = stage.serve(&origin.url(), "range-fetch-max \"4KiB\"", "");
    let sources = format!("deb [trusted=yes] {}flat/ ./\n", server.url("/"));
    let packages = fs::read_dir(folder.join("flat")).unwrap().flatten().map(|file| file.path());
    let package = packages.into_iter().find(|file| file.to_string_lossy().contains("probe-one")).unwrap();
    let content = fs::read(&package).unwrap();
    let mut seen = Vec::new();
    for round in ["first", "second"] {
        let root = folder.join(round);
        run(apt_get(&root, &sources).args(["--error-on=any", "update"]));
        let archives = root.join("var/cache/apt/archives");
        let half = archives.join("partial").join(package.file_name().unwrap());
        fs::write(&half, &content[..content.len() / 2]).unwrap();
        run(tool("touch").arg("--reference").arg(&package).arg(&half));
        run(apt_get(&root, &sources).args(["--yes", "--download-only", "install", "probe-one"]));
        assert!(fs::read(archives.join(package.file_name().unwrap())).unwrap() == content, "{round}");
        seen.push(origin_log(&stage.folder, &origin));
    }
    let packages = |log: &[String]| log.iter().filter(|line| line.contains(".deb")).cloned().collect::<Vec<_>>();
    assert!(packages(&seen[0]).iter().any(|line| line.starts_with("206 ")), "{:?}", seen[0]);
    assert_eq!(packages(&seen[1][seen[0].len()..]), [""; 0], "the second time, the rest is stored");
}
