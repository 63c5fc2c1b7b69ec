//! Huge pages for memory files.
//!
//! Sendfile hands the kernel's network stack one reference a page. A file in the page cache of ext4 or XFS lies in large
//! pieces, a memory file in pages of 4 KiB unless the whole machine is told otherwise, and sending it costs a third more
//! ([performance](../../../docs/performance.md)).

#![allow(unsafe_code)] // no safe wrapper offers a mapping

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes of a huge page. The kernel says no where it has another size, and then nothing has changed.
pub const HUGE_PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// A page that a socket still holds cannot be moved: how long to wait before each try, a second and a half in all.
const WAITS_MS: [u64; 7] = [0, 10, 40, 100, 200, 400, 800];

/// Leave to join pages, of which there is one: it takes a thread, and what has left the store meanwhile is held by it.
#[derive(Debug)]
pub struct Joiner(());

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Joiner {
    /// `None` while others have it.
    pub fn take() -> Option<Self> {
        (!IS_TAKEN.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// Joins the pages of `fd`, as [`join_pages`] does, on a thread of its own; not at all when there is none to be had.
    pub fn join(self, fd: Arc<OwnedFd>, bytes: u64) {
        let thread = thread::Builder::new().name("join-pages".to_owned());
        // The leave goes back in either case.
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

/// Moves the memory file `fd`, of which nobody writes the first `bytes` any more, into huge pages, as far as it fills
/// whole ones. Its content stays what it is, and may be read and sent meanwhile. Takes about 0.3 ms a MiB, and waits
/// besides: for a thread where nobody waits.
///
/// Returns how many huge pages it is in; fewer than asked for where the kernel has none to give or has no
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

/// One huge page, from `offset` on, which must be a multiple of its size.
fn join_page(fd: &OwnedFd, offset: u64) -> io::Result<()> {
    const SIZE: usize = HUGE_PAGE_BYTES as usize;
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Twice as much address space as needed, so that a multiple of the size is in it. None of it is memory.
    // SAFETY: without MAP_FIXED the kernel chooses a place that nothing else has.
    let reserved = unsafe {
        libc::mmap(ptr::null_mut(), 2 * SIZE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if reserved == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = reserved.wrapping_byte_add(reserved.addr().next_multiple_of(SIZE) - reserved.addr());
    // SAFETY: [start, start + SIZE) lies in what was reserved above, which nobody else knows of. Should this fail, the address space stays reserved: part of it may be free for others already.
    let mapped = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(start, SIZE, libc::PROT_READ, flags, fd.as_raw_fd(), offset)
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: [start, start + SIZE) lies in what was reserved above, which nobody else knows of; the mapping is never
    // read or written through, so that a file that shrinks can raise no signal.
    let result = unsafe {
        if libc::madvise(start, SIZE, libc::MADV_COLLAPSE) != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: exactly what was reserved, with what was mapped into it.
    unsafe { libc::munmap(reserved, 2 * SIZE) };
    result
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE_BYTES, join_pages};
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn content_stays_what_it_is() {
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
    fn what_is_too_small_or_no_memory_is_left_alone() {
        let fd = memfd_create("huge", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(join_pages(&fd, HUGE_PAGE_BYTES - 1), 0);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(join_pages(&reader, 4 * HUGE_PAGE_BYTES), 0);
    }
}
