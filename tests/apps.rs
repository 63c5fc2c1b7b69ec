//! Applications behind the accelerator: the real binary, the applications as Debian, PyPI and npm have them, and their own
//! clients. Several visitors come at the same time, and none may see what is another's.
//!
//! `make test-apps` installs what is needed (`tools/setup.sh apps`) and runs this.

// A test that panics is a test that fails; clippy's own exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// The end-to-end tests' own; not all of it is of use here.
#[allow(dead_code)]
#[path = "e2e/harness.rs"]
mod harness;
#[path = "e2e/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "e2e/tool.rs"]
mod tool;

mod apps {
    mod apt;
    mod aria2;
    mod chat;
    mod django;
    mod events;
    mod express;
    mod git;
    mod grpc;
    mod mediawiki;
    mod origin;
    mod pip;
    mod recipe;
    mod stage;
    mod video;
    mod visitor;
    mod wordpress;
}
