//! The TCP throughput probe: one connection, over which bytes are sent from memory or from a file. The receiver
//! discards them.

use super::roundtrip::joined;
use super::{Measure, Readings, Setting};
use crate::cores::pin_to_core;
use flatout_client::thread_cpu_ns;
use flatout_os::clock::precise_ns;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;

/// Number of bytes per send. In our measurements, 64 and 256 KiB cost the sender up to a tenth more CPU time, and 4 MiB
/// no less.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Number of bytes per receive. Smaller than a send, so that the buffer stays in the receiver's cache.
const RECEIVE_BYTES: usize = 256 * 1024;

/// Length of the file that is sent repeatedly, in bytes. The file is in memory.
const FILE_BYTES: usize = 16 * 1024 * 1024;

const MEBIBYTE: f64 = 1_048_576.0;

/// The source of the sent bytes.
enum PayloadSource {
    Memory(Vec<u8>),
    File(OwnedFd),
}

impl PayloadSource {
    /// Sends one piece, and returns its length in bytes.
    fn send(&self, stream: &mut TcpStream, position: &mut u64) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => stream.write(bytes),
            Self::File(file) => {
                if *position >= FILE_BYTES as u64 {
                    *position = 0;
                }
                Ok(sendfile(stream, file, Some(position), CHUNK_BYTES)?)
            }
        }
    }
}

pub(super) fn measure_send(setting: Setting) -> io::Result<Readings> {
    let source = PayloadSource::Memory(vec![b'x'; CHUNK_BYTES]);
    let (bytes_per_s, cpu_ns_per_mib) = measure(setting, source)?;
    Ok(vec![(Measure::Send, bytes_per_s), (Measure::SendCpu, cpu_ns_per_mib)].into())
}

pub(super) fn measure_sendfile(setting: Setting) -> io::Result<Readings> {
    let file = memfd_create("flatout-limits", MemfdFlags::CLOEXEC)?;
    let bytes = vec![b'x'; FILE_BYTES];
    let mut written = 0;
    while written < bytes.len() {
        written += rustix::io::write(&file, &bytes[written..])?;
    }
    let (bytes_per_s, cpu_ns_per_mib) = measure(setting, PayloadSource::File(file))?;
    Ok(vec![(Measure::SendFile, bytes_per_s), (Measure::SendFileCpu, cpu_ns_per_mib)].into())
}

/// Returns the bytes per second, and the sender's CPU time per MiB in nanoseconds.
fn measure(setting: Setting, source: PayloadSource) -> io::Result<(f64, f64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // Connect both ends before the threads start, so that neither waits for a failed one.
    let mut incoming = TcpStream::connect(address)?;
    let (mut outgoing, _) = listener.accept()?;
    let receive = thread::spawn(move || -> io::Result<f64> {
        pin_to_core(setting.cores.client)?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        let (begun_ns, mut received) = (precise_ns(), 0_u64);
        loop {
            match incoming.read(&mut buffer)? {
                0 => return Ok(received as f64 * 1e9 / (precise_ns() - begun_ns) as f64),
                bytes => received += bytes as u64,
            }
        }
    });
    let send = thread::spawn(move || -> io::Result<f64> {
        pin_to_core(setting.cores.server)?;
        let (mut sent, mut position) = (0_u64, 0);
        let cpu_before_ns = thread_cpu_ns();
        let deadline_ns = precise_ns() + setting.duration.as_nanos() as u64;
        while precise_ns() < deadline_ns {
            sent += source.send(&mut outgoing, &mut position)? as u64;
        }
        Ok((thread_cpu_ns() - cpu_before_ns) as f64 * MEBIBYTE / sent.max(1) as f64)
    });
    // Join the sender first: when it closes its end, the receiver stops.
    let cpu_ns_per_mib = joined(send)?;
    Ok((joined(receive)?, cpu_ns_per_mib))
}
