//! Tests of the logs as users see them: lines, targets, and targets that accept nothing.

use super::{Logged, LoggedPeer, LoggedResponse, Logs, Staged, WorkerLog, find_unusable};
use flatout_handler::response::{LogFacts, LoggedClient};
use flatout_http::access::{AccessField, LogDestination, LogFormat, LogSettings, Rotation};
use flatout_http::head::FieldStorage;
use flatout_http::limits::Limits;
use flatout_http::request::parse_request_head;
use flatout_os::testing::wait_until;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PEER: LoggedPeer =
    LoggedPeer { client: Some(std::net::SocketAddr::new(std::net::IpAddr::V4(CLIENT), 5)), secure: false };
const CLIENT: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);
const TIME_MS: i64 = 784_111_777_042;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("flatout-access-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The files whose names begin with `prefix`, in the order of their names.
    fn names(&self, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| name.starts_with(prefix)).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Logs, and the messages they have reported.
struct Opened {
    logs: Logs,
    words: Arc<Mutex<Vec<String>>>,
}

fn open(settings: &[LogSettings]) -> Opened {
    let words: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&words);
    let logs = Logs::open(settings, Box::new(move |text| heard.lock().unwrap().push(text.to_owned()))).unwrap();
    Opened { logs, words }
}

fn to_file(path: &Path) -> LogSettings {
    LogSettings::new(LogDestination::File(path.to_owned()))
}

