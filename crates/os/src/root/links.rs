//! Symbolic links that lead out of a folder and into trusted ones.
//!
//! The kernel follows no link here. Links are read through descriptors, and each resulting name is opened beneath its
//! folder with RESOLVE_NO_SYMLINKS. If a name is replaced during this, the result is an error or another file beneath a
//! trusted folder, never a file elsewhere.

use super::{OpenFault, RACES_MAX, Root, fault_of};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of links followed on the way to a file, as many as the kernel follows (MAXSYMLINKS).
const LINKS_MAX: u32 = 40;

/// Maximum length of the part of a path that remains to be resolved, in bytes (PATH_MAX).
const REST_BYTES_MAX: usize = 4096;

/// The reason why a path could not be resolved.
enum ResolveFailure {
    /// The path leads out of all trusted folders, or contains too many links.
    Outside,
    Kernel(Errno),
}

impl From<Errno> for ResolveFailure {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

/// Opens `name` beneath `root` or, if links lead there, beneath a folder that `root` trusts.
pub(super) fn open_linked(root: &Root, name: &[u8], flags: OFlags) -> Result<OwnedFd, OpenFault> {
    // Links may lead out of the folder, but the requested name may not.
    if name.starts_with(b"/") || name.split(|&byte| byte == b'/').any(|part| part == b"..") {
        return Err(OpenFault::OutsideRoot);
    }
    for _ in 0..RACES_MAX {
        match Walk::new(root, name).and_then(|walk| walk.open(flags)) {
            Ok(fd) => return Ok(fd),
            // LOOP: a name that was a folder or a file a moment ago is now a link.
            Err(ResolveFailure::Kernel(Errno::AGAIN | Errno::INTR | Errno::LOOP)) => {}
            Err(ResolveFailure::Kernel(errno)) => return Err(fault_of(errno)),
            Err(ResolveFailure::Outside) => return Err(OpenFault::OutsideRoot),
        }
    }
    Err(OpenFault::Unsettled)
}

/// A path that is being resolved.
struct Walk<'a> {
    root: &'a Root,
    /// The folder that the path has led into so far.
    place: &'a Root,
    /// The path beneath `place` that has been resolved so far; no part of it is a link.
    resolved: Vec<u8>,
    /// The part of the path that remains to be resolved.
    rest: Vec<u8>,
    links: u32,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Root, name: &[u8]) -> Result<Self, ResolveFailure> {
        let mut walk = Self { root, place: root, resolved: Vec::new(), rest: Vec::new(), links: 0 };
        walk.rest.extend_from_slice(name);
        while let Some(part) = walk.next_part() {
            walk.step(&part)?;
        }
        Ok(walk)
    }

    /// Opens the file that the path has led to.
    fn open(&self, flags: OFlags) -> Result<OwnedFd, ResolveFailure> {
        Ok(open_unlinked(self.place, &self.resolved, flags)?)
    }

    /// Removes the next component from the rest of the path: a name, `.` or `..`.
    fn next_part(&mut self) -> Option<Vec<u8>> {
        let begin = self.rest.iter().position(|&byte| byte != b'/')?;
        let length = self.rest[begin..].iter().position(|&byte| byte == b'/').unwrap_or(self.rest.len() - begin);
        let part = self.rest[begin..begin + length].to_vec();
        self.rest.drain(..begin + length);
        Some(part)
    }

    fn step(&mut self, part: &[u8]) -> Result<(), ResolveFailure> {
        if part == b"." {
            return Ok(());
        }
        if part == b".." {
            return self.step_up();
        }
        let before = self.resolved.len();
        if before > 0 {
            self.resolved.push(b'/');
        }
        self.resolved.extend_from_slice(part);
        let fd = open_unlinked(self.place, &self.resolved, OFlags::PATH | OFlags::NOFOLLOW)?;
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Symlink => {
                self.resolved.truncate(before);
                self.links += 1;
                if self.links > LINKS_MAX {
                    return Err(ResolveFailure::Outside);
                }
                let target = readlinkat(&fd, "", Vec::new())?.into_bytes();
                self.enter_link(&target)
            }
            FileType::Directory => Ok(()),
            // A trailing slash would require a folder.
            _ if self.rest.is_empty() => Ok(()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn enter_link(&mut self, target: &[u8]) -> Result<(), ResolveFailure> {
        let mut rest = target.to_vec();
        rest.extend_from_slice(&self.rest);
        if rest.len() > REST_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.rest = rest;
        if target.starts_with(b"/") { self.find_place(Vec::new()) } else { Ok(()) }
    }

    fn step_up(&mut self) -> Result<(), ResolveFailure> {
        if self.resolved.is_empty() {
            let [_, real] = &self.place.paths;
            let parent = real.parent().unwrap_or(real).as_os_str().as_bytes().to_vec();
            return self.find_place(parent);
        }
        let parent = self.resolved.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.resolved.truncate(parent);
        Ok(())
    }

    /// Finds the folder that the absolute path `path`, followed by the rest, leads into. The path is compared as
    /// written: links on the way to a trusted folder are not resolved.
    fn find_place(&mut self, mut path: Vec<u8>) -> Result<(), ResolveFailure> {
        loop {
            if let Some((place, beneath)) = self.place_of(&path) {
                let mut rest = beneath;
                rest.push(b'/');
                rest.extend_from_slice(&self.rest);
                (self.place, self.rest) = (place, rest);
                self.resolved.clear();
                return Ok(());
            }
            let part = self.next_part().ok_or(ResolveFailure::Outside)?;
            match &part[..] {
                b"." => {}
                b".." => path.truncate(path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
                _ => {
                    path.push(b'/');
                    path.extend_from_slice(&part);
                }
            }
        }
    }

    /// Returns the folder that contains the absolute path `path`, and the path relative to that folder.
    fn place_of(&self, path: &[u8]) -> Option<(&'a Root, Vec<u8>)> {
        let root: &'a Root = self.root;
        let path = if path.is_empty() { Path::new("/") } else { Path::new(OsStr::from_bytes(path)) };
        let places = root.trusted.iter().map(AsRef::as_ref).chain([root]);
        places
            .flat_map(|place| place.paths.iter().map(move |own| (place, own)))
            .find_map(|(place, own)| Some((place, path.strip_prefix(own).ok()?.as_os_str().as_bytes().to_vec())))
    }
}

/// Opens `name` beneath `place` without following any link. With `NOFOLLOW` and `PATH`, `name` itself may be a link.
fn open_unlinked(place: &Root, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let name = if name.is_empty() { b"." } else { name };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    openat2(&*place.folder, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::super::{Named, OpenFault, Root};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Folders(PathBuf);

    impl Folders {
        /// `www` is served, `share` and `lib` are trusted, `secret` is not.
        fn create(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("flatout-links-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            for name in ["www/sub", "share/js/deep", "lib", "secret"] {
                fs::create_dir_all(folder.join(name)).unwrap();
            }
            fs::write(folder.join("share/js/app.js"), "share").unwrap();
            fs::write(folder.join("lib/lib.js"), "lib").unwrap();
            fs::write(folder.join("www/page"), "page").unwrap();
            fs::write(folder.join("secret/key"), "secret").unwrap();
            Self(folder.canonicalize().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn link(&self, target: impl AsRef<Path>, name: &str) {
            symlink(target, self.path(name)).unwrap();
        }

        fn root(&self) -> Root {
            let open = |name: &str| Arc::new(Root::open(&self.path(name)).unwrap());
            open("www").trusting(vec![open("share"), open("lib")])
        }
    }

    impl Drop for Folders {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(root: &Root, name: &str) -> Result<String, OpenFault> {
        let (fd, identity) = root.open_file(name.as_bytes())?;
        assert_eq!(root.identify(name.as_bytes()), Ok(Named::File(identity)), "{name}");
        let mut bytes = [0; 16];
        let length = rustix::io::read(&fd, &mut bytes).unwrap();
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn links_lead_into_trusted_folders() {
        let folders = Folders::create("into");
        folders.link(folders.path("share/js"), "www/js");
        folders.link("../share/js/app.js", "www/app.js");
        folders.link("../../share/js", "www/sub/up");
        folders.link(folders.path("share/../share/./js//app.js"), "www/dots.js");
        folders.link("deep/../app.js", "share/js/beside.js");
        // From one trusted folder into another, and back into the folder that is served.
        folders.link("../lib/lib.js", "share/lib.js");
        folders.link(folders.path("share/lib.js"), "www/lib.js");
        folders.link(folders.path("www/page"), "share/page");
        folders.link("../share/page", "www/again");
        let root = folders.root();
        for (name, content) in [
            ("js/app.js", "share"),
            ("app.js", "share"),
            ("sub/up/app.js", "share"),
            ("dots.js", "share"),
            ("js/beside.js", "share"),
            ("lib.js", "lib"),
            ("again", "page"),
            ("page", "page"),
        ] {
            assert_eq!(read(&root, name).as_deref(), Ok(content), "{name}");
        }
        for name in ["js", "js/", "sub/up/deep"] {
            assert_eq!(root.identify(name.as_bytes()), Ok(Named::Folder), "{name}");
            assert!(root.open_folder(name.as_bytes()).is_ok(), "{name}");
        }
        assert_eq!(root.identify(b"js/none"), Err(OpenFault::NotFound));
        assert_eq!(root.identify(b"app.js/"), Err(OpenFault::NotFound));
        assert_eq!(root.identify(b"js/app.js/x"), Err(OpenFault::NotFound));
    }

    #[test]
    fn links_that_lead_elsewhere_are_refused() {
        let folders = Folders::create("elsewhere");
        folders.link("../secret/key", "www/up");
        folders.link(folders.path("secret"), "www/folder");
        folders.link(folders.path("share/../secret/key"), "www/dots");
        folders.link(folders.path("share/js/../../secret/key"), "www/more-dots");
        folders.link("../share/out", "www/chain");
        folders.link("../secret/key", "share/out");
        folders.link(folders.path("sharex"), "www/sibling");
        fs::create_dir(folders.path("sharex")).unwrap();
        folders.link("/proc/self/root", "www/magic");
        folders.link("/", "www/all");
        folders.link("../share/circle", "www/circle");
        folders.link("../www/circle", "share/circle");
        let root = folders.root();
        for name in ["up", "folder/key", "dots", "more-dots", "chain", "sibling", "magic/etc/passwd", "all", "circle"] {
            assert_eq!(read(&root, name), Err(OpenFault::OutsideRoot), "{name}");
            assert_eq!(root.identify(name.as_bytes()), Err(OpenFault::OutsideRoot), "{name}");
        }
        // A name of its own does not leave, whatever is trusted.
        for name in ["../share/js/app.js", "sub/../../share/js/app.js"] {
            assert_eq!(read(&root, name), Err(OpenFault::OutsideRoot), "{name}");
        }
        assert_eq!(read(&root, folders.path("share/js/app.js").to_str().unwrap()), Err(OpenFault::OutsideRoot));
    }

    #[test]
    fn link_chains_are_bounded_as_in_the_kernel() {
        let folders = Folders::create("chain");
        folders.link("js/app.js", "share/0");
        for number in 1..=40 {
            folders.link((number - 1).to_string(), &format!("share/{number}"));
        }
        // One link into the chain, and one more for each number above 0.
        folders.link("../share/38", "www/longest");
        folders.link("../share/39", "www/too-long");
        let root = folders.root();
        assert_eq!(read(&root, "longest").as_deref(), Ok("share"));
        assert_eq!(read(&root, "too-long"), Err(OpenFault::OutsideRoot));
        let long = "x/".repeat(2_040);
        folders.link(format!("../share/{long}"), "www/long");
        assert_eq!(
            root.identify(&[b"long/".as_slice(), "y/".repeat(100).as_bytes()].concat()),
            Err(OpenFault::NotFound)
        );
    }

    /// A link that is replaced continuously leads to one of its trusted targets, or nowhere.
    #[test]
    fn a_swapped_link_never_leads_elsewhere() {
        let folders = Folders::create("swap");
        fs::write(folders.path("share/js/key"), "share").unwrap();
        let targets = ["../share/js", "../secret", "sub"];
        folders.link(targets[0], "www/swapped");
        let root = folders.root();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for target in targets.iter().cycle() {
                    folders.link(target, "www/new");
                    fs::rename(folders.path("www/new"), folders.path("www/swapped")).unwrap();
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let (mut served, mut refused) = (0, 0);
            let mut looks = 0;
            while looks < 2_000 || (served == 0 || refused == 0) && looks < 1_000_000 {
                looks += 1;
                match root.open_file(b"swapped/key") {
                    Ok((fd, _)) => {
                        let mut bytes = [0; 16];
                        let length = rustix::io::read(&fd, &mut bytes).unwrap();
                        assert_eq!(&bytes[..length], b"share");
                        served += 1;
                    }
                    Err(OpenFault::OutsideRoot) => refused += 1,
                    Err(OpenFault::NotFound | OpenFault::Unsettled) => {}
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(served > 0 && refused > 0, "served {served}, refused {refused}");
        });
    }
}
