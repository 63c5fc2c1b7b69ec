//! A fixture in a suite's file: files for servers.

use super::Placed;
use flatout_config::model::Place;

/// A folder that is created once, before the first step; `{its name}` is its path.
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    /// Its name.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// Its content.
    pub pieces: Vec<FixturePart>,
}

/// A part of a fixture.
#[derive(Clone, Debug)]
pub enum FixturePart {
    /// A file of random bytes that do not compress.
    Bytes {
        /// Its name in the folder; with names of variables in braces, one for every value.
        name: Placed,
        /// Its length, in bytes.
        bytes: Placed,
    },
    /// A file of text.
    Text {
        /// Its name in the folder; with names of variables in braces, one for every value.
        name: Placed,
        /// Its content.
        content: Placed,
        /// Its length, in bytes: `{fill}` in its content is as much plain text as that takes.
        bytes: Option<Placed>,
    },
    /// A certificate for 127.0.0.1 and localhost, signed by itself.
    Certificate {
        /// Name of the certificate's file.
        name: Placed,
        /// Name of the key's file.
        key: Placed,
    },
    /// A folder of the suite's own, copied.
    Folder {
        /// Its path, relative to the suite's file.
        from: Placed,
    },
    /// The files of a workload.
    Workload {
        /// Arguments of `flatout workload make` without the folder, such as `web96 --rate 100`.
        arguments: Vec<Placed>,
    },
}