fn answer(status: u16, outcome: &'static str) -> LoggedResponse<'static> {
    LoggedResponse::refused(status, outcome, 12, 1_000_000)
}

fn stage(log: &mut WorkerLog, raw: &[u8]) {
    log.stage(PEER, TIME_MS, Logged::Raw(raw), &answer(400, "refused"));
}

/// The lines that `request` with the response `answer` leaves in each format, staged at once or described before.
fn lines_of(request: &[u8], answer: &LoggedResponse<'_>) -> [String; 2] {
    let folder = Folder::new();
    let json = LogSettings { format: LogFormat::Json, ..to_file(&folder.join("json")) };
    let opened = open(&[to_file(&folder.join("combined")), json]);
    let mut log = opened.logs.worker();
    let mut storage = FieldStorage::new();
    let head = parse_request_head(request, &Limits::DEFAULT, &mut storage);
    let logged = match &head {
        Ok(Some(head)) => Logged::Head(head),
        _ => Logged::Raw(request),
    };
    for index in 0..2 {
        let facts = LogFacts { log: index, ..answer.facts.clone() };
        let answer = answer.with_facts(&facts);
        log.stage(PEER, TIME_MS, logged, &answer);
        let description = log.describe(PEER, TIME_MS, logged);
        log.stage_described(&description, &answer);
    }
    log.commit("sent", 3_500_000);
    log.finish();
    opened.logs.close();
    ["combined", "json"].map(|name| {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let [one, two] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(one, two, "a description says the same");
        one.to_owned()
    })
}

#[test]
fn a_line_holds_the_request_and_both_reasons() {
    let request = b"GET /a?b HTTP/1.1\r\nHost: h\r\nUser-Agent: x\"y\r\n\r\n";
    let (user, site) = (Some("me too".into()), Some("main".into()));
    let facts = LogFacts { log: 0, client: LoggedClient::Peer, user, site, cache: Some("stored".into()) };
    let [combined, json] = lines_of(request, &answer(200, "hit").with_facts(&facts));
    assert_eq!(
        combined,
        "192.0.2.1 - me\\x20too [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 12 \"-\" \"x\\x22y\" hit sent 2500"
    );
    let expected = concat!(
        r#"{"time":"1994-11-06T08:49:37.042Z","client":"192.0.2.1","host":"h","method":"GET","target":"/a?b","#,
        r#""version":"HTTP/1.1","status":200,"body_bytes":12,"referer":null,"user_agent":"x\"y","outcome":"hit","#,
        r#""ending":"sent","duration_us":2500,"tls":false,"site":"main","user":"me too","cache":"stored"}"#
    );
    assert_eq!(json, expected);
}

#[test]
fn a_refused_request_cannot_hide_from_its_line() {
    let [combined, json] = lines_of(b"\r\nGET /a\rb\nc\r\nX: y\r\n", &answer(400, "bare_cr"));
    assert!(combined.contains(" \"GET /a\\x0db\\x0ac\" 400 "), "{combined}");
    assert!(json.contains(r#""method":null,"target":"GET /a\u000db\u000ac","version":null,"status":400"#), "{json}");
    let [combined, _] = lines_of(&[b'\x16'; 1000], &answer(501, "method_too_long"));
    assert!(combined.contains(&format!(" \"{}\" 501 ", "\\x16".repeat(128))), "{combined}");
    let [combined, json] = lines_of(b"", &answer(0, "no_response"));
    assert!(combined.contains(" \"\" 000 ") && json.contains(r#""status":null"#), "{combined}{json}");
}

#[test]
fn json_fields_come_in_their_order_and_once() {
    let folder = Folder::new();
    let fields = vec![AccessField::DurationUs, AccessField::Status, AccessField::Ending, AccessField::Status];
    let settings = LogSettings { format: LogFormat::Json, fields, ..to_file(&folder.join("log")) };
    let opened = open(&[settings]);
    let mut log = opened.logs.worker();
    stage(&mut log, b"");
    stage(&mut log, b"");
    log.commit("client_reset", 3_500_000);
    log.finish();
    opened.logs.close();
    let line = "{\"duration_us\":2500,\"status\":400,\"ending\":\"client_reset\"}\n";
    assert_eq!(fs::read_to_string(folder.join("log")).unwrap(), line.repeat(2));
}

#[test]
fn each_line_records_the_ending_of_its_response() {
    let folder = Folder::new();
    let opened = open(&[to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    for output_bytes in [100, 200, 300] {
        stage(&mut log, b"");
        log.mark(output_bytes);
    }
    stage(&mut log, b"with a tail");
    // The kernel takes one response and a half, then the second and a part of the third.
    let mut staged: Staged = log.take_staged(150, 2_000_000);
    staged.advance(60);
    log.commit_staged(&staged, "write_timeout", 3_000_000);
    log.finish();
    opened.logs.close();
    let text = fs::read_to_string(folder.join("log")).unwrap();
    let endings: Vec<_> = text.lines().map(|line| line.split(" refused ").nth(1).unwrap()).collect();
    assert_eq!(endings, ["sent 1000", "sent 2000", "write_timeout 2000", "write_timeout 2000"]);
}

#[test]
fn the_index_chooses_the_log_and_255_none() {
    let folder = Folder::new();
    let again = LogSettings { format: LogFormat::Json, ..to_file(&folder.join("b")) };
    let opened = open(&[to_file(&folder.join("a")), to_file(&folder.join("b")), again]);
    let mut log = opened.logs.worker();
    for index in [0, 1, 2, 3, 255] {
        log.stage(
            PEER,
            TIME_MS,
            Logged::Raw(b""),
            &answer(400, "x").with_facts(&LogFacts { log: index, ..LogFacts::default() }),
        );
    }
    log.commit("sent", 0);
    log.finish();
    opened.logs.close();
    let counts: Vec<_> = opened.logs.counts().iter().map(|count| (count.lines_written, count.lines_lost)).collect();
    assert_eq!(counts, [(1, 0), (2, 0)]);
}

#[test]
fn rotation_by_size_loses_no_line_and_keeps_so_many() {
    const LINES: usize = 1000;
    let folder = Folder::new();
    fs::write(folder.join("log.20000101-000000"), "old\n").unwrap();
    fs::write(folder.join("log.not-ours"), "").unwrap();
    let rotation = Rotation { bytes_max: Some(2000), ..Rotation::default() };
    let settings = LogSettings { rotation, ..to_file(&folder.join("log")) };
    let opened = open(std::slice::from_ref(&settings));
    let mut log = opened.logs.worker();
    for number in 0..LINES {
        stage(&mut log, format!("line {number}").as_bytes());
        log.commit("sent", 0);
        if number % 100 == 0 {
            log.flush();
        }
    }
    log.flush();
    wait_until("all is written", || opened.logs.counts()[0].lines_written == LINES as u64);
    let mut numbers = Vec::new();
    for name in folder.names("log").iter().filter(|name| !name.contains("not-ours") && !name.contains("2000")) {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.len() <= 2000 && text.ends_with('\n'), "{name} has {} bytes", text.len());
        numbers.extend(text.lines().map(|line| {
            let line = line.split("\"line ").nth(1).unwrap();
            line.split('"').next().unwrap().parse::<usize>().unwrap()
        }));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
    assert_eq!(opened.logs.counts()[0].rotations as usize, folder.names("log.2").len() - 1);
    // From now on three are kept, and what is not of the pattern is left alone.
    let rotation = Rotation { keep: 3, ..rotation };
    let set = opened.logs.replace(&[LogSettings { rotation, ..settings }]).unwrap();
    log.adopt(&set);
    for _ in 0..100 {
        stage(&mut log, b"more");
    }
    log.commit("sent", 0);
    log.finish();
    opened.logs.close();
    assert_eq!(folder.names("log.2").len(), 3);
    assert_eq!(folder.names("log.not").len(), 1);
    assert!(!folder.join("log.20000101-000000").exists());
    assert!(opened.words.lock().unwrap().is_empty());
}

#[test]
fn a_file_that_others_rename_is_reopened() {
    let folder = Folder::new();
    let opened = open(&[to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    let mut write = |count: u64| {
        stage(&mut log, b"");
        log.commit("sent", 0);
        log.flush();
        wait_until("a line", || opened.logs.counts()[0].lines_written == count);
    };
    write(1);
    fs::rename(folder.join("log"), folder.join("renamed")).unwrap();
    write(2);
    opened.logs.reopen();
    wait_until("a new file", || folder.join("log").exists());
    write(3);
    let lines = |name: &str| fs::read_to_string(folder.join(name)).unwrap().lines().count();
    assert_eq!((lines("renamed"), lines("log")), (2, 1));
}

#[test]
fn a_full_disk_is_reported_once_and_counted() {
    let folder = Folder::new();
    let opened = open(&[to_file(Path::new("/dev/full")), to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    for _ in 0..50 {
        stage(&mut log, b"");
        log.stage(
            PEER,
            TIME_MS,
            Logged::Raw(b""),
            &answer(400, "x").with_facts(&LogFacts { log: 1, ..LogFacts::default() }),
        );
        log.commit("sent", 0);
        log.flush();
    }
    log.finish();
    opened.logs.close();
    let counts: Vec<_> = opened.logs.counts().iter().map(|count| (count.lines_written, count.lines_lost)).collect();
    assert_eq!((counts, opened.logs.lines_lost()), (vec![(0, 50), (50, 0)], 50));
    let words = opened.words.lock().unwrap();
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].starts_with("the access log /dev/full cannot be written (No space left"), "{words:?}");
}

/// Returns true if this process has the file open.
fn is_open(path: &Path) -> bool {
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| link == path)
}

/// Makes a FIFO with the real tool.
fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn an_unread_fifo_delays_no_request() {
    const LINES: u64 = 40_000;
    let folder = Folder::new();
    make_fifo(&folder.join("fifo"));
    let opened = open(&[to_file(&folder.join("fifo")), to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    let start = Instant::now();
    for _ in 0..LINES {
        stage(&mut log, b"GET /");
        log.commit("sent", 0);
    }
    log.stage(
        PEER,
        TIME_MS,
        Logged::Raw(b""),
        &answer(400, "x").with_facts(&LogFacts { log: 1, ..LogFacts::default() }),
    );
    log.commit("sent", 0);
    log.finish();
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    wait_until("the other log has its line", || opened.logs.counts()[1].lines_written == 1);
    opened.logs.close();
    let count = opened.logs.counts()[0].clone();
    assert!(count.lines_lost > 0 && count.lines_lost < LINES, "{count:?}");
    assert!(count.lines_written + count.lines_lost <= LINES, "{count:?}");
}

#[test]
fn a_fifo_that_nobody_reads_is_closed_when_it_is_not_wanted() {
    let folder = Folder::new();
    make_fifo(&folder.join("fifo"));
    let opened = open(&[to_file(&folder.join("fifo"))]);
    let mut log = opened.logs.worker();
    for _ in 0..5000 {
        stage(&mut log, b"GET /");
    }
    log.commit("sent", 0);
    log.adopt(&opened.logs.replace(&[to_file(&folder.join("log"))]).unwrap());
    wait_until("it is closed", || !is_open(&folder.join("fifo")));
    assert!(opened.logs.lines_lost() > 1000, "{}", opened.logs.lines_lost());
}

#[test]
fn a_slow_reader_of_a_fifo_gets_whole_lines_in_order() {
    use std::io::{BufRead, BufReader};
    const LINES: usize = 5000;
    let folder = Folder::new();
    make_fifo(&folder.join("fifo"));
    let opened = open(&[to_file(&folder.join("fifo"))]);
    let mut log = opened.logs.worker();
    let path = folder.join("fifo");
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::with_capacity(512, fs::File::open(path).unwrap()).lines();
        (0..LINES).map(|_| lines.next().unwrap().unwrap()).collect::<Vec<_>>()
    });
    for number in 0..LINES {
        stage(&mut log, format!("line {number} {}", "x".repeat(100)).as_bytes());
        log.commit("sent", 0);
    }
    log.finish();
    opened.logs.close();
    for (number, line) in reader.join().unwrap().iter().enumerate() {
        assert!(line.contains(&format!("\"line {number} xxx")) && line.ends_with("refused sent 0"), "{line}");
    }
    assert_eq!(opened.logs.lines_lost(), 0);
}

#[test]
fn targets_are_checked_without_a_trace() {
    let folder = Folder::new();
    let socket = folder.join("socket");
    let _daemon = UnixDatagram::bind(&socket).unwrap();
    let usable = [
        LogDestination::Stdout,
        LogDestination::Syslog(socket),
        LogDestination::File(folder.join("new.log")),
        LogDestination::File("relative.log".into()),
    ];
    let unusable =
        [LogDestination::Syslog(folder.join("none")), LogDestination::File(folder.join("no folder/access.log"))];
    let settings: Vec<_> = usable.iter().chain(&unusable).cloned().map(LogSettings::new).collect();
    let found: Vec<_> = find_unusable(&settings).into_iter().map(|error| error.target).collect();
    assert_eq!(found, unusable);
    assert!(!folder.join("new.log").exists());
}

#[test]
fn syslog_has_a_datagram_for_each_line() {
    let folder = Folder::new();
    let path = folder.join("socket");
    let daemon = UnixDatagram::bind(&path).unwrap();
    let opened = open(&[LogSettings::new(LogDestination::Syslog(path.clone()))]);
    let mut log = opened.logs.worker();
    let mut buffer = [0; 2000];
    let mut receive = |daemon: &UnixDatagram| {
        let count = daemon.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    };
    for _ in 0..2 {
        stage(&mut log, b"GET /");
    }
    log.commit("sent", 0);
    log.flush();
    for _ in 0..2 {
        let text = receive(&daemon);
        let (head, line) = text.split_once(&format!(" flatout[{}]: ", std::process::id())).unwrap();
        assert!(head.starts_with("<30>") && head.len() == "<30>Nov  6 08:49:37".len(), "{text}");
        assert!(line.starts_with("192.0.2.1 - - [") && line.ends_with("refused sent 0"), "{text}");
    }
    // The daemon is restarted: one line is lost at most while it is away, and then they come again.
    drop(daemon);
    fs::remove_file(&path).unwrap();
    stage(&mut log, b"lost");
    log.commit("sent", 0);
    log.flush();
    wait_until("it is lost", || opened.logs.lines_lost() == 1);
    let daemon = UnixDatagram::bind(&path).unwrap();
    stage(&mut log, b"again");
    log.commit("sent", 0);
    log.flush();
    assert!(receive(&daemon).contains("\"again\""));
    wait_until("it says so", || opened.words.lock().unwrap().len() == 2);
    let words = opened.words.lock().unwrap();
    assert!(
        words[0].contains(" cannot be written (No such file") && words[1].ends_with("again; lines lost: 1"),
        "{words:?}"
    );
}

#[test]
fn a_failed_open_is_an_error_and_changes_nothing() {
    let folder = Folder::new();
    let opened = open(&[to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    for (target, why) in [
        (LogDestination::File(folder.join("none/log")), "No such file or directory"),
        (LogDestination::File(folder.0.clone()), "Is a directory"),
        (LogDestination::Syslog(folder.join("socket")), "No such file or directory"),
    ] {
        let error = opened.logs.replace(&[LogSettings::new(target.clone())]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write the access log {target}: {why}")), "{error}");
    }
    stage(&mut log, b"");
    log.commit("sent", 0);
    log.finish();
    opened.logs.close();
    assert_eq!(opened.logs.counts()[0].lines_written, 1);
}

#[test]
fn a_reload_keeps_configured_logs_and_closes_the_others_after_their_last_lines() {
    let folder = Folder::new();
    let (kept, dropped) = (to_file(&folder.join("kept")), to_file(&folder.join("dropped")));
    let opened = open(&[dropped.clone(), kept.clone()]);
    let mut log = opened.logs.worker();
    // A download of the first log is under way, and a request whose answer is being made.
    stage(&mut log, b"download");
    let staged = log.take_staged(0, 0);
    let description = log.describe(PEER, TIME_MS, Logged::Raw(b"later"));
    let is_open = |name: &str| is_open(&folder.join(name));
    let json = LogSettings { format: LogFormat::Json, ..kept };
    log.adopt(&opened.logs.replace(&[json]).unwrap());
    log.flush();
    stage(&mut log, b"new");
    log.commit("sent", 0);
    log.commit_staged(&staged, "sent", 0);
    log.flush();
    assert!(is_open("dropped"), "somebody has a line for it still");
    log.stage_described(&description, &answer(200, "late"));
    log.commit("sent", 0);
    log.flush();
    drop(description);
    wait_until("it is closed", || !is_open("dropped"));
    assert!(is_open("kept"));
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert!(
        text("dropped").contains("\"download\"") && text("dropped").contains("\"later\" 200"),
        "{}",
        text("dropped")
    );
    assert!(text("kept").starts_with('{') && text("kept").lines().count() == 1, "{}", text("kept"));
    // And to none at all.
    log.adopt(&opened.logs.replace(&[]).unwrap());
    assert!(!log.is_on());
    wait_until("it is closed", || !is_open("kept"));
    assert_eq!(opened.logs.lines_lost(), 0);
}

#[test]
fn buffers_come_back() {
    let folder = Folder::new();
    let opened = open(&[to_file(&folder.join("log"))]);
    let mut log = opened.logs.worker();
    for round in 1..=100 {
        for _ in 0..100 {
            stage(&mut log, b"GET /");
            log.commit("sent", 0);
        }
        log.flush();
        wait_until("it is written", || opened.logs.counts()[0].lines_written == round * 100);
    }
    assert!(log.spare_count() > 0);
}
