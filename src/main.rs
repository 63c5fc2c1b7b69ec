//! flatout: a web server, and a load lab that proves how fast it is.

mod serve;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A web server at the speed of the machine, and a load lab that proves it.
#[derive(Parser)]
#[command(name = "flatout", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(serve::ServeArguments),
}

fn main() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Serve(arguments) => serve::run(arguments),
    }
}
