//! Cache files that were changed while the accelerator was not running: no wrong byte is served.

use super::super::harness::{Folder, Server};
use super::origin::{Origin, response};
use super::{accelerate, ask, get};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const OBJECTS: usize = 60;
const LARGE_BYTES: usize = 20 * 1024 * 1024;

fn body_of(path: &str) -> Vec<u8> {
    let number: usize = path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(OBJECTS);
    let bytes = if number == OBJECTS { LARGE_BYTES } else { [100_000, 300_000, 700_000][number % 3] };
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut body = Vec::with_capacity(bytes + 8);
    while body.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(bytes);
    body
}

fn body_files(disk: &Path) -> Vec<PathBuf> {
    let subfolders = fs::read_dir(disk.join("bodies")).unwrap();
    let files = subfolders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.metadata().unwrap().len() > 0);
    files.sort_by_key(|path| (path.metadata().unwrap().len(), path.clone()));
    files
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// Requests all small objects, checks that each is complete and correct, and returns how many were hits.
fn visit(server: &Server) -> usize {
    let mut hits = 0;
    for number in 0..OBJECTS {
        let target = format!("/o/{number}");
        let answer = get(server, &target);
        assert!(answer.status == 200 && answer.is_whole && answer.body == body_of(&target), "{target}");
        hits += usize::from(answer.field("cache-status").is_some_and(|status| status.contains("; hit")));
    }
    hits
}

#[test]
fn damaged_cache_files_are_misses_and_never_sent() {
    let origin = Origin::responding_unlogged(|request| {
        response("200 OK", "Cache-Control: max-age=3600\r\nETag: \"1\"\r\n", &body_of(request.path()))
    });
    let disk = Folder::new();
    let volume = disk.path().join("volume");
    let budget = format!("{}=1GiB", volume.display());
    let arguments = ["--h2c", "--memory", "64MiB", "--disk", &budget];
    {
        let server = accelerate(&origin, &arguments);
        assert_eq!(visit(&server), 0);
        assert_eq!(visit(&server), OBJECTS);
        assert!(get(&server, "/large").body == body_of("/large"));
        let (status, _) = server.stop();
        assert!(status.success());
    }
    let files = body_files(&volume);
    assert_eq!(files.len(), OBJECTS + 1);
    // Undamaged, every object is served from the disk, over HTTP/1.1 and HTTP/2.
    {
        let server = accelerate(&origin, &arguments);
        assert_eq!(visit(&server), OBJECTS);
        let answer = get(&server, "/large");
        assert!(answer.is_whole && answer.body == body_of("/large"));
        assert!(answer.field("cache-status").unwrap().contains("; hit"), "{:?}", answer.fields);
        let (status, _) = server.stop();
        assert!(status.success());
    }
    {
        let server = accelerate(&origin, &arguments);
        let fetched = disk.path().join("fetched");
        let curl = Command::new("curl")
            .args(["-sS", "--http2-prior-knowledge", "-o"])
            .arg(&fetched)
            .arg(server.url("/large"))
            .status()
            .unwrap();
        assert!(curl.success() && fs::read(&fetched).unwrap() == body_of("/large"));
        let (status, _) = server.stop();
        assert!(status.success());
    }
    // Of every five small files, one is truncated, one has a flipped bit, and two are swapped.
    for part in files[..OBJECTS].chunks(5) {
        let [_, flipped, cut, one, other] = part else { panic!("parts of 5") };
        let length = flipped.metadata().unwrap().len();
        flip(flipped, 99_000);
        fs::File::options().write(true).open(cut).unwrap().set_len(length / 2).unwrap();
        let aside = disk.path().join("aside");
        fs::rename(one, &aside).unwrap();
        fs::rename(other, one).unwrap();
        fs::rename(&aside, other).unwrap();
    }
    // Beyond the part whose checksum is verified before the head is sent.
    flip(&files[OBJECTS], 18 << 20);
    let server = accelerate(&origin, &arguments);
    // A damaged range is fetched from the origin. An undamaged range is a hit.
    let part = ask(&server, "GET", "/large", "Range: bytes=1000-1999\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &body_of("/large")[1_000..2_000]));
    assert!(part.field("cache-status").unwrap().contains("; hit"), "{:?}", part.fields);
    let cut = get(&server, "/large");
    assert!(!cut.is_whole && body_of("/large").starts_with(&cut.body) && cut.body.len() >= 16 << 20);
    let again = get(&server, "/large");
    assert!(again.is_whole && again.body == body_of("/large"));
    assert!(!again.field("cache-status").unwrap().contains("; hit"), "{:?}", again.fields);
    assert_eq!(visit(&server), OBJECTS / 5);
    assert_eq!(visit(&server), OBJECTS);
    let (_, text) = server.stop();
    for name in ["body_corrupt", "body_truncated", "body_misplaced"] {
        assert!(text.contains(&format!("[{name}]")), "{name}: {text}");
    }
    assert!(text.contains("miss_corrupt"), "{text}");
}
