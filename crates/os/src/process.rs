//! Properties of the process: its user and group, and its inherited descriptors.

#![allow(unsafe_code)] // identities and inherited descriptors, which no safe wrapper offers

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Numeric user and group IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

/// Takes ownership of an inherited descriptor and sets close-on-exec on it.
///
/// # Errors
/// If the descriptor does not exist or is a standard stream.
///
/// Each number must be taken at most once, and at startup, before the process could have reused it.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    const STANDARD_STREAMS: RawFd = 3;
    if number < STANDARD_STREAMS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the borrow is used for two calls only, which fail if nothing is open under that number.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(borrowed)?;
    // All descriptors that this process has opened, through the standard library or directly, are close-on-exec. Any
    // others were inherited.
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open, was not opened by this process, and the flag that was just set keeps a second
    // call from taking it again, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Looks up a user by name. Returns the user's ID and primary group, or `None` if there is no such user.
///
/// # Errors
/// If the system's user database cannot be read.
pub fn find_user(name: &str) -> io::Result<Option<Identity>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut found: *mut libc::passwd = ptr::null_mut();
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let uid_gid = with_buffer(|buffer| {
        // SAFETY: all pointers point to memory that outlives the call, and the length is the buffer's.
        let error = unsafe {
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        (error, !found.is_null())
    })?;
    // SAFETY: when getpwnam_r sets the pointer to the entry, it has filled in the entry; only plain numbers are read.
    Ok(uid_gid.then(|| unsafe { Identity { uid: (*entry.as_ptr()).pw_uid, gid: (*entry.as_ptr()).pw_gid } }))
}

/// Looks up the ID of a group by name. Returns `None` if there is no such group.
///
/// # Errors
/// If the system's group database cannot be read.
pub fn find_group(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut found: *mut libc::group = ptr::null_mut();
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let is_found = with_buffer(|buffer| {
        // SAFETY: as in `find_user`.
        let error = unsafe {
            libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        (error, !found.is_null())
    })?;
    // SAFETY: as in `find_user`.
    Ok(is_found.then(|| unsafe { (*entry.as_ptr()).gr_gid }))
}

/// Calls `look_up` with larger and larger buffers until the entry fits.
fn with_buffer(mut look_up: impl FnMut(&mut [libc::c_char]) -> (libc::c_int, bool)) -> io::Result<bool> {
    // A group may have many members, but none needs more than a megabyte.
    const BYTES_MAX: usize = 1024 * 1024;
    let mut buffer: Vec<libc::c_char> = vec![0; 4096];
    loop {
        match look_up(&mut buffer) {
            (0, found) => return Ok(found),
            // Some databases report "not found" like this.
            (libc::ENOENT | libc::ESRCH, _) => return Ok(false),
            (libc::EINTR, _) => {}
            (libc::ERANGE, _) if buffer.len() < BYTES_MAX => buffer.resize(buffer.len() * 4, 0),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Switches to `identity` permanently, on all threads and without supplementary groups, then verifies that switching
/// back fails.
///
/// # Errors
/// If the kernel refuses, or would permit switching back. The process must then exit: its identity may be mixed.
pub fn become_user(identity: Identity) -> io::Result<()> {
    let Identity { uid, gid } = identity;
    let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: plain numbers, and a pointer to one group ID that is read during the call. The C library applies the
    // change to all threads.
    unsafe {
        check(libc::setgroups(1, &raw const gid))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    // SAFETY: as above. Root (0) may always switch back, so this check is skipped if the new user is root.
    let came_back = uid != 0 && unsafe { libc::setuid(0) == 0 || libc::setgid(0) == 0 && gid != 0 };
    if came_back { Err(io::Error::other("the process could still become root again")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{find_group, find_user, take_inherited};
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn users_and_groups_are_found_by_name() {
        assert_eq!(find_user("root").unwrap().unwrap().uid, 0);
        assert_eq!(find_group("root").unwrap(), Some(0));
        for unknown in ["", "no such user here", "a\0b"] {
            assert_eq!(find_user(unknown).unwrap(), None);
            assert_eq!(find_group(unknown).unwrap(), None);
        }
    }

    #[test]
    fn inherited_descriptors_are_taken_once() {
        // Without the flag it is as if it had been there before us.
        let inherited = rustix::io::dup(std::io::stdin()).unwrap().into_raw_fd();
        let taken = take_inherited(inherited).unwrap();
        assert_eq!(taken.as_raw_fd(), inherited);
        assert!(take_inherited(inherited).is_err());
        assert!(take_inherited(0).is_err() && take_inherited(-1).is_err() && take_inherited(1_000_000).is_err());
    }
}
