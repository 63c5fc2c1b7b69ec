//! Files to serve: which there are, how large, and what is in them.
//!
//! The content is made, not stored: printable characters that no compression makes much smaller, so that a server which
//! compresses, or a link that does, is measured by the bytes the name promises. It follows from the file's name alone and
//! is the same everywhere.

use super::filelist::{WEIGHT_MAX, format_line};
use super::{Workload, web96, web99};
use crate::random::Random;
use std::fmt::Write as _;

/// A set of files and the weights they are asked for with.
#[derive(Clone, Debug)]
pub struct Fileset {
    /// What it is called.
    pub name: &'static str,
    /// Its files, at least one; no path occurs twice.
    pub files: Vec<FileSpec>,
    /// What was decided otherwise, to be printed, as name and value.
    pub parameters: Vec<(&'static str, String)>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Its path, with a leading slash, of letters, digits, dots, underscores and slashes alone.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// How often it is asked for, beside the others.
    pub weight: u64,
}

/// WebStone's standard list, `filelist.standard`: 19,773 bytes a request in the mean.
const WEBSTONE_STANDARD: [(&str, u64, u64); 5] = [
    ("/file500.html", 500, 350),
    ("/file5k.html", 5125, 500),
    ("/file50k.html", 51_250, 140),
    ("/file500k.html", 512_500, 9),
    ("/file5m.html", 5_248_000, 1),
];

/// One small file: "simple" in the measurements of improved Linux sockets of 1997.
const WEBSTONE_SIMPLE: [(&str, u64, u64); 1] = [("/file1k.html", 1024, 1)];

impl Fileset {
    /// WebStone's standard files.
    pub fn webstone_standard() -> Self {
        Self::of_table("webstone-standard", &WEBSTONE_STANDARD)
    }

    /// One file of 1,024 bytes.
    pub fn webstone_simple() -> Self {
        Self::of_table("webstone-simple", &WEBSTONE_SIMPLE)
    }

    fn of_table(name: &'static str, table: &[(&str, u64, u64)]) -> Self {
        let file = |&(path, bytes, weight): &(&str, u64, u64)| FileSpec { path: path.to_owned(), bytes, weight };
        Self { name, files: table.iter().map(file).collect(), parameters: Vec::new() }
    }

    /// The files of the web96-like workload for this many operations a second, see [`web96::workload`].
    ///
    /// # Errors
    /// When the rate or λ makes no sense.
    pub fn web96(ops_per_s: f64, lambda: f64) -> Result<Self, web96::ShapeError> {
        Ok(Self::of_workload("web96", &web96::workload(ops_per_s, lambda)?))
    }

    /// The files of the web99-like workload for this many connections, see [`web99::workload`].
    ///
    /// # Errors
    /// When the number makes no sense.
    pub fn web99(connections: f64) -> Result<Self, web96::ShapeError> {
        Ok(Self::of_workload("web99", &web99::workload(connections)?))
    }

    fn of_workload(name: &'static str, workload: &Workload) -> Self {
        // Whole weights: the rarest file of the largest set still has some thousands.
        let scale = WEIGHT_MAX as f64 / workload.entries.iter().map(|entry| entry.weight).fold(0.0, f64::max);
        let file = |entry: &super::Entry| FileSpec {
            path: entry.address.target.to_string(),
            bytes: entry.body_bytes.unwrap_or(0),
            weight: ((entry.weight * scale).round() as u64).max(1),
        };
        Self { name, files: workload.entries.iter().map(file).collect(), parameters: workload.parameters.clone() }
    }

    /// Bytes of all files together.
    pub fn bytes_total(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The list of all files, as [`super::filelist::parse`] reads it; `sha256` gives a file's digest where it is known.
    pub fn filelist(&self, sha256: impl Fn(usize) -> Option<[u8; 32]>) -> String {
        let mut text = format!("# {}: {} files, {} bytes\n", self.name, self.files.len(), self.bytes_total());
        for (name, value) in &self.parameters {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# {name}: {value}");
        }
        for (index, file) in self.files.iter().enumerate() {
            text.push_str(&format_line(&file.path, file.weight, Some(file.bytes), sha256(index).as_ref()));
        }
        text
    }
}

/// Characters that content is made of: all that stand for themselves everywhere.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Content is broken into lines of so many characters with their ends.
const LINE_BYTES: u64 = 76;

/// The content of a file, from its beginning on.
#[derive(Clone, Debug)]
pub struct Content {
    random: Random,
    bits: u64,
    bits_left: u32,
    at: u64,
}

impl Content {
    /// The content of the file with this path.
    pub fn of(path: &str) -> Self {
        // FNV-1a (Fowler, Noll and Vo): the name has only to make a difference.
        let seed = path
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { random: Random::new(seed), bits: 0, bits_left: 0, at: 0 }
    }

    /// Writes the next bytes of it.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            self.at += 1;
            if self.at.is_multiple_of(LINE_BYTES) {
                *byte = b'\n';
                continue;
            }
            if self.bits_left < 6 {
                (self.bits, self.bits_left) = (self.random.next_u64(), 60);
            }
            *byte = ALPHABET[(self.bits & 63) as usize];
            self.bits >>= 6;
            self.bits_left -= 6;
        }
    }
}
