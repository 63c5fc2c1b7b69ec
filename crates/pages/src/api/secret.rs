//! The secret of a site: the keys that sign sessions and tokens.
//!
//! The secret is a text file with one key per line. The first key signs, and all keys verify. To change the key, add a
//! new key above the old one, and remove the old key when sessions signed with it may end. Empty lines and lines that
//! begin with `#` are ignored.

use arc_swap::ArcSwap;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use data_encoding::BASE64URL_NOPAD;
use flatout_os::random;
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of keys in a file.
pub const KEYS_MAX: usize = 16;
/// Minimum length of a key, in bytes: 32 characters of Base64 are 192 bits.
pub const KEY_BYTES_MIN: usize = 32;
/// Maximum size of the file, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 * 1024;

/// The purpose of a key. A signature for one purpose is invalid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Session,
    Csrf,
}

struct Keys {
    session: Key,
    csrf: Key,
}

/// The keys of a site.
#[derive(derive_more::Debug)]
#[debug("Secret {{ keys: {} }}", keys.len())]
pub struct Secret {
    keys: Vec<Keys>,
}

/// The reason why a secret could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or created.
    #[error("the file cannot be read or created: {0}")]
    File(io::Error),
    /// Users other than the file's owner can read or change it. Contains the file's mode.
    #[error("the file's mode is {:03o}: users other than its owner can read or change it; use chmod 600", .0 & 0o777)]
    Exposed(u32),
    /// The file is longer than [`FILE_BYTES_MAX`], or is not text.
    #[error("the file is not UTF-8, or longer than 16 KiB")]
    NotText,
    /// No line contains a key.
    #[error("the file contains no key")]
    Empty,
    /// A key is shorter than [`KEY_BYTES_MIN`]. Contains the line number.
    #[error("the key on line {0} is shorter than {KEY_BYTES_MIN} characters")]
    Short(usize),
    /// The file contains more than [`KEYS_MAX`] keys.
    #[error("the file contains more than {KEYS_MAX} keys")]
    TooMany,
}

impl Secret {
    /// Parses the content of a secret file and derives the keys for the sessions and tokens of `realm`. Each realm has
    /// different keys, even from the same file, so the signatures of one site are invalid for another.
    pub fn parse(text: &str, realm: &str) -> Result<Self, SecretError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() < KEY_BYTES_MIN {
                return Err(SecretError::Short(index + 1));
            }
            if keys.len() == KEYS_MAX {
                return Err(SecretError::TooMany);
            }
            keys.push(Keys {
                session: derive(line, "flatout session 2", realm),
                csrf: derive(line, "flatout csrf 2", realm),
            });
        }
        if keys.is_empty() { Err(SecretError::Empty) } else { Ok(Self { keys }) }
    }

    /// Reads the file at `path`. If it does not exist, creates it with a new key, readable only by its owner. This
    /// blocks on the disk, so call it at startup.
    pub fn load_or_create(path: &Path, realm: &str) -> Result<Self, SecretError> {
        match fs::File::open(path) {
            Ok(file) => Self::read(file, realm),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path).map_err(SecretError::File)?;
                Self::read(fs::File::open(path).map_err(SecretError::File)?, realm)
            }
            Err(error) => Err(SecretError::File(error)),
        }
    }

    fn read(file: fs::File, realm: &str) -> Result<Self, SecretError> {
        let mode = file.metadata().map_err(SecretError::File)?.mode();
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed(mode));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(SecretError::File)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(SecretError::NotText);
        }
        Self::parse(&String::from_utf8(bytes).map_err(|_| SecretError::NotText)?, realm)
    }

    /// Returns the key that signs.
    pub(crate) fn first(&self, used: Use) -> Option<&Key> {
        self.all(used).next()
    }

    /// Returns all keys that verify, beginning with the key that signs.
    pub(crate) fn all(&self, used: Use) -> impl Iterator<Item = &Key> {
        self.keys.iter().map(move |keys| match used {
            Use::Session => &keys.session,
            Use::Csrf => &keys.csrf,
        })
    }
}

