//! grpcio's statuses, messages and metadata, for every kind of call.

use super::origin::{Origin, python, source};
use super::stage::Stage;
use crate::tool::run;

fn check(stage: &Stage, cache: &str) {
    let origin = Origin::script(python().arg(source("grpc_errors.py")).arg("server"));
    let server = stage.run(&format!(
        "site \"*\" {{\n    listen \"127.0.0.1:0\" h2c=#true\n    {cache}\n    proxy \"{}\" {{\n        http2 #true\n    }}\n}}\n",
        origin.url()
    ));
    let client = |address: &str| run(python().arg(source("grpc_errors.py")).args(["client", address]));
    assert!(client(&server.address.to_string()).contains("all as expected"));
}

#[test]
fn grpc_statuses_pass_through_a_proxy() {
    check(&Stage::new("gRPC, proxy"), "");
}

#[test]
fn grpc_statuses_pass_through_a_cache() {
    check(&Stage::new("gRPC, cache"), "cache ttl=\"60s\"");
}
