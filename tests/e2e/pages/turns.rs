//! Pages with endless loops, next to other requests on the same worker.

use super::{page, site};
use crate::e2e::harness::read_response;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

const SITE: &[(&str, &str)] = &[
    ("site/loop.lhtml", "<?lua while true do end ?>"),
    ("site/index.lhtml", "<?= 1 ?>"),
    ("public/file.txt", "a file"),
];

/// Endless pages take turns with one another and with all connections. Each is stopped at its limit.
#[test]
fn endless_pages_do_not_block_the_worker() {
    let (_folder, server) = site(SITE, "cpu-limit \"300ms\"", "files \"public\"");
    let (over, ended) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut stream = server.connect();
                while !over.load(Ordering::Acquire) {
                    stream.write_all(b"GET /loop HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
                    assert_eq!(read_response(&mut stream).status, 503);
                    ended.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        // All pages together compute for 2.4 s. A client that had to wait for one of them to finish would get only a
        // few responses before the first is stopped.
        let mut stream = server.connect();
        let mut answered = 0;
        while ended.load(Ordering::Acquire) == 0 {
            stream.write_all(b"GET /file.txt HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
            assert_eq!(read_response(&mut stream).status, 200);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
            assert_eq!(read_response(&mut stream).status, 200);
            answered += 1;
        }
        over.store(true, Ordering::Release);
        assert!(answered > 20, "{answered}");
    });
    assert_eq!(page(&server, "/"), "1");
}

/// More pages than the worker can run: some run, the others are refused immediately, and nobody waits for all of them.
#[test]
fn excess_pages_are_refused_while_others_are_served() {
    let work = "<?lua local sum = 0 for i = 1, 400000 do sum = sum + i end ?><?= sum ?>";
    let (_folder, server) = site(&[("site/work.lhtml", work)], "cpu-limit \"5s\"", "");
    // The first request shows that this page takes long.
    assert_eq!(page(&server, "/work"), "80000200000");
    let mut streams: Vec<_> = (0..400).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /work HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    }
    let (mut served, mut refused) = (0, 0);
    for stream in &mut streams {
        let response = read_response(stream);
        match response.status {
            200 => served += 1,
            503 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!(served >= 4 && refused > 0, "{served} served, {refused} refused");
    // Afterwards, all are served again.
    assert_eq!(page(&server, "/work"), "80000200000");
    let (_, said) = server.stop();
    assert!(said.contains("outcome_page_overloaded"), "{said}");
    // The lines for the beginning and the end of each overload. The ends have the totals.
    let began = said.matches("overload began: ").count();
    let totals = said.lines().filter_map(|line| line.strip_prefix("overload ended ")?.split_once(": "));
    let totals: Vec<u32> = totals
        .filter_map(|(_, counts)| {
            counts.split(", ").find_map(|count| count.strip_suffix(" × page_overloaded")?.parse().ok())
        })
        .collect();
    assert!(began > 0 && totals.len() == began, "{said}");
    assert_eq!(totals.iter().sum::<u32>(), refused, "{said}");
}
