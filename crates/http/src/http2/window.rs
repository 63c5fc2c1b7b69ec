//! Sizes of flow-control windows (RFC 9113 §5.2): as large as the bandwidth-delay product, which is the most a peer can
//! have in flight, and no larger.
//!
//! A probe is a PING sent when content is consumed; its acknowledgement measures one round trip. If a stream or the
//! connection consumed about its whole window in that time, at a higher rate than ever before, the window was the
//! bottleneck and is doubled. If growth brings no gain, probes become rare.
//!
//! Absent by design: the clock, frames and memory limits. Times are arguments, and sizes are results.

/// Maximum window of a stream, in bytes.
pub const WINDOW_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Maximum interval between two probes, in microseconds.
const PAUSE_US_MAX: u64 = 10_000_000;

/// Number of bytes consumed on one stream during a probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCount {
    probe: u32,
    bytes: u64,
}

/// Window sizes of one connection, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Window of each stream: SETTINGS_INITIAL_WINDOW_SIZE.
    pub stream: u32,
    /// Window of the connection.
    pub connection: u32,
}

/// Estimates the best window sizes of one connection.
#[derive(Clone, Debug)]
pub struct WindowEstimator {
    windows: Windows,
    /// Number of the current probe.
    probe: u32,
    /// Time at which the current probe was sent, or `None` if no probe is in progress.
    sent_us: Option<u64>,
    /// Bytes consumed since the current probe was sent: in total, and on the stream with the most.
    total_bytes: u64,
    stream_bytes: u64,
    /// Highest rate measured, in bytes per second. It decays slowly.
    rate_max: u64,
    /// Earliest time at which the next probe may begin.
    next_us: u64,
    pause_us: u64,
}

impl WindowEstimator {
    /// Creates an estimator for a connection with the initial sizes `windows`.
    pub const fn new(windows: Windows) -> Self {
        Self { windows, probe: 0, sent_us: None, total_bytes: 0, stream_bytes: 0, rate_max: 0, next_us: 0, pause_us: 0 }
    }

    /// Returns the current target sizes of the windows.
    pub const fn windows(&self) -> Windows {
        self.windows
    }

    /// Records that `bytes` from a stream were consumed, so that the peer may send as many again. Returns whether to
    /// send a PING now, with which a probe begins.
    pub fn handle_taken(&mut self, stream: &mut StreamCount, bytes: u64, now_us: u64) -> bool {
        let begins = self.sent_us.is_none() && now_us >= self.next_us;
        if begins {
            self.probe = self.probe.wrapping_add(1);
            self.sent_us = Some(now_us);
            self.total_bytes = 0;
            self.stream_bytes = 0;
        }
        if stream.probe != self.probe {
            *stream = StreamCount { probe: self.probe, bytes: 0 };
        }
        stream.bytes = stream.bytes.saturating_add(bytes);
        self.stream_bytes = self.stream_bytes.max(stream.bytes);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        begins
    }

    /// Handles the acknowledgement of a PING. `announced` are the windows last sent to the peer. Returns whether the
    /// windows should grow.
    pub fn handle_acknowledged(&mut self, announced: Windows, now_us: u64) -> bool {
        let Some(sent_us) = self.sent_us.take() else { return false };
        let round_trip_us = now_us.saturating_sub(sent_us).max(1);
        let rate = self.total_bytes.saturating_mul(1_000_000) / round_trip_us;
        // A rise of less than one eighth may be chance.
        let rises = rate > self.rate_max.saturating_add(self.rate_max / 8);
        // Forget old measurements slowly, because a path may improve again.
        self.rate_max = rate.max(self.rate_max - self.rate_max / 8);
        let before = self.windows;
        if rises {
            self.pause_us = 0;
            self.windows = Windows {
                stream: grown(before.stream, announced.stream, self.stream_bytes),
                connection: grown(before.connection, announced.connection, self.total_bytes),
            };
        } else {
            self.pause_us = self.pause_us.saturating_mul(2).clamp(round_trip_us.min(PAUSE_US_MAX), PAUSE_US_MAX);
        }
        self.next_us = now_us.saturating_add(self.pause_us);
        self.windows != before
    }
}

