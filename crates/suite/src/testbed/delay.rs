//! A link that delays every packet. This process carries the packets between the two hosts, so the link works on every
//! kernel that has TUN devices.

use crate::server::instance::pin_to_cores;
use flatout_os::tun::open_tun;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of packets on the way in each direction. Further packets are lost.
const PACKETS_MAX: usize = 65_536;

/// Maximum number of packets read from one end before the other end has its turn.
const BATCH: usize = 64;

/// A link between two network devices. It exists until this is dropped.
#[derive(Debug)]
pub(super) struct DelayedLink {
    /// The names of the devices at the two ends.
    pub(super) ends: [String; 2],
    stop: Arc<OwnedFd>,
    carrier: Option<JoinHandle<()>>,
}

impl DelayedLink {
    /// Creates a link on which each packet takes `delay`. Its ends are in this process's network namespace. The packets
    /// are carried on these cores, or on any if there are none.
    pub(super) fn new(delay: Duration, cores: Vec<usize>) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // At most 15 bytes.
        let name = || format!("fo{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) % 10_000);
        let ends = [name(), name()];
        let open_end = |name: &String| open_tun(&CString::new(name.as_str())?);
        let devices = [open_end(&ends[0])?, open_end(&ends[1])?];
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watched = Arc::clone(&stop);
        let carrier = std::thread::Builder::new().name("link".to_owned()).spawn(move || {
            // If the cores are not available, the suite has reported it.
            let _ = if cores.is_empty() { Ok(()) } else { pin_to_cores(&cores) };
            carry(&devices, &watched, delay);
        })?;
        Ok(Self { ends, stop, carrier: Some(carrier) })
    }
}

impl Drop for DelayedLink {
    fn drop(&mut self) {
        let _ = write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}

/// The packets on the way in one direction, and when each of them arrives.
#[derive(Debug, Default)]
struct Transit(VecDeque<(Instant, Vec<u8>)>);

impl Transit {
    /// Takes the packets that `from` has sent.
    fn take(&mut self, from: &OwnedFd, delay: Duration, buffer: &mut [u8]) -> Result<(), Errno> {
        for _ in 0..BATCH {
            match read(from, &mut *buffer) {
                Ok(length) if self.0.len() < PACKETS_MAX => {
                    self.0.push_back((Instant::now() + delay, buffer[..length].to_vec()));
                }
                Ok(_) | Err(Errno::INTR) => {}
                // The device is not up yet.
                Err(Errno::AGAIN | Errno::IO) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes on what has arrived at `now`. The receiver may lose a packet, as on any link.
    fn pass_on(&mut self, to: &OwnedFd, now: Instant) {
        while let Some((_, packet)) = self.0.pop_front_if(|(due, _)| *due <= now) {
            let _ = write(to, &packet);
        }
    }
}

/// Carries packets between the devices until `stop` is readable.
fn carry(devices: &[OwnedFd; 2], stop: &OwnedFd, delay: Duration) {
    let mut transits = [Transit::default(), Transit::default()];
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let due = transits.iter().filter_map(|transit| transit.0.front()).map(|(due, _)| *due).min();
        let timeout = due.and_then(|due| Timespec::try_from(due.saturating_duration_since(Instant::now())).ok());
        let [first, second] = devices;
        let mut fds = [first, second, stop].map(|fd| PollFd::new(fd, PollFlags::IN));
        if matches!(poll(&mut fds, timeout.as_ref()), Err(error) if error != Errno::INTR)
            || !fds[2].revents().is_empty()
        {
            return;
        }
        for (transit, device) in transits.iter_mut().zip(devices) {
            if transit.take(device, delay, &mut buffer).is_err() {
                return;
            }
        }
        let now = Instant::now();
        for (transit, device) in transits.iter_mut().zip(devices.iter().rev()) {
            transit.pass_on(device, now);
        }
    }
}
