//! One Luau virtual machine a worker, in which every request's page runs as a coroutine of its own, with globals of
//! its own, held to its share of time and memory.
//!
//! How it is used: [`Sandbox::new`], then the interface is laid in ([`Sandbox::global`], [`Sandbox::function`],
//! [`Sandbox::waiting`]), then [`Sandbox::seal`] freezes all of it. [`Sandbox::load`] compiles a chunk;
//! [`Sandbox::start`] makes a [`Run`] of it, and [`Run::resume`] runs it until it is done, waits, wants to flush, has
//! used its slice or has failed.
//!
//! Absent: files, processes, sockets, `loadstring`, `require`, `getfenv`, `setfenv`, `debug`, `newproxy`, `os`, and any
//! way to load bytecode.

pub mod failure;
pub mod limits;
pub mod wait;
