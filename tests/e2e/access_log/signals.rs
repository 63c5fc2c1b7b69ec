//! SIGUSR1 reopens renamed log files, as logrotate expects.

use super::{Line, serve, stop};
use crate::e2e::cli::Running;
use crate::e2e::harness::{Folder, read_response, wait_until};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn sigusr1_reopens_a_renamed_file_without_losing_lines() {
    const ROTATIONS: usize = 5;
    let (folder, logs) = (Folder::with(&[("a.txt", b"a")]), Folder::new());
    let log = logs.path().join("log");
    let mut running = Running::spawn(serve(folder.path(), &["--access-log", log.to_str().unwrap()]));
    let address = running.addresses().unwrap()[0];
    let done = AtomicBool::new(false);
    let requests = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut stream, mut count) = (TcpStream::connect(address).unwrap(), 0);
                    while !done.load(Ordering::Relaxed) {
                        stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                        assert_eq!(read_response(&mut stream).status, 200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for rotation in 0..ROTATIONS {
            wait_until("a line", || fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0));
            fs::rename(&log, logs.path().join(format!("log.{rotation}"))).unwrap();
            running.signal("USR1");
            wait_until("a new file", || log.exists());
        }
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    });
    let stderr = stop(running);
    // Each signal also printed the counters.
    assert!(stderr.matches("connections_accepted").count() > 1, "{stderr}");
    let files = fs::read_dir(logs.path()).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let files: Vec<String> = files.collect();
    assert_eq!(files.len(), ROTATIONS + 1);
    let lines = files.iter().flat_map(|text| text.lines().map(Line::parse)).count();
    assert_eq!(lines, requests);
}
