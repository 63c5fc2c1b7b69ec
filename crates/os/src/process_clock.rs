//! The CPU clock of another process.

#![allow(unsafe_code)] // the standard library and rustix know the clock of this process alone

use std::io;
use std::mem::MaybeUninit;

/// CPU time used by a process in all its threads, including those that have exited, in nanoseconds.
///
/// # Errors
/// If the process does not exist, or the kernel does not permit reading its clock.
pub fn process_cpu_ns(pid: u32) -> io::Result<u64> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` has room for one clock ID and outlives the call.
    let code = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if code != 0 {
        // This call returns its error and does not set errno.
        return Err(io::Error::from_raw_os_error(code));
    }
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` has room for one time and outlives the call.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has written the time.
    let time = unsafe { time.assume_init() };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    Ok(seconds.unwrap_or(0) * 1_000_000_000 + nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::process_cpu_ns;

    #[test]
    fn cpu_time_includes_threads_that_have_ended() {
        let before = process_cpu_ns(std::process::id()).unwrap();
        let used = std::thread::spawn(|| {
            let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec;
            let mut sum = 0_u64;
            while own() < 20_000_000 {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
            own().cast_unsigned()
        });
        let used = used.join().unwrap();
        assert!(process_cpu_ns(std::process::id()).unwrap() - before >= used);
        assert!(process_cpu_ns(u32::MAX).is_err());
    }
}
