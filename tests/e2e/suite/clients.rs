//! Other programs as clients, and checks of the responses they get: with the real wrk, h2load, ab and nginx.

use super::Given;
use serde_json::Value;

/// nginx, with its status page.
const NGINX: &str = r#"
    server "nginx" {
        program "nginx"
        set "listen" ""
        config "nginx.conf" """
            daemon off;
            worker_processes 1;
            pid {dir}/nginx.pid;
            error_log {dir}/error.log crit;
            events { worker_connections 512; }
            http {
                access_log off; keepalive_requests 1000000;
                client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
                uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
                server {
                    listen {address}:{port}{listen};
                    root {site};
                    location = /status { stub_status; }
                }
            }
            """
        start "-c" "{dir}/nginx.conf"
        counts "/status"
    }
    server "nginx-http2" like="nginx" { set "listen" " http2"; }
"#;

const SITE: &str = r#"
    fixture "site" {
        text "index.html" "<!doctype html><title>A page</title><p>{fill}" bytes=317
        text "other.html" "another page"
        certificate "cert.pem" key="key.pem"
    }
"#;

/// The cell of a step with one server.
fn cell<'r>(report: &'r Value, step: &str) -> &'r Value {
    let steps = report["steps"].as_array().unwrap();
    &steps.iter().find(|entry| entry["name"] == step).unwrap()["cells"][0]
}

fn median(cell: &Value, measure: &str) -> f64 {
    let figures = cell["figures"].as_array().unwrap();
    let figure = figures.iter().find(|figure| figure["measure"] == measure);
    figure.unwrap_or_else(|| panic!("no {measure} in {cell}"))["median"].as_f64().unwrap()
}

#[test]
fn figures_of_wrk_h2load_and_ab_match_the_server_counts() {
    let steps = r#"
        step "wrk" { servers "nginx"; path "/index.html"; client "wrk" "-t1" "-c2"; reaches "nginx" "all"; client-limit-expected; }
        step "ab" { servers "nginx"; path "/index.html"; client "ab" "-c" 2; reaches "nginx" "all"; client-limit-expected; }
        step "h2load" { servers "nginx-http2"; path "/index.html"; client "h2load" "-t1" "-c2" "-m2"; client-limit-expected; }
    "#;
    let given = Given::of(&[SITE, NGINX, steps]);
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    let report = given.report();
    for step in ["wrk", "ab", "h2load"] {
        let cell = cell(&report, step);
        assert_eq!(cell["runs"].as_array().unwrap().len(), 2, "{step}");
        for measure in ["requests-per-s", "bytes-per-s", "server-cpu-per-request", "client-cpu-per-request"] {
            assert!(median(cell, measure) > 0.0, "{step}: {measure}");
        }
        // 317 bytes of content, plus a head.
        let bytes = median(cell, "bytes-per-s") / median(cell, "requests-per-s");
        let is_http2 = step == "h2load";
        assert!((if is_http2 { 320.0 } else { 400.0 }..800.0).contains(&bytes), "{step}: {bytes} bytes");
    }
    let clients = report["steps"][0]["clients"][0].as_str().unwrap();
    assert!(clients.starts_with("wrk -t1 -c2 (wrk "), "{clients}");
}

#[test]
fn clients_are_compared_on_the_same_servers() {
    let parts = r#"
        server "ours" like="nginx" { about "flatout bench"; }
        server "theirs" like="nginx" { about "wrk"; }
        step "client" {
            servers "ours" "theirs"
            compare "theirs"
            path "/index.html"
            bench "-c" 2 "--threads" 1
            client "wrk" "-t1" "-c2" for="theirs"
            client-limit-expected
        }
    "#;
    let given = Given::of(&[SITE, NGINX, parts]);
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    let tables = super::flatout().args(["suite", "tables"]).arg(given.out()).output().unwrap();
    let tables = String::from_utf8(tables.stdout).unwrap();
    assert!(tables.contains("| × theirs |") && tables.contains("| ours |"), "{tables}");
    let of_nginx = std::fs::read_to_string(given.out().join("configs/theirs-1/nginx.conf")).unwrap();
    assert!(of_nginx.contains("theirs/nginx.pid"), "{of_nginx}");
}

#[test]
fn servers_with_wrong_responses_are_left_out() {
    let parts = r#"
        server "cache" { program "flatout"; start "accelerate" "{url:nginx}" "--listen" "{address}:{port}" "--admin" "off"; }
        step "right" { servers "nginx"; path "/index.html"; bench "-c" 2 "-n" 20; expect { file "{site}/index.html"; field "Content-Length" 317; } }
        step "other" { servers "nginx"; path "/index.html"; bench "-c" 2 "-n" 20; expect { file "{site}/other.html"; } }
        step "version" { servers "nginx"; path "/index.html"; bench "-c" 2 "-n" 20; expect { http2; } }
        step "forwarded" { servers "cache"; path "/index.html"; bench "-c" 2 "-n" 20; reaches "nginx" "none"; }
    "#;
    let given = Given::of(&[SITE, NGINX, parts]);
    let ran = given.run(&[]);
    assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
    let report = given.report();
    assert_eq!(cell(&report, "right")["absent"], Value::Null, "{}", ran.stderr);
    for (step, reason, text) in [
        ("other", "response-wrong", "317 bytes, but they are not the content of"),
        ("version", "response-wrong", "Empty reply from server"),
        ("forwarded", "reach-wrong", "20 requests reached nginx for 20 responses"),
    ] {
        let absent = &cell(&report, step)["absent"];
        assert_eq!(absent["name"], reason, "{step}: {}", ran.stderr);
        assert!(absent["text"].as_str().unwrap().contains(text), "{step}: {absent}");
    }
}

#[test]
fn a_server_can_use_the_certificate_of_the_suite() {
    let parts = r#"
        server "secure" {
            program "flatout"
            tls
            config "flatout.kdl" """
                admin off=#true
                site "*" {
                    listen "{address}:{port}" tls=#true
                    tls cert="{site}/cert.pem" key="{site}/key.pem"
                    files "{site}"
                }
                """
            start "run" "-c" "{dir}/flatout.kdl"
        }
        step "h2" {
            servers "secure"; path "/index.html"
            expect { file "{site}/index.html"; http2; }
            bench "-c" 2 "-n" 20 "--http" 2 "--cacert" "{site}/cert.pem"
        }
    "#;
    let given = Given::of(&[SITE, parts]);
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
}
