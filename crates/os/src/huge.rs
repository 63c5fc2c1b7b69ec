//! Huge pages for memory files.
//!
//! Sendfile hands the network stack one reference per page. In the page cache of ext4 or XFS, a file consists of large
//! folios. A memory file consists of 4 KiB pages, unless the whole machine is configured otherwise, which makes sending
//! it a third more expensive ([performance](../../../docs/performance.md)).

#![allow(unsafe_code)] // no safe wrapper offers a mapping

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Size of a huge page, in bytes. A kernel with another size refuses the call, without effect.
pub const HUGE_PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// Delays before each attempt, in milliseconds, about a second and a half in total: a page that a socket still
/// references cannot be moved.
const WAITS_MS: [u64; 7] = [0, 10, 40, 100, 200, 400, 800];

/// The only permit to join pages. There is only one because joining takes a thread and keeps entries in memory that may
/// have left the store in the meantime.
#[derive(Debug)]
pub struct Joiner(());

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Joiner {
    /// Takes the permit. Returns `None` while the permit is in use.
    pub fn take() -> Option<Self> {
        (!IS_TAKEN.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// Joins the pages of `fd` on a separate thread, as [`join_pages`] does. Does nothing if the thread cannot be
    /// started.
    pub fn join(self, fd: Arc<OwnedFd>, bytes: u64) {
        let thread = thread::Builder::new().name("join-pages".to_owned());
        // If the thread cannot be started, the closure is dropped and the permit is returned with it.
        let _ = thread.spawn(move || {
            let _leave = self;
            join_pages(&fd, bytes)
        });
    }
}

impl Drop for Joiner {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}

/// Moves the whole huge pages among the first `bytes` of the memory file `fd` into huge pages. These bytes must not be
/// written to any more. They may be read and sent in the meantime, and do not change. Takes about 0.3 ms per MiB plus
/// the delays between attempts, so call it on a thread that may block.
///
/// Returns the number of huge pages. This is less than requested if the kernel has no more huge pages or has no
/// `MADV_COLLAPSE` (before Linux 6.1).
pub fn join_pages(fd: &OwnedFd, bytes: u64) -> u64 {
    let count = bytes / HUGE_PAGE_BYTES;
    let mut left: Vec<u64> = (0..count).collect();
    for wait_ms in WAITS_MS {
        if wait_ms > 0 {
            thread::sleep(Duration::from_millis(wait_ms));
        }
        let mut is_hopeless = false;
        left.retain(|&number| match join_page(fd, number * HUGE_PAGE_BYTES) {
            Ok(()) => false,
            Err(error) => {
                is_hopeless |= !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY));
                true
            }
        });
        if left.is_empty() || is_hopeless {
            break;
        }
    }
    count - left.len() as u64
}

/// Collapses one huge page at `offset`, which must be a multiple of [`HUGE_PAGE_BYTES`].
fn join_page(fd: &OwnedFd, offset: u64) -> io::Result<()> {
    const SIZE: usize = HUGE_PAGE_BYTES as usize;
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Reserves twice the address space needed, so that it contains an aligned huge page. The reservation takes no
    // memory.
    // SAFETY: without MAP_FIXED the kernel chooses an unused range.
    let reserved = unsafe {
        libc::mmap(ptr::null_mut(), 2 * SIZE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if reserved == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = reserved.wrapping_byte_add(reserved.addr().next_multiple_of(SIZE) - reserved.addr());
    // SAFETY: [start, start + SIZE) lies in the range reserved above, which nothing else uses. If this fails, the
    // address space stays reserved, because part of it may already be in use again.
    let mapped = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(start, SIZE, libc::PROT_READ, flags, fd.as_raw_fd(), offset)
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: [start, start + SIZE) lies in the range reserved above, which nothing else uses; the mapping is never
    // read or written through, so a file that shrinks cannot raise a signal.
    let result = unsafe {
        if libc::madvise(start, SIZE, libc::MADV_COLLAPSE) != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: exactly the reserved range, including the mapping in it.
    unsafe { libc::munmap(reserved, 2 * SIZE) };
    result
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE_BYTES, join_pages};
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn content_is_unchanged_in_huge_pages() {
        let fd = memfd_create("huge", MemfdFlags::CLOEXEC).unwrap();
        let bytes = 2 * HUGE_PAGE_BYTES as usize + 12_345;
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut written = 0;
        while written < bytes {
            written += rustix::io::pwrite(&fd, &content[written..], written as u64).unwrap();
        }
        // How many depends on the kernel; never more than there are.
        assert!(join_pages(&fd, bytes as u64) <= 2);
        let mut read = vec![0; bytes];
        let mut at = 0;
        while at < bytes {
            at += rustix::io::pread(&fd, &mut read[at..], at as u64).unwrap();
        }
        assert!(read == content);
    }

    #[test]
    fn small_files_and_pipes_are_left_alone() {
        let fd = memfd_create("huge", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(join_pages(&fd, HUGE_PAGE_BYTES - 1), 0);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(join_pages(&reader, 4 * HUGE_PAGE_BYTES), 0);
    }
}
