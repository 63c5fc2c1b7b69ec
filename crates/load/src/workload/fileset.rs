//! Sets of files to serve: names, sizes and content.
//!
//! The content is generated. It consists of printable characters that hardly compress, so that a server or a link with
//! compression still transfers about the nominal size. It depends only on the file's name.

use super::filelist::{WEIGHT_MAX, format_line};
use super::{Workload, web96, web99};
use crate::random::Random;
use std::fmt::Write as _;

/// A set of files with their request weights.
#[derive(Clone, Debug)]
pub struct Fileset {
    /// Name by which the command line selects the set.
    pub name: &'static str,
    /// The files, at least one, with unique paths.
    pub files: Vec<FileSpec>,
    /// Further parameters for reports, as names and values.
    pub parameters: Vec<(&'static str, String)>,
}

/// A file to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Path with a leading slash. Contains only letters, digits, dots, underscores and slashes.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Relative frequency of requests for the file.
    pub weight: u64,
}

/// WebStone's standard list, `filelist.standard`, as path, bytes and weight: 19,773 bytes per request on average.
const WEBSTONE_STANDARD: [(&str, u64, u64); 5] = [
    ("/file500.html", 500, 350),
    ("/file5k.html", 5125, 500),
    ("/file50k.html", 51_250, 140),
    ("/file500k.html", 512_500, 9),
    ("/file5m.html", 5_248_000, 1),
];

/// A single small file, called "simple" in the 1997 measurements of improved Linux sockets.
const WEBSTONE_SIMPLE: [(&str, u64, u64); 1] = [("/file1k.html", 1024, 1)];

impl Fileset {
    /// Returns WebStone's standard files.
    pub fn webstone_standard() -> Self {
        Self::of_table("webstone-standard", &WEBSTONE_STANDARD)
    }

    /// Returns a single file of 1,024 bytes.
    pub fn webstone_simple() -> Self {
        Self::of_table("webstone-simple", &WEBSTONE_SIMPLE)
    }

    fn of_table(name: &'static str, table: &[(&str, u64, u64)]) -> Self {
        let file = |&(path, bytes, weight): &(&str, u64, u64)| FileSpec { path: path.to_owned(), bytes, weight };
        Self { name, files: table.iter().map(file).collect(), parameters: Vec::new() }
    }

    /// Returns the files of the web96-like workload for this many operations per second; see [`web96::workload`].
    ///
    /// # Errors
    /// Fails if the rate or λ is invalid.
    pub fn web96(ops_per_s: f64, lambda: f64) -> Result<Self, web96::ShapeError> {
        Ok(Self::of_workload("web96", &web96::workload(ops_per_s, lambda)?))
    }

    /// Returns the files of the web99-like workload for this many connections; see [`web99::workload`].
    ///
    /// # Errors
    /// Fails if the number of connections is invalid.
    pub fn web99(connections: f64) -> Result<Self, web96::ShapeError> {
        Ok(Self::of_workload("web99", &web99::workload(connections)?))
    }

    fn of_workload(name: &'static str, workload: &Workload) -> Self {
        // Weights are integers; at this scale, the rarest file of the largest set still has a weight of some thousands.
        let scale = WEIGHT_MAX as f64 / workload.entries.iter().map(|entry| entry.weight).fold(0.0, f64::max);
        let file = |entry: &super::WorkloadEntry| FileSpec {
            path: entry.address.target.to_string(),
            bytes: entry.body_bytes.unwrap_or(0),
            weight: ((entry.weight * scale).round() as u64).max(1),
        };
        Self { name, files: workload.entries.iter().map(file).collect(), parameters: workload.parameters.clone() }
    }

    /// Returns the total size of all files in bytes.
    pub fn bytes_total(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the list of all files in the syntax of [`super::filelist::parse`]. `sha256` returns the digest of the
    /// file with this index, if known.
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

/// Characters of generated content. None of them needs escaping anywhere.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Length of a line of content in bytes, including the line end.
const LINE_BYTES: u64 = 76;

/// Generator of a file's content.
#[derive(Clone, Debug)]
pub struct ContentGenerator {
    random: Random,
    bits: u64,
    bits_left: u32,
    at: u64,
}

impl ContentGenerator {
    /// Creates a generator for the content of the file with this path.
    pub fn of(path: &str) -> Self {
        // Hash with FNV-1a (Fowler, Noll and Vo): different names need only yield different seeds.
        let seed = path
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { random: Random::new(seed), bits: 0, bits_left: 0, at: 0 }
    }

    /// Fills the buffer with the next bytes of the content.
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