/// Returns the new size of a window after a round trip in which `taken` bytes were consumed, given the `announced`
/// size.
fn grown(window: u32, announced: u32, taken: u64) -> u32 {
    if taken.saturating_mul(3) < u64::from(announced) * 2 {
        return window;
    }
    let doubled = taken.saturating_mul(2).min(u64::from(WINDOW_BYTES_MAX));
    window.max(u32::try_from(doubled).unwrap_or(WINDOW_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::{StreamCount, WINDOW_BYTES_MAX, WindowEstimator, Windows};
    use std::collections::VecDeque;

    const START: Windows = Windows { stream: 65_535, connection: 256 * 1024 };

    /// A frame on its way between the sender and the receiver.
    enum Travels {
        Data(usize, u64),
        Ping,
        Acknowledgement,
        /// Credit for a stream and for the connection, in bytes.
        Room(usize, u64),
        /// New windows: the number of bytes that each stream and the connection gain.
        Growth(u64, u64),
    }

    /// A simulated connection: a sender that sends as fast as permitted, a path with a bandwidth in bytes per
    /// millisecond and a round-trip time, and a receiver.
    struct Path {
        bytes_per_ms: u64,
        round_trip_ms: u64,
        streams: usize,
        /// Bytes per millisecond that the receiver consumes.
        taken_per_ms: u64,
    }

    /// Returns the milliseconds until `bytes` have arrived on each stream, the windows at that time, and the number of
    /// PINGs. Windows stay fixed unless `adapts`.
    fn transfer(path: &Path, bytes: u64, adapts: bool) -> (u64, Windows, u32) {
        let half_ms = path.round_trip_ms / 2;
        let mut estimator = WindowEstimator::new(START);
        let (mut told, mut pings) = (START, 0);
        let mut counts = vec![StreamCount::default(); path.streams];
        let mut room = vec![u64::from(START.stream); path.streams];
        let mut connection_room = u64::from(START.connection);
        let mut unsent = vec![bytes; path.streams];
        let mut untaken = bytes * path.streams as u64;
        let (mut to_us, mut to_sender) = (VecDeque::new(), VecDeque::new());
        let mut buffered: VecDeque<(usize, u64)> = VecDeque::new();
        for now_ms in 0..1_000_000 {
            while to_sender.front().is_some_and(|(at, _)| *at <= now_ms) {
                match to_sender.pop_front().unwrap().1 {
                    Travels::Ping => to_us.push_back((now_ms + half_ms, Travels::Acknowledgement)),
                    Travels::Room(stream, bytes) => {
                        let stream: usize = stream;
                        room[stream] += bytes;
                        connection_room += bytes;
                    }
                    Travels::Growth(each, connection) => {
                        for room in &mut room {
                            *room += each;
                        }
                        connection_room += connection;
                    }
                    _ => unreachable!(),
                }
            }
            let mut left = path.bytes_per_ms;
            for stream in 0..path.streams {
                let most = left.min(unsent[stream]).min(room[stream].min(connection_room));
                if most > 0 {
                    to_us.push_back((now_ms + half_ms, Travels::Data(stream, most)));
                    unsent[stream] -= most;
                    left -= most;
                    room[stream] -= most;
                    connection_room -= most;
                }
            }
            while to_us.front().is_some_and(|(at, _)| *at <= now_ms) {
                match to_us.pop_front().unwrap().1 {
                    Travels::Data(stream, bytes) => buffered.push_back((stream, bytes)),
                    Travels::Acknowledgement if estimator.handle_acknowledged(told, now_ms * 1000) => {
                        let windows = estimator.windows();
                        let each = u64::from(windows.stream - told.stream);
                        let connection = u64::from(windows.connection - told.connection);
                        to_sender.push_back((now_ms + half_ms, Travels::Growth(each, connection)));
                        told = windows;
                    }
                    _ => {}
                }
            }
            let mut may_take = path.taken_per_ms;
            while let Some((stream, bytes)) = buffered.front_mut()
                && may_take > 0
            {
                let taken = may_take.min(*bytes);
                let stream = *stream;
                may_take -= taken;
                *bytes -= taken;
                untaken -= taken;
                if *bytes == 0 {
                    buffered.pop_front();
                }
                to_sender.push_back((now_ms + half_ms, Travels::Room(stream, taken)));
                if adapts && estimator.handle_taken(&mut counts[stream], taken, now_ms * 1000) {
                    pings += 1;
                    to_sender.push_back((now_ms + half_ms, Travels::Ping));
                }
            }
            if untaken == 0 {
                return (now_ms, estimator.windows(), pings);
            }
        }
        panic!("it never ended");
    }

    const MB: u64 = 1_000_000;

    /// A path with 50 ms and 2 Gbit/s.
    const FAR: Path = Path { bytes_per_ms: 250_000, round_trip_ms: 50, streams: 1, taken_per_ms: u64::MAX };

    #[test]
    fn twenty_megabytes_from_fifty_milliseconds_away_take_a_second_and_not_sixteen() {
        let (fixed_ms, windows, _) = transfer(&FAR, 20 * MB, false);
        assert!(fixed_ms > 15_000 && windows == START, "{fixed_ms} ms");
        let (adapting_ms, windows, pings) = transfer(&FAR, 20 * MB, true);
        assert!(adapting_ms < 1_000, "{adapting_ms} ms, {windows:?}");
        assert!(windows.stream <= WINDOW_BYTES_MAX && windows.connection <= WINDOW_BYTES_MAX, "{windows:?}");
        assert!(pings < 20, "{pings}");
    }

    #[test]
    fn windows_stay_near_the_product_of_bandwidth_and_delay() {
        // 10 MB/s and 50 ms: at most 500 kB are in flight.
        let path = Path { bytes_per_ms: 10_000, ..FAR };
        let (ms, windows, pings) = transfer(&path, 40 * MB, true);
        assert!(ms < 5_500, "{ms} ms");
        assert!((500_000..=2_000_000).contains(&windows.stream), "{windows:?}");
        assert!(pings < 40, "{pings}");
        // A path that the initial windows already saturate needs no larger windows.
        let path = Path { bytes_per_ms: 1_000, ..FAR };
        let (_, windows, _) = transfer(&path, 10 * MB, true);
        assert!(windows.stream <= 2 * START.stream, "{windows:?}");
    }

    #[test]
    fn a_slow_reader_gets_no_larger_window() {
        let path = Path { taken_per_ms: 200, ..FAR };
        let (_, windows, _) = transfer(&path, 4 * MB, true);
        assert_eq!(windows, START);
    }

    #[test]
    fn many_streams_share_a_larger_connection() {
        let path = Path { streams: 20, ..FAR };
        let (ms, windows, _) = transfer(&path, 2 * MB, true);
        assert!(ms < 1_000, "{ms} ms");
        assert!(windows.connection > 2 * MB as u32 && windows.stream < windows.connection, "{windows:?}");
    }

    #[test]
    fn an_acknowledgement_that_nobody_waits_for_changes_nothing() {
        let mut estimator = WindowEstimator::new(START);
        assert!(!estimator.handle_acknowledged(START, 5));
        let mut count = StreamCount::default();
        assert!(estimator.handle_taken(&mut count, u64::MAX, u64::MAX));
        assert!(!estimator.handle_taken(&mut count, u64::MAX, 0), "one probe at a time");
        assert!(estimator.handle_acknowledged(START, 0));
        assert_eq!(estimator.windows(), Windows { stream: WINDOW_BYTES_MAX, connection: WINDOW_BYTES_MAX });
    }
}
