//! Applications behind the accelerator: the real binary, the applications as Debian, PyPI and npm package them, and
//! their own clients. Several visitors send requests at the same time, and none may see the content of another.
//!
//! `make test-apps` installs the applications (`tools/setup.sh apps`) and runs these tests.

// A test that panics is a test that fails. Clippy's exemption for tests does not cover their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// Modules of the end-to-end tests. Some of their functions are unused here.
#[allow(dead_code)]
#[path = "e2e/harness.rs"]
mod harness;
#[allow(dead_code)]
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
