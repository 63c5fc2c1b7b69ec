//! The local time, which only the C library knows.

#![allow(unsafe_code)] // localtime_r has no safe wrapper

/// A local date and time, without its year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Month, from 0 (January) to 11.
    pub month: i32,
    /// Day of the month, from 1 to 31.
    pub day: i32,
    /// Hour, from 0 to 23.
    pub hour: i32,
    /// Minute, from 0 to 59.
    pub minute: i32,
    /// Second, from 0 to 60 (a leap second).
    pub second: i32,
}

impl LocalTime {
    /// The local time at `unix_s` seconds since 1970.
    pub fn at(unix_s: i64) -> Self {
        // SAFETY: a `tm` consists of numbers and a pointer that may be null, so all zeros are valid; localtime_r reads
        // the time and writes the `tm`, both of which live here, and retains neither. If it fails, the zeros remain.
        let time = unsafe {
            let mut time: libc::tm = std::mem::zeroed();
            libc::localtime_r(&raw const unix_s, &raw mut time);
            time
        };
        Self { month: time.tm_mon, day: time.tm_mday, hour: time.tm_hour, minute: time.tm_min, second: time.tm_sec }
    }
}
