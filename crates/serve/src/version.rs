//! One version of a file: its identity, entity tag and heads, and its content or an open descriptor.

use crate::media::content_type;
use crate::outcome::Outcome;
use crate::root::Root;
use flatout_http::conditional::Validators;
use flatout_http::date::format_date;
use flatout_net::file::{FileIdentity, OpenFile};
use flatout_net::response::{Body, FileBody, Head};
use flatout_net::shared::SharedBytes;
use rustix::io::pread;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Files up to this size are kept in memory; larger ones stay in the page cache and go out by sendfile. 64 KiB holds
/// nearly all of a site's texts.
pub const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// A file that changes while it is read is read again so many times.
const READS_MAX: u32 = 4;

/// Before Linux 6.13 two writes within one tick (up to 10 ms) leave the same times. A version read sooner than this
/// after its last change may be followed by one that looks the same.
const SETTLED_NS: i128 = 50_000_000;

/// One version of a file.
#[derive(Debug)]
pub struct Version {
    /// What tells it from another.
    pub identity: FileIdentity,
    /// Whether a later write is sure to change the identity.
    pub settled: bool,
    /// The entity tag's opaque part.
    pub etag: String,
    /// The Content-Type.
    pub content_type: String,
    /// Last-Modified in seconds since 1970, never later than when the version was loaded (RFC 9110 §8.8.2.1).
    pub last_modified_s: i64,
    /// The head of 200.
    pub ok_head: Head,
    /// The head of 304.
    pub not_modified_head: Head,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Memory(SharedBytes),
    File(Rc<OpenFile>),
}

impl Version {
    /// Loads the file `name` below `root`, at `unix_ns`. What is returned is one version: either all bytes were read
    /// between two looks that saw the same identity, or the descriptor of that identity is held.
    pub fn load(root: &Root, name: &[u8], unix_ns: i128) -> Result<Self, Outcome> {
        for _ in 0..READS_MAX {
            let (fd, identity) = root.open_file(name)?;
            if identity.size_bytes > MEMORY_BYTES_MAX {
                let content = Content::File(Rc::new(OpenFile { fd, identity }));
                return Ok(Self::new(name, identity, content, unix_ns));
            }
            let content = read_all(&fd, identity.size_bytes)?;
            let after = FileIdentity::read(&fd).map_err(|_| Outcome::FileFailed)?;
            if after == identity && content.len() as u64 == identity.size_bytes {
                return Ok(Self::new(name, identity, Content::Memory(content.into()), unix_ns));
            }
        }
        Err(Outcome::FileUnsettled)
    }

    fn new(name: &[u8], identity: FileIdentity, content: Content, unix_ns: i128) -> Self {
        // The change time alone: every write sets it, and nobody can set it to the future.
        let settled = unix_ns - identity.changed_ns >= SETTLED_NS;
        let etag = make_etag(&identity, if settled { None } else { Some(unix_ns) });
        let content_type = content_type(name);
        let modified_s = i64::try_from(identity.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        // A time in the future gives way to the change time, which stays the same from load to load.
        let changed_s = i64::try_from(identity.changed_ns.div_euclid(1_000_000_000)).unwrap_or(0).max(0);
        let last_modified_s = if identity.modified_ns > unix_ns { changed_s } else { modified_s.max(0) };
        let date = format_date(last_modified_s);
        let (date, quoted) = (String::from_utf8_lossy(&date).into_owned(), format!("\"{etag}\""));
        let length = identity.size_bytes.to_string();
        let ok_head = Head::new(
            200,
            &[
                ("Content-Type", &content_type),
                ("Content-Length", &length),
                ("Last-Modified", &date),
                ("ETag", &quoted),
                ("Accept-Ranges", "bytes"),
            ],
        );
        let not_modified_head = Head::new(304, &[("Last-Modified", &date), ("ETag", &quoted)]);
        Self { identity, settled, etag, content_type, last_modified_s, ok_head, not_modified_head, content }
    }

    /// What a request's conditions are compared with.
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), last_modified_s: self.last_modified_s }
    }

    /// The content from byte `first`, `length` bytes of it; both within the version's size.
    pub fn body(&self, first: u64, length: u64) -> Body {
        debug_assert!(first + length <= self.identity.size_bytes);
        match &self.content {
            _ if length == 0 => Body::Empty,
            Content::Memory(bytes) => Body::Bytes(bytes.slice(first as usize..(first + length) as usize)),
            Content::File(file) => Body::File(FileBody { file: Rc::clone(file), offset: first, bytes: length }),
        }
    }

    /// Whether the content can still be sent as this version's. What is in memory always can; a file that was written
    /// over since is not this version any more, and its answer would be cut short.
    pub fn is_sendable(&self) -> bool {
        match &self.content {
            Content::Memory(_) => true,
            Content::File(file) => file.is_current(),
        }
    }

    /// Bytes of memory that the version holds, about.
    pub fn memory_bytes(&self) -> usize {
        let content = match &self.content {
            Content::Memory(bytes) => bytes.len(),
            Content::File(_) => 0,
        };
        size_of::<Self>() + self.ok_head.len() + self.not_modified_head.len() + self.etag.len() + content
    }

    /// Whether the version holds a descriptor.
    pub const fn holds_descriptor(&self) -> bool {
        matches!(self.content, Content::File(_))
    }
}

/// Reads up to `size_bytes` and looks for more: a file that has grown is another version.
fn read_all(fd: &OwnedFd, size_bytes: u64) -> Result<Vec<u8>, Outcome> {
    let mut content = vec![0; size_bytes as usize];
    let mut read = 0;
    while read < content.len() {
        match pread(fd, &mut content[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Outcome::FileFailed),
        }
    }
    content.truncate(read);
    Ok(content)
}

