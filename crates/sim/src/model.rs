//! When a simulated server responds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A kind of server. Times are nanoseconds, services at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Every response takes equally long, however many requests are in progress.
    Constant {
        /// Its duration.
        service_ns: u64,
    },
    /// Every `slow_one_in`th response takes longer, however many requests are in progress.
    Bimodal {
        /// Duration of the other responses.
        fast_ns: u64,
        /// Duration of a slow response.
        slow_ns: u64,
        /// At least 1.
        slow_one_in: u64,
    },
    /// The server does nothing in the last `stall_ns` of every `period_ns`; otherwise as `Constant`.
    Stall {
        /// Duration of a response outside a stall.
        service_ns: u64,
        /// Time from the end of one stall to the end of the next, longer than the stall.
        period_ns: u64,
        /// Duration of a stall.
        stall_ns: u64,
    },
    /// A fixed number of workers; further requests wait in a queue.
    Workers {
        /// At least 1.
        workers: u32,
        /// Duration of each response.
        service_ns: u64,
    },
}

/// A server and its state.
#[derive(Clone, Debug)]
pub struct Server {
    model: Model,
    answered: u64,
    /// When each worker is free, earliest first.
    free_ns: BinaryHeap<Reverse<u64>>,
}

impl Server {
    /// A server without requests so far.
    pub fn new(model: Model) -> Self {
        let workers = if let Model::Workers { workers, .. } = model { workers } else { 0 };
        Self { model, answered: 0, free_ns: (0..workers).map(|_| Reverse(0)).collect() }
    }

    /// The time of the response to a request that arrives at `now_ns`. Call it in the order of arrival.
    pub fn answer_ns(&mut self, now_ns: u64) -> u64 {
        self.answered += 1;
        match self.model {
            Model::Constant { service_ns } => now_ns + service_ns,
            Model::Bimodal { fast_ns, slow_ns, slow_one_in } => {
                now_ns + if self.answered.is_multiple_of(slow_one_in) { slow_ns } else { fast_ns }
            }
            Model::Stall { service_ns, period_ns, stall_ns } => {
                let working_ns = period_ns - stall_ns;
                // Time as the server's work sees it: periods have `working_ns`, and a stall is the end of one.
                let worked_ns = now_ns / period_ns * working_ns + (now_ns % period_ns).min(working_ns) + service_ns;
                // What is done exactly when a stall begins is out before it.
                (worked_ns - 1) / working_ns * period_ns + (worked_ns - 1) % working_ns + 1
            }
            Model::Workers { service_ns, .. } => {
                let free_ns = self.free_ns.pop().map_or(0, |Reverse(free_ns)| free_ns);
                let answer_ns = now_ns.max(free_ns) + service_ns;
                self.free_ns.push(Reverse(answer_ns));
                answer_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Model, Server};

    #[test]
    fn each_model_answers_as_it_says() {
        let answers = |model: Model, times: &[u64]| {
            let mut server = Server::new(model);
            times.iter().map(|now_ns| server.answer_ns(*now_ns)).collect::<Vec<_>>()
        };
        assert_eq!(answers(Model::Constant { service_ns: 5 }, &[0, 1, 1, 100]), [5, 6, 6, 105]);
        let bimodal = Model::Bimodal { fast_ns: 1, slow_ns: 9, slow_one_in: 3 };
        assert_eq!(answers(bimodal, &[0, 0, 0, 0, 0, 0]), [1, 1, 9, 1, 1, 9]);
        // Works from 0 to 20, stalls from 20 to 30, and so on.
        let stall = Model::Stall { service_ns: 2, period_ns: 30, stall_ns: 10 };
        assert_eq!(answers(stall, &[0, 17, 18, 19, 20, 25, 29, 30, 49]), [2, 19, 20, 31, 32, 32, 32, 32, 61]);
        let workers = Model::Workers { workers: 2, service_ns: 10 };
        assert_eq!(answers(workers, &[0, 0, 0, 1, 100]), [10, 10, 20, 20, 110]);
    }
}