/// Derives a separate key for each purpose in each realm. No purpose contains a line break, so the inputs are
/// unambiguous.
fn derive(line: &str, purpose: &str, realm: &str) -> Key {
    let tag = sign(&Key::new(HMAC_SHA256, line.as_bytes()), format!("{purpose}\n{realm}").as_bytes());
    Key::new(HMAC_SHA256, tag.as_ref())
}

/// The secret in a file, as last read.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    realm: String,
    keys: ArcSwap<Secret>,
    /// The keys that a reload has read and that are not in use yet.
    read: Mutex<Option<Secret>>,
}

impl SecretFile {
    /// Reads the file at `path`, or creates it, as [`Secret::load_or_create`] does.
    pub fn open(path: &Path, realm: &str) -> Result<Self, SecretError> {
        let keys = ArcSwap::from_pointee(Secret::load_or_create(path, realm)?);
        Ok(Self { path: path.to_owned(), realm: realm.to_owned(), keys, read: Mutex::default() })
    }

    /// Reads the file again. The previous keys remain in use until [`use_read`](Self::use_read) is called, so that a
    /// configuration that is rejected changes nothing.
    pub fn reread(&self) -> Result<(), SecretError> {
        let read = Secret::load_or_create(&self.path, &self.realm)?;
        *self.read() = Some(read);
        Ok(())
    }

    /// Uses the keys that were last read.
    pub fn use_read(&self) {
        if let Some(read) = self.read().take() {
            self.keys.store(Arc::new(read));
        }
    }

    fn read(&self) -> MutexGuard<'_, Option<Secret>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current keys.
    pub fn keys(&self) -> Arc<Secret> {
        self.keys.load_full()
    }
}

/// Creates the file atomically, so that two processes that start at the same time use the same key.
fn create(path: &Path) -> io::Result<()> {
    let key: [u8; 32] = random::bytes()?;
    let line = format!("{}\n", BASE64URL_NOPAD.encode(&key));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = path.with_file_name(name);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        match rustix::fs::link(&draft, path) {
            // If another process was faster, its key is used.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    let _ = fs::remove_file(&draft);
    made
}

#[cfg(test)]
mod tests {
    use super::{Secret, SecretError, SecretFile};
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn keys_are_lines() {
        assert_eq!(Secret::parse(&format!("# new\n{KEY}1\n\n  {KEY}2  \n"), "a").unwrap().keys.len(), 2);
        assert!(matches!(Secret::parse("\n# none\n", "a"), Err(SecretError::Empty)));
        assert!(matches!(Secret::parse("\nshort\n", "a"), Err(SecretError::Short(2))));
        assert!(matches!(Secret::parse(&format!("{KEY}\n").repeat(17), "a"), Err(SecretError::TooMany)));
        assert_eq!(format!("{:?}", Secret::parse(KEY, "a").unwrap()), "Secret { keys: 1 }");
    }

    #[test]
    fn a_file_is_made_once_and_for_its_owner() {
        let folder = std::env::temp_dir().join(format!("flatout-secret-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("secret");
        assert_eq!(Secret::load_or_create(&path, "a").unwrap().keys.len(), 1);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 43);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        Secret::load_or_create(&path, "a").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let file = SecretFile::open(&path, "a").unwrap();
        assert_eq!(file.keys().keys.len(), 1);
        fs::write(&path, format!("{KEY}1\n{text}")).unwrap();
        file.reread().unwrap();
        assert_eq!(file.keys().keys.len(), 1);
        file.use_read();
        assert_eq!(file.keys().keys.len(), 2);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(file.reread().is_err());
        assert_eq!(file.keys().keys.len(), 2);
        let error = Secret::load_or_create(&path, "a").unwrap_err();
        assert!(error.to_string().contains("644"), "{error}");
        assert!(matches!(Secret::load_or_create(&folder.join("no/where"), "a"), Err(SecretError::File(_))));
        fs::remove_dir_all(&folder).unwrap();
    }
}