/// A strong entity tag: the size, and a hash of all that tells one version from another. FNV-1a: the inputs are the
/// kernel's, not a visitor's, and two versions of one file must differ, not resist an attacker.
///
/// A version that is not settled may share its identity with the next one, so the time of its loading tells them
/// apart: a tag never stands for two contents (RFC 9110 §8.8.1).
fn make_etag(identity: &FileIdentity, loaded_unix_ns: Option<i128>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(&identity.device.to_le_bytes());
    add(&identity.inode.to_le_bytes());
    add(&identity.modified_ns.to_le_bytes());
    add(&identity.changed_ns.to_le_bytes());
    if let Some(unix_ns) = loaded_unix_ns {
        add(&unix_ns.to_le_bytes());
    }
    format!("{:x}-{hash:016x}", identity.size_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{MEMORY_BYTES_MAX, Version};
    use crate::outcome::Outcome;
    use crate::root::Root;
    use flatout_net::response::Body;
    use std::fs;
    use std::path::PathBuf;
    use std::time::{SystemTime, UNIX_EPOCH};

    pub(crate) fn temporary_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flatout-serve-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn now_ns() -> i128 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().cast_signed()
    }

    #[test]
    fn small_files_are_held_and_large_ones_opened() {
        let folder = temporary_folder("version");
        fs::write(folder.join("small.txt"), "abcdef").unwrap();
        fs::write(folder.join("empty"), "").unwrap();
        fs::write(folder.join("large.bin"), vec![7; MEMORY_BYTES_MAX as usize + 1]).unwrap();
        let root = Root::open(&folder).unwrap();
        let small = Version::load(&root, b"small.txt", now_ns() + 1_000_000_000).unwrap();
        assert!(small.settled && !small.holds_descriptor());
        assert!(matches!(small.body(1, 3), Body::Bytes(bytes) if *bytes == *b"bcd"));
        assert_eq!(small.content_type, "text/plain; charset=utf-8");
        let empty = Version::load(&root, b"empty", now_ns()).unwrap();
        assert!(matches!(empty.body(0, 0), Body::Empty));
        let large = Version::load(&root, b"large.bin", now_ns()).unwrap();
        assert!(large.holds_descriptor() && matches!(large.body(0, 5), Body::File(_)));
        assert_eq!(Version::load(&root, b"none", now_ns()).err(), Some(Outcome::NotFound));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_change_makes_another_tag() {
        let folder = temporary_folder("etag");
        let root = Root::open(&folder).unwrap();
        let path = folder.join("a");
        fs::write(&path, "one").unwrap();
        let first = Version::load(&root, b"a", now_ns()).unwrap();
        assert!(!first.settled, "just written");
        // The same size, and the old time put back: the change time still tells.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let second = Version::load(&root, b"a", now_ns()).unwrap();
        assert_ne!(first.etag, second.etag);
        fs::write(folder.join("b"), "two").unwrap();
        fs::rename(folder.join("b"), &path).unwrap();
        let third = Version::load(&root, b"a", now_ns()).unwrap();
        assert_ne!(second.etag, third.etag);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_tag_is_kept_only_by_what_is_settled() {
        let folder = temporary_folder("settled");
        let root = Root::open(&folder).unwrap();
        fs::write(folder.join("a"), "one").unwrap();
        let written_ns = now_ns();
        let load = |later_ns: i128| Version::load(&root, b"a", written_ns + later_ns).unwrap();
        let (young, same_but_later) = (load(1), load(2));
        assert!(!young.settled && young.identity == same_but_later.identity);
        assert_ne!(young.etag, same_but_later.etag, "between the two, another write may have left the same times");
        assert_eq!(load(1_000_000_000).etag, load(2_000_000_000).etag);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_open_file_may_lose_its_name_but_not_change() {
        let folder = temporary_folder("names");
        let root = Root::open(&folder).unwrap();
        let path = folder.join("a");
        let large = vec![7; MEMORY_BYTES_MAX as usize + 1];
        let open = || {
            fs::write(&path, &large).unwrap();
            Version::load(&root, b"a", now_ns()).unwrap()
        };
        let is_unchanged =
            |version: &Version| matches!(version.body(0, 1), Body::File(body) if body.file.is_unchanged());
        let renamed_over = open();
        assert!(renamed_over.is_sendable() && is_unchanged(&renamed_over));
        fs::write(folder.join("b"), &large).unwrap();
        fs::rename(folder.join("b"), &path).unwrap();
        assert!(!renamed_over.is_sendable() && is_unchanged(&renamed_over));
        let written_over = open();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, &large).unwrap();
        assert!(!written_over.is_sendable() && !is_unchanged(&written_over));
        fs::remove_file(&path).unwrap();
        assert!(!is_unchanged(&written_over));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn last_modified_is_never_in_the_future() {
        let folder = temporary_folder("future");
        let path = folder.join("a");
        fs::write(&path, "a").unwrap();
        let future = SystemTime::now() + std::time::Duration::from_hours(24);
        fs::File::options().write(true).open(&path).unwrap().set_modified(future).unwrap();
        let now_ns = now_ns();
        let root = Root::open(&folder).unwrap();
        let version = Version::load(&root, b"a", now_ns).unwrap();
        assert!(version.last_modified_s <= (now_ns / 1_000_000_000) as i64);
        // And once settled, neither the date nor the tag moves any more.
        let later = |seconds: i128| Version::load(&root, b"a", now_ns + seconds * 1_000_000_000).unwrap();
        let (second, third) = (later(1), later(100));
        assert_eq!((&second.etag, second.last_modified_s), (&third.etag, third.last_modified_s));
        fs::remove_dir_all(folder).unwrap();
    }
}
