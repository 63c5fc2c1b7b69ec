//! Limits of handshakes, connections and buffers.

use super::*;

#[test]
fn clients_validate_their_address_under_load() {
    let (folder, certificate) = (site(), Certificate::new());
    let server = serve_files(&folder, &certificate, 1);
    let answer = aioquic(server.address, "storm", &["/1k", "100"]);
    assert_eq!(answer["status"], 200, "{answer}");
    let (_, text) = server.stop();
    assert!(count_of(&text, "quic_retries") > 0, "{text}");
}

/// Starts a flood of `handshakes` that never complete. Returns what the flood has counted, how much memory each accepted
/// one costs the server, and the server's counters. A client with another address is served meanwhile.
fn flood(limits: &str, handshakes: u64, proves: &str) -> (Value, u64, String) {
    let (folder, certificate) = (site(), Certificate::new());
    let Certificate { chain, key, .. } = &certificate;
    let config = format!(
        "workers 1\nadmin off=#true\ntimeouts {{ handshake \"1h\"; idle \"1h\"; }}\n{limits}\nsite \"*\" {{\n\
         listen \"127.0.0.1:0\" tls=#true http3=#true\n tls cert=\"{chain}\" key=\"{key}\"\n files \".\"\n}}\n"
    );
    let server = Server::run(&folder, &config);
    aioquic(server.address, "many", &["/1k", "2", "1"]);
    let before = rss_anon_kb(server.worker());
    let (held, counts) = Held::start_with(server.address, "flood", &["/1k", &handshakes.to_string(), proves]);
    let grown = rss_anon_kb(server.worker()).saturating_sub(before) * 1024;
    let honest = held.finish();
    assert_eq!((&honest["status"], &honest["size"]), (&200.into(), &1024.into()), "{honest}");
    let each = grown / counts["accepted"].as_u64().unwrap().max(1);
    println!("{counts}: {each} bytes per incomplete handshake");
    (counts, each, server.stop().1)
}

/// The server keeps up to HANDSHAKES_UNPROVEN_MAX of them, and no state for the others.
#[test]
fn incomplete_handshakes_without_a_proven_address_are_bounded() {
    let (counts, each, text) = flood("", 1000, "no");
    assert_eq!((&counts["accepted"], &counts["retried"], &counts["refused"]), (&64.into(), &936.into(), &0.into()));
    assert!(each <= HANDSHAKE_BYTES_MAX, "{each} bytes");
    // The client that is served has proved its address. A packet that is lost is sent and counted again.
    assert!(count_of(&text, "quic_retries") >= 937, "{text}");
}

#[test]
fn incomplete_handshakes_of_an_address_are_bounded() {
    let (counts, each, text) = flood("limit-connections { handshakes per-address=200; }", 300, "yes");
    assert_eq!((&counts["accepted"], &counts["refused"]), (&200.into(), &100.into()), "{counts}");
    assert!(each <= HANDSHAKE_BYTES_MAX, "{each} bytes");
    assert!(count_of(&text, "closed_handshakes_limit") >= 100, "{text}");
}

#[test]
fn closed_windows_and_idle_connections_use_little_memory() {
    const CONNECTIONS: u64 = 100;
    const MORE: u64 = 200;
    const STREAMS: u64 = 50;
    // QUIC and TLS alone allocate 20.7 KB, so the target of 16 KiB is missed: see docs/performance.md.
    const CONNECTION_BYTES_MAX: u64 = 26 * 1024;
    let (folder, certificate) = (site(), Certificate::new());
    // By how much a server grows with `CONNECTIONS`, and then with each of `more`. Both are measured in one process, which
    // excludes the one-time costs of the first connections, and the difference between two heaps.
    let grown_bytes = |streams: u64, more: u64| {
        let server = serve_files(&folder, &certificate, 1);
        aioquic(server.address, "many", &["/10m", "2", "1"]);
        let rss_bytes = || rss_anon_kb(server.worker()) * 1024;
        let hold = |connections: u64| {
            let before = rss_bytes();
            let arguments = ["/10m", &connections.to_string(), &streams.to_string()];
            let held = Held::start(server.address, "hold", &arguments);
            (held, rss_bytes().saturating_sub(before))
        };
        let (first, grown) = hold(CONNECTIONS);
        let (others, grown_further) = hold(more);
        others.finish();
        first.finish();
        (grown, grown_further / more.max(1))
    };
    let (idle, each_connection) = grown_bytes(0, MORE);
    let (_, with_a_stream) = grown_bytes(1, MORE);
    let each_stream = grown_bytes(STREAMS, 0).0.saturating_sub(idle) / (CONNECTIONS * STREAMS);
    assert!(each_connection.min(with_a_stream).min(each_stream) > 0, "no growth was measured");
    println!(
        "{each_connection} bytes per idle connection, {with_a_stream} per connection with one stream whose window is \
         closed, {each_stream} per stream"
    );
    assert!(with_a_stream <= CONNECTION_BYTES_MAX + 8192, "{with_a_stream} bytes per connection with a stream");
    assert!(each_connection <= CONNECTION_BYTES_MAX, "{each_connection} bytes per idle connection");
    assert!(each_stream <= 1536, "{each_stream} bytes per stream");
}

/// The first value in a row of `limits` in the status, such as `0` in `0 B granted, …`.
fn granted(site: &Site, name: &str) -> String {
    let limits = site.status("limits");
    let row = limits.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{limits}"));
    row["value"].as_str().unwrap().split(" granted").next().unwrap().to_owned()
}

#[test]
fn receive_windows_grow_from_a_budget_shown_in_the_status() {
    let (certificate, origin) = (Certificate::new(), Echo::start());
    let text = format!("{}\nproxy \"{}\"", listen(&certificate), origin.1);
    let site = run_site_with(prepare("", ""), 1, &text);
    let upload = Held::start(site.address(), "upload", &["/echo", "1000", "0"]);
    assert_eq!(granted(&site, "receive windows"), "0 B", "a form needs no more than the initial window");
    upload.finish();
    // The initial window plus its growth.
    let upload = Held::start(site.address(), "upload", &["/echo", "20000", "524288"]);
    wait_until("the window has grown", || granted(&site, "receive windows") == "448 KiB");
    upload.finish();
    wait_until("the budget is fully returned", || granted(&site, "receive windows") == "0 B");
    // A request of known length returns its share with its last bytes, while the connection stays open.
    let idle = Held::start(site.address(), "keep", &["/echo", "1000000"]);
    // The last read may differ from the expected size by less than one read.
    let left = granted(&site, "receive windows");
    let (number, unit) = left.split_once(' ').unwrap();
    assert!(unit == "B" || unit == "KiB" && number.parse::<f64>().unwrap() <= 16.0, "{left}");
    idle.finish();
}

#[test]
fn send_buffers_come_from_a_budget_shown_in_the_status() {
    let certificate = Certificate::new();
    let folder = prepare("", "");
    fs::write(folder.path().join("www/10m"), vec![b'm'; 10 * MEBIBYTE]).unwrap();
    let text = inside(folder.path(), &certificate);
    let site = run_site_with(folder, 1, &text);
    // Its congestion window has grown, and then it stops sending acknowledgements.
    let silent = Held::start(site.address(), "silent", &["/10m"]);
    assert_ne!(granted(&site, "send buffers"), "0 B");
    silent.finish();
    wait_until("the budget is fully returned", || granted(&site, "send buffers") == "0 B");
}
