//! End-to-end tests: the real binary on a free port, real clients, one test binary.

// A test that panics is a test that fails. Clippy's exemption for tests does not cover their helpers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod e2e {
    mod accelerate;
    mod accelerator;
    mod access_log;
    mod admin;
    mod bad_input;
    mod bench;
    mod browser;
    mod cgroup;
    mod cli;
    mod clients;
    mod config;
    mod conformance;
    mod docs;
    mod explain;
    mod files;
    mod folders;
    mod handlers;
    mod harness;
    mod http2;
    mod http3;
    mod lab;
    mod memory;
    mod nginx;
    mod overload;
    mod pages;
    mod php;
    mod pictures;
    mod priorities;
    mod process;
    mod real_site;
    mod redbot;
    mod reload;
    mod run;
    mod scenarios;
    mod secrets;
    mod site;
    mod skip;
    mod smoke;
    mod suite;
    mod syscalls;
    mod timeouts;
    mod tls;
    mod tool;
    mod truncated;
    mod unix_listeners;
    mod upgrade;
    mod versions;
    mod worker;
    mod workload;
}
