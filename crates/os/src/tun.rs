//! TUN devices: network interfaces whose packets a process sends and receives.

#![allow(unsafe_code)] // one ioctl that no safe wrapper offers

use rustix::fs::{Mode, OFlags, open};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Creates a TUN device called `name`, which may have at most 15 bytes. Each read from the descriptor returns one IP
/// packet that the kernel sends through the device, and each write passes one to the kernel; neither blocks. The device
/// exists until the descriptor is closed.
///
/// # Errors
/// If the kernel has no TUN devices, the process may not create one, or the name is taken or too long.
pub fn open_tun(name: &CStr) -> io::Result<OwnedFd> {
    let fd = open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: every field of the structure accepts zeros.
    let mut request = unsafe { std::mem::zeroed::<libc::ifreq>() };
    let bytes = name.to_bytes();
    if bytes.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    // Both flags are small.
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`, which outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result == 0 { Ok(fd) } else { Err(io::Error::last_os_error()) }
}
