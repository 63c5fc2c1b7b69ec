//! The TCP round-trip probe: one byte in each direction, over one connection.

use super::{Measure, Readings, Setting};
use crate::cores::pin_to_core;
use flatout_load::record::TIME_NS_MAX;
use flatout_os::clock::precise_ns;
use hdrhistogram::Histogram;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

pub(super) fn measure(setting: Setting) -> io::Result<Readings> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // Connect both ends before the threads start, so that neither waits for a failed one.
    let mut asking = TcpStream::connect(address)?;
    let (mut echoing, _) = listener.accept()?;
    asking.set_nodelay(true)?;
    echoing.set_nodelay(true)?;
    let echo = thread::spawn(move || -> io::Result<()> {
        pin_to_core(setting.cores.server)?;
        let mut byte = [0];
        // The client's end of the connection belongs to this function.
        while echoing.read(&mut byte)? == 1 {
            echoing.write_all(&byte)?;
        }
        Ok(())
    });
    let ask = thread::spawn(move || -> io::Result<Histogram<u64>> {
        pin_to_core(setting.cores.client)?;
        let mut latency = Histogram::new_with_bounds(1, TIME_NS_MAX, 3).map_err(io::Error::other)?;
        let mut now_ns = precise_ns();
        let deadline_ns = now_ns + setting.duration.as_nanos() as u64;
        let mut byte = [1];
        while now_ns < deadline_ns {
            asking.write_all(&byte)?;
            asking.read_exact(&mut byte)?;
            let then_ns = now_ns;
            now_ns = precise_ns();
            latency.saturating_record(now_ns - then_ns);
        }
        Ok(latency)
    });
    let latency = joined(ask)?;
    joined(echo)?;
    let seconds = setting.duration.as_secs_f64();
    Ok(vec![
        (Measure::RoundTrips, latency.len() as f64 / seconds),
        (Measure::RoundTripP50, latency.value_at_quantile(0.5) as f64),
        (Measure::RoundTripP99, latency.value_at_quantile(0.99) as f64),
    ]
    .into())
}

/// Waits for a probe's thread and returns its result.
pub(super) fn joined<T>(thread: thread::JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a probe's thread panicked"))?
}
