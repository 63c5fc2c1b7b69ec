//! How soon an accelerator that was killed serves its kept answers again, and how many of them.
//!
//! The binary is filled through its front door, killed with SIGKILL once its disk holds what it was given, and started
//! again by the same command. An answer counts as a hit only when its content is right and the origin, which is a
//! thread of this program, was not asked.

use crate::failure::{Context, Outcome};
use crate::shell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: cargo xtask store-restart [--objects N] [--bytes N] [--folder DIR]

  --objects N     number of stored responses (default 1000000)
  --bytes N       size of each response in bytes (default 1024)
  --folder DIR    folder on the disk to measure (default: the system's temporary folder)

FLATOUT_BIN is the binary to measure (default: target/release/flatout, built if it is missing or out of date).";

/// Asked for in a row before the disk is given the time to write them.
const BATCH: u64 = 8192;

/// Asked for after the restart, spread over all.
const SAMPLES: u64 = 1000;

/// How long the disk may need for a batch, or the process to start.
const TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, PartialEq)]
struct Options {
    objects: u64,
    bytes: usize,
    folder: PathBuf,
}

/// `cargo xtask store-restart`.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let Some(options) = parse(args)? else {
        println!("{USAGE}");
        return Ok(());
    };
    let flatout = shell::release_binary()?;
    let made =
        shell::output_of(Command::new("mktemp").args(["-d", "-p"]).arg(&options.folder).arg("flatout-store.XXXXXX"))?;
    let place = Place(PathBuf::from(made.trim()));
    let count = Arc::new(AtomicU64::new(0));
    let origin = start_origin(options.bytes, Arc::clone(&count))?;
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).cannot("find a free port")?;
    let start = || Accelerator::start(&flatout, &place.0, origin, free);

    let begun = Instant::now();
    let accelerator = start()?;
    fill(&accelerator, &options)?;
    let (written, dropped) = accelerator.written()?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} answers of {} bytes kept in {seconds:.1} s", options.objects, options.bytes);
    println!("the disk took {written} of them and had no time for {dropped}");
    // SIGKILL: nothing is told to anybody.
    drop(accelerator);

    let asked_before = count.load(Ordering::Relaxed);
    let begun = Instant::now();
    let accelerator = start()?;
    let listening = begun.elapsed();
    let mut client = Client::connect(free)?;
    client.ask(options.objects / 2, options.bytes)?;
    let first = begun.elapsed();
    if count.load(Ordering::Relaxed) > asked_before {
        return Err("the first answer after the restart was no hit: its origin was asked".into());
    }
    let samples = SAMPLES.min(options.objects);
    for sample in 0..samples {
        client.ask(sample * (options.objects / samples), options.bytes)?;
    }
    let misses = count.load(Ordering::Relaxed) - asked_before;
    let all = begun.elapsed();
    println!("after kill -9, from the start of the process:");
    println!("  listening    {:>9.1} ms", millis(listening));
    println!("  first hit    {:>9.1} ms", millis(first));
    println!("  {} of {samples} answers spread over all were hits, by {:.1} ms", samples - misses, millis(all));
    drop(accelerator);
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// `None` when help is asked for.
fn parse(args: &[String]) -> Outcome<Option<Options>> {
    let mut options = Options { objects: 1_000_000, bytes: 1024, folder: std::env::temp_dir() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cannot(&format!("do without a value after {arg}"));
        match arg.as_str() {
            "--objects" => options.objects = value()?.parse().cannot("read the number of responses")?,
            "--bytes" => options.bytes = value()?.parse().cannot("read the size of a response")?,
            "--folder" => options.folder = PathBuf::from(value()?),
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("store-restart does not know `{other}`\n{USAGE}").into()),
        }
    }
    if options.objects == 0 || options.bytes < 20 {
        return Err("there must be an answer, and each must have 20 bytes to be told from the others".into());
    }
    Ok(Some(options))
}

