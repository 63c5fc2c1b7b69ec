//! The TCP connection probe, which only connects, accepts and closes.

use super::roundtrip::joined;
use super::{Measure, Readings, Setting};
use crate::cores::pin_to_core;
use flatout_os::clock::precise_ns;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Number of concurrent connections, so that neither side waits for the other. A guess, well below the backlog.
const UNDER_WAY_MAX: usize = 32;

pub(super) fn measure(setting: Setting) -> io::Result<Readings> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // The server closes first, so TIME-WAIT is on its side and takes no port from the client.
    let accept = thread::spawn(move || -> io::Result<()> {
        pin_to_core(setting.cores.server)?;
        while !stopped.load(Ordering::Relaxed) {
            drop(listener.accept()?);
        }
        Ok(())
    });
    let connect = thread::spawn(move || -> io::Result<f64> {
        pin_to_core(setting.cores.client)?;
        let (mut under_way, mut closed) = (VecDeque::new(), 0_u64);
        let begun_ns = precise_ns();
        let deadline_ns = begun_ns + setting.duration.as_nanos() as u64;
        while precise_ns() < deadline_ns {
            under_way.push_back(TcpStream::connect(address)?);
            if under_way.len() == UNDER_WAY_MAX {
                close_oldest(&mut under_way)?;
                closed += 1;
            }
        }
        let elapsed_ns = precise_ns() - begun_ns;
        while !under_way.is_empty() {
            close_oldest(&mut under_way)?;
        }
        Ok(closed as f64 * 1e9 / elapsed_ns as f64)
    });
    let connections_per_s = joined(connect);
    stop.store(true, Ordering::Relaxed);
    // Connect once more to wake the accepting thread, if it still waits for a connection.
    let _woken = TcpStream::connect(address);
    joined(accept)?;
    Ok(vec![(Measure::Connections, connections_per_s?)].into())
}

/// Waits for the server to close the oldest connection, and then closes it.
fn close_oldest(under_way: &mut VecDeque<TcpStream>) -> io::Result<()> {
    match under_way.pop_front() {
        Some(mut stream) => stream.read(&mut [0]).map(drop),
        None => Ok(()),
    }
}
