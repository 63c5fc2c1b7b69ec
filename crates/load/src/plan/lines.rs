//! Log lines as arrivals: the time and the client of each.

/// One line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLine {
    /// Time at which the line is due, in nanoseconds from the start.
    pub at_ns: u64,
    /// Number of the client, below [`ReplayLines::sessions`].
    pub session: u32,
    /// True if this is the client's last line, after which its connections are no longer needed.
    pub is_last: bool,
}

/// All lines of a replay, sorted by time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayLines {
    lines: Box<[ReplayLine]>,
    sessions: u32,
}

impl ReplayLines {
    /// Builds lines from pairs of a time in nanoseconds from the start and a client number.
    pub fn of(asked: impl IntoIterator<Item = (u64, u32)>) -> Self {
        let line = |(at_ns, session)| ReplayLine { at_ns, session, is_last: false };
        let mut lines: Box<[ReplayLine]> = asked.into_iter().map(line).collect();
        let sessions = lines.iter().map(|line| line.session.saturating_add(1)).max().unwrap_or(0);
        // Client numbers beyond the number of lines are rejected later; bound the allocation here.
        let mut goes_on = vec![false; (sessions as usize).min(lines.len())];
        for line in lines.iter_mut().rev() {
            if let Some(goes_on) = goes_on.get_mut(line.session as usize) {
                line.is_last = !*goes_on;
                *goes_on = true;
            }
        }
        Self { lines, sessions }
    }

    /// Checks that the lines are valid arrivals. Returns the problem as an error.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.lines.is_empty() {
            return Err("a replay needs at least one request".to_owned());
        }
        if self.sessions as usize > self.lines.len() {
            return Err(format!("a replay of {} requests cannot have {} sessions", self.lines.len(), self.sessions));
        }
        match self.lines.windows(2).position(|pair| pair[0].at_ns > pair[1].at_ns) {
            Some(index) => Err(format!("request {} of the replay is due before the previous one", index + 2)),
            None => Ok(()),
        }
    }

    /// Returns the line with this index.
    pub fn get(&self, number: u64) -> Option<ReplayLine> {
        self.lines.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the number of clients, each of which is a session.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Returns the time of the last line, in nanoseconds from the start.
    pub fn last_ns(&self) -> u64 {
        self.lines.last().map_or(0, |line| line.at_ns)
    }

    /// Returns the number of lines before `until_ns`.
    pub fn due_before(&self, until_ns: u64) -> usize {
        self.lines.partition_point(|line| line.at_ns < until_ns)
    }

    /// Returns the maximum number of lines within any span of this length.
    pub fn due_within(&self, span_ns: u64) -> u32 {
        let within = |(index, from): (usize, &ReplayLine)| {
            self.lines[index..].partition_point(|line| line.at_ns - from.at_ns < span_ns) as u32
        };
        self.lines.iter().enumerate().map(within).max().unwrap_or(0)
    }

    /// Returns the maximum number of concurrent sessions, if each lasts from its first line until `more_ns` after its
    /// last.
    pub fn sessions_at_once(&self, more_ns: u64) -> u32 {
        let mut has_begun = vec![false; (self.sessions as usize).min(self.lines.len())];
        let mut ends = self.lines.iter().filter(|line| line.is_last).peekable();
        let (mut at_once, mut most) = (0_u32, 0);
        for line in &self.lines {
            while ends.next_if(|end| end.at_ns.saturating_add(more_ns) < line.at_ns).is_some() {
                at_once -= 1;
            }
            if let Some(has_begun) = has_begun.get_mut(line.session as usize)
                && !std::mem::replace(has_begun, true)
            {
                at_once += 1;
                most = most.max(at_once);
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::ReplayLines;

    #[test]
    fn sessions_end_with_their_last_lines() {
        let lines = ReplayLines::of([(0, 0), (5, 1), (5, 0), (9, 2), (20, 1)]);
        let last: Vec<_> = (0..5).map(|number| lines.get(number).unwrap().is_last).collect();
        assert_eq!((last, lines.sessions(), lines.len()), (vec![false, false, true, true, true], 3, 5));
        assert_eq!((lines.get(5), lines.last_ns(), lines.due_before(9)), (None, 20, 3));
        assert_eq!([0, 5, 6, 10, 21].map(|span_ns| lines.due_within(span_ns)), [0, 3, 3, 4, 5]);
        // The third client starts just after, or just before, the first client's session has ended.
        assert_eq!((lines.sessions_at_once(3), lines.sessions_at_once(4), lines.sessions_at_once(u64::MAX)), (2, 3, 3));
    }

    #[test]
    fn what_is_no_replay_is_refused() {
        for (asked, reason) in [
            (&[][..], "at least one"),
            (&[(2, 0), (1, 0)], "request 2"),
            (&[(0, u32::MAX)], "cannot have 4294967295 sessions"),
        ] {
            let error = ReplayLines::of(asked.iter().copied()).check().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(ReplayLines::of([(1, 0), (1, 1)]).check(), Ok(()));
    }
}
