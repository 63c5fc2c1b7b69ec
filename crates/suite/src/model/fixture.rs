//! A fixture in a suite's file: files for servers.

use super::Placed;
use flatout_config::model::Place;

/// A folder that is created once, before the first step. The fixture's name in braces is replaced by the folder's path.
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    /// Name of the fixture.
    pub name: String,
    /// Place of the fixture in the file.
    pub place: Place,
    /// The parts that make up the fixture.
    pub pieces: Vec<FixturePart>,
}

/// A part of a fixture, such as a file.
#[derive(Clone, Debug)]
pub enum FixturePart {
    /// A file of random bytes, which do not compress.
    Bytes {
        /// Name of the file in the folder. If the name contains variables in braces, there is one file per value.
        name: Placed,
        /// Length of the file, in bytes.
        bytes: Placed,
    },
    /// A file of text.
    Text {
        /// Name of the file in the folder. If the name contains variables in braces, there is one file per value.
        name: Placed,
        /// Content of the file.
        content: Placed,
        /// Length of the file in bytes. Each `{fill}` in the content is replaced with filler text, in equal shares.
        bytes: Option<Placed>,
    },
    /// A self-signed certificate for 127.0.0.1 and localhost.
    Certificate {
        /// Name of the certificate file.
        name: Placed,
        /// Name of the key file.
        key: Placed,
    },
    /// A copy of a folder.
    Folder {
        /// Path of the folder, relative to the suite's file.
        from: Placed,
    },
    /// The files of a workload.
    Workload {
        /// Arguments of `flatout workload make` without the folder, such as `web96 --rate 100`.
        arguments: Vec<Placed>,
    },
}