/// Asks for all, a batch at a time, so that the disk is never given more than it queues.
fn fill(accelerator: &Accelerator, options: &Options) -> Outcome<()> {
    let mut client = Client::connect(accelerator.address)?;
    for number in 0..options.objects {
        client.ask(number, options.bytes)?;
        let asked = number + 1;
        if asked % BATCH == 0 || asked == options.objects {
            let start = Instant::now();
            loop {
                let (written, dropped) = accelerator.written()?;
                if written + dropped >= asked {
                    break;
                }
                if start.elapsed() > TIMEOUT {
                    return Err(format!("the disk has {written} of {asked} answers, and no more come").into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if asked % 100_000 == 0 {
            eprintln!("{asked} kept");
        }
    }
    Ok(())
}

/// A folder that is removed at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // Left behind at worst.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `flatout accelerate` with a disk; killed when dropped.
struct Accelerator {
    child: Child,
    address: SocketAddr,
    admin: PathBuf,
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Accelerator {
    /// Starts it and waits until it takes connections.
    fn start(flatout: &Path, folder: &Path, origin: SocketAddr, address: SocketAddr) -> Outcome<Self> {
        let admin = folder.join("admin");
        let disk = format!("{}=64GiB", folder.join("disk").display());
        let said = std::fs::File::create(folder.join("said")).cannot("create a log")?;
        let mut command = Command::new(flatout);
        command.args(["accelerate", &format!("http://{origin}"), "--listen", &address.to_string(), "--disk", &disk]);
        command.arg("--admin").arg(&admin).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().cannot(&format!("start {}", flatout.display()))?;
        let mut accelerator = Self { child, address, admin };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = accelerator.child.try_wait().cannot("look after the accelerator")?;
            if ended.is_some() || start.elapsed() > TIMEOUT {
                let said = std::fs::read_to_string(folder.join("said")).unwrap_or_default();
                return Err(format!("the accelerator does not listen: {}", said.trim()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(accelerator)
    }

    /// The answers that its disk has taken, and those that it had no time for.
    fn written(&self) -> Outcome<(u64, u64)> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "10", "--unix-socket"]).arg(&self.admin);
        let text = shell::output_of(curl.arg("http://flatout/metrics"))?;
        let value = |name: &str| value(&text, name).cannot(&format!("read {name}"));
        Ok((value("flatout_store_volume_written_total")?, value("flatout_store_volume_dropped_total")?))
    }
}

/// The value of the only sample of a family.
fn value(metrics: &str, name: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// One connection that stays open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).cannot("connect to the accelerator")?;
        stream.set_nodelay(true).cannot("set a socket's option")?;
        stream.set_read_timeout(Some(TIMEOUT)).cannot("set a socket's option")?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks for one and looks at what comes.
    fn ask(&mut self, number: u64, bytes: usize) -> Outcome<()> {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: store.example\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).cannot("ask")?;
        let head = head(&mut self.0)?.cannot("read an answer: the connection was closed")?;
        let mut body = vec![0; bytes];
        if !head.starts_with("HTTP/1.1 200 ")
            || !head.to_ascii_lowercase().contains(&format!("\r\ncontent-length: {bytes}\r\n"))
        {
            return Err(format!("/{number} was answered wrong: {head}").into());
        }
        self.0.read_exact(&mut body).cannot("read an answer")?;
        if body != content(number, bytes) {
            return Err(format!("/{number} was answered with other content").into());
        }
        Ok(())
    }
}

/// The lines up to and with the blank one; `None` when the connection was closed before them.
fn head(stream: &mut impl BufRead) -> Outcome<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).cannot("read a head")? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// What the answer of that number holds.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    format!("{number:020}").bytes().cycle().take(bytes).collect()
}

/// A thread for each connection, which answers by the number in the path and counts.
fn start_origin(bytes: usize, count: Arc<AtomicU64>) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").cannot("listen")?;
    let address = listener.local_addr().cannot("listen")?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            // A connection that fails is asked for again, and then counted again.
            std::thread::spawn(move || serve(stream, bytes, &count));
        }
    });
    Ok(address)
}

fn serve(stream: TcpStream, bytes: usize, count: &AtomicU64) -> Outcome<()> {
    stream.set_nodelay(true).cannot("set a socket's option")?;
    let mut stream = BufReader::new(stream);
    while let Some(head) = head(&mut stream)? {
        let path = head.split(' ').nth(1).and_then(|path| path.strip_prefix('/'));
        let number = path.and_then(|path| path.parse().ok()).cannot("read what is asked for")?;
        count.fetch_add(1, Ordering::Relaxed);
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=86400\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
        answer.extend(content(number, bytes));
        stream.get_mut().write_all(&answer).cannot("answer")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Outcome<Option<Options>> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args)
    }

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let options = parsed("--objects 10 --bytes 64 --folder /x").unwrap().unwrap();
        assert_eq!(options, Options { objects: 10, bytes: 64, folder: PathBuf::from("/x") });
        for bad in ["--objects", "--objects 0", "--bytes 19", "--fast"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("--help").unwrap().is_none());
    }

    #[test]
    fn a_client_believes_only_the_right_content() {
        let count = Arc::new(AtomicU64::new(0));
        let origin = start_origin(64, Arc::clone(&count)).unwrap();
        let mut client = Client::connect(origin).unwrap();
        for number in [7, 8] {
            client.ask(number, 64).unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert!(client.ask(9, 65).is_err());
        assert_ne!(content(7, 64), content(8, 64));
    }

    #[test]
    fn a_sample_is_found_by_its_whole_name() {
        let text = "# HELP a_total x\na_total_more 1\na_total{folder=\"/x y\"} 42\nb 3\n";
        assert_eq!((value(text, "a_total"), value(text, "b"), value(text, "c")), (Some(42), Some(3), None));
    }
}
