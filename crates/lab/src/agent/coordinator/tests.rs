use super::{
    AGENTS_MAX, AgentLoss, Coordinator, CoordinatorAction, GREETING_NS_MAX, LEAD_NS, PINGS, SILENCE_NS_MAX,
    UNAUTHENTICATED_MAX,
};
use crate::agent::message::{Message, PROTOCOL};
use serde_json::json;

const VERSION: &str = "1.2.3";

fn hello(name: &str) -> Message {
    Message::Hello { protocol: PROTOCOL.to_owned(), flatout: VERSION.to_owned(), name: name.to_owned(), cores: 2 }
}

/// A coordinator with a clock. The clock of each agent is ahead of it by as many seconds as the agent's number.
struct Field {
    coordinator: Coordinator,
    now_ns: u64,
}

impl Field {
    fn new(wanted: u32) -> Self {
        Self { coordinator: Coordinator::new(wanted, VERSION, json!({ "rate": 10 })), now_ns: 1_000 }
    }

    fn theirs_ns(&self, who: usize) -> u64 {
        self.now_ns + who as u64 * 1_000_000_000
    }

    fn say(&mut self, who: usize, message: Message) -> Vec<CoordinatorAction> {
        self.now_ns += 100;
        self.coordinator.handle_message(who, self.now_ns, message)
    }

    /// Connects an agent, which must not evict another connection.
    fn connect(&mut self) -> usize {
        let (who, orders) = self.coordinator.handle_connected(self.now_ns);
        assert!(orders.is_empty(), "{orders:?}");
        who
    }

    /// Connects, greets and replies to all pings; returns the actions after the last reply.
    fn join(&mut self, name: &str) -> (usize, Vec<CoordinatorAction>) {
        let who = self.connect();
        let mut orders = self.say(who, hello(name));
        assert_eq!(orders.remove(0), CoordinatorAction::Trust(who));
        for _ in 0..PINGS {
            let [CoordinatorAction::Say(to, Message::Ping { nonce })] = orders[..] else { panic!("{orders:?}") };
            assert_eq!(to, who);
            self.now_ns += 50;
            let at_ns = self.theirs_ns(who);
            self.now_ns += 50;
            orders = self.say(who, Message::Pong { nonce, at_ns });
        }
        (who, orders)
    }

    /// Creates a run with two agents that have started.
    fn running() -> Self {
        let mut field = Self::new(2);
        field.join("a");
        field.join("b");
        field.say(0, Message::Ready {});
        assert_eq!(field.say(1, Message::Ready {}).len(), 2);
        field
    }

    fn finish(&mut self, who: usize, late_ns: u64) {
        let begun_ns = self.coordinator.begins_ns().unwrap() + who as u64 * 1_000_000_000 + late_ns;
        assert!(self.say(who, Message::Done { begun_ns, facts: json!({ "who": who }) }).is_empty());
        let orders = self.coordinator.handle_record(who, self.now_ns, vec![who as u8]);
        assert_eq!(orders, [CoordinatorAction::Say(who, Message::Bye {}), CoordinatorAction::Dismiss(who)]);
    }
}

#[test]
fn all_begin_together_by_their_own_clocks_and_the_skew_is_told() {
    let mut field = Field::new(2);
    assert!(field.join("a").1.is_empty());
    let (_, orders) = field.join("b");
    let plan = |index| Message::Plan { index, agents: 2, task: json!({ "rate": 10 }) };
    assert_eq!(orders, [CoordinatorAction::Say(0, plan(0)), CoordinatorAction::Say(1, plan(1))]);
    assert!(field.say(1, Message::Ready {}).is_empty());
    let orders = field.say(0, Message::Ready {});
    let begins_ns = field.now_ns + LEAD_NS;
    assert_eq!(field.coordinator.begins_ns(), Some(begins_ns));
    for (who, order) in orders.iter().enumerate() {
        let CoordinatorAction::Say(to, Message::Go { at_ns }) = *order else { panic!("{order:?}") };
        // The replies took 200 ns, so half of that is the error bound.
        assert!(to == who && at_ns.abs_diff(begins_ns + who as u64 * 1_000_000_000) <= 100, "{order:?}");
    }
    field.finish(1, 0);
    assert!(!field.coordinator.is_over());
    field.finish(0, 5_000);
    assert!(field.coordinator.is_over());
    let results = field.coordinator.into_results();
    assert_eq!(results.iter().map(|result| result.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((&results[1].record, &results[1].facts), (&vec![1], &json!({ "who": 1 })));
    assert!(results.iter().all(|result| result.lost.is_none() && result.skew_error_ns_max <= 100));
    assert!((results[0].skew_ns.unwrap() - 5_000).abs() <= 100, "{results:?}");
    assert!(results[1].skew_ns.unwrap().abs() <= 100);
}

#[test]
fn an_agent_lost_before_work_is_replaced() {
    let mut field = Field::new(2);
    let (first, _) = field.join("a");
    field.coordinator.handle_lost(first, AgentLoss::Closed, "");
    assert_eq!(field.coordinator.here(), 0);
    field.join("b");
    let (_, orders) = field.join("c");
    assert_eq!(orders.len(), 2);
    assert_eq!(field.coordinator.turned_away().collect::<Vec<_>>(), [("a", AgentLoss::Closed, "")]);
    // An agent that connects when the run already has all its agents is rejected for this reason.
    let late = field.connect();
    let orders = field.say(late, hello("d"));
    assert!(
        matches!(&orders[..], [CoordinatorAction::Say(to, Message::Failed { .. }), CoordinatorAction::Dismiss(_)] if *to == late)
    );
}

#[test]
fn short_connections_do_not_accumulate_memory() {
    let mut field = Field::new(1);
    for _ in 0..3 * AGENTS_MAX {
        let who = field.connect();
        field.coordinator.handle_lost(who, AgentLoss::Closed, "");
    }
    assert_eq!(field.coordinator.agents.len(), AGENTS_MAX);
    assert_eq!(field.coordinator.here(), 0);
    assert_eq!(field.join("late").1.len(), 1);
}

#[test]
fn a_peer_that_never_authenticates_is_rejected() {
    let mut field = Field::new(1);
    let drip = field.connect();
    for _ in 1..10 {
        field.now_ns += GREETING_NS_MAX / 10;
        field.coordinator.handle_bytes(drip, field.now_ns);
        assert!(field.coordinator.handle_time(field.now_ns).is_empty());
    }
    field.now_ns += GREETING_NS_MAX / 10;
    field.coordinator.handle_bytes(drip, field.now_ns);
    assert!(field.coordinator.handle_time(field.now_ns).contains(&CoordinatorAction::Dismiss(drip)));
    assert_eq!(field.coordinator.turned_away().collect::<Vec<_>>(), [("", AgentLoss::Unnamed, "")]);
}

#[test]
fn unauthenticated_peers_take_no_place_from_an_agent() {
    let mut field = Field::new(2);
    let (first_agent, _) = field.join("a");
    let unauthenticated: Vec<usize> = (0..UNAUTHENTICATED_MAX)
        .map(|_| {
            field.now_ns += 1;
            field.connect()
        })
        .collect();
    // The oldest connections are evicted first, and the agents stay.
    for expected in unauthenticated.iter().take(3) {
        field.now_ns += 1;
        let (_, orders) = field.coordinator.handle_connected(field.now_ns);
        assert!(orders.contains(&CoordinatorAction::Dismiss(*expected)), "{expected} {orders:?}");
    }
    field.coordinator.handle_lost(unauthenticated[9], AgentLoss::Closed, "");
    let (_, orders) = field.join("b");
    assert_eq!((orders.len(), field.coordinator.here(), first_agent), (2, 2, 0));
    assert_eq!(field.coordinator.turned_away().filter(|(_, loss, _)| *loss == AgentLoss::TooManyPeers).count(), 3);
}

#[test]
fn a_lost_agent_is_in_the_result() {
    let mut field = Field::running();
    field.coordinator.handle_lost(0, AgentLoss::Closed, "reset");
    assert!(!field.coordinator.is_over());
    field.finish(1, 0);
    assert!(field.coordinator.is_over());
    let results = field.coordinator.into_results();
    assert_eq!(results[0].lost, Some((AgentLoss::Closed, "reset".to_owned())));
    assert_eq!(results[1].lost, None);
}

#[test]
fn one_lost_between_work_and_beginning_ends_it_for_all() {
    let mut field = Field::new(2);
    field.join("a");
    field.join("b");
    field.say(0, Message::Ready {});
    let orders = field.say(1, Message::Failed { text: "no such file".to_owned() });
    assert!(
        orders.contains(&CoordinatorAction::Dismiss(0)) && orders.contains(&CoordinatorAction::Dismiss(1)),
        "{orders:?}"
    );
    assert!(field.coordinator.is_over() && field.coordinator.begins_ns().is_none());
    assert_eq!(field.coordinator.into_results()[1].lost, Some((AgentLoss::Failed, "no such file".to_owned())));
}

#[test]
fn silent_agents_are_pinged_and_then_lost() {
    let mut field = Field::running();
    field.now_ns += SILENCE_NS_MAX / 2;
    let orders = field.coordinator.handle_time(field.now_ns);
    let [CoordinatorAction::Say(0, Message::Ping { nonce }), CoordinatorAction::Say(1, Message::Ping { .. })] =
        orders[..]
    else {
        panic!("{orders:?}")
    };
    assert!(field.coordinator.handle_time(field.now_ns).is_empty(), "one question is enough");
    let at_ns = field.theirs_ns(0);
    assert!(field.say(0, Message::Pong { nonce, at_ns }).is_empty());
    field.now_ns += SILENCE_NS_MAX / 2;
    let orders = field.coordinator.handle_time(field.now_ns);
    assert!(
        orders.contains(&CoordinatorAction::Dismiss(1)) && !orders.contains(&CoordinatorAction::Dismiss(0)),
        "{orders:?}"
    );
    // An agent that sends a long record is not silent.
    field.coordinator.handle_bytes(0, field.now_ns);
    field.now_ns += SILENCE_NS_MAX - 1;
    assert!(!field.coordinator.handle_time(field.now_ns).contains(&CoordinatorAction::Dismiss(0)));
}

#[test]
fn an_unexpected_message_ends_the_connection() {
    let unauthenticated = |message: Message| {
        let mut field = Field::new(1);
        let who = field.connect();
        field.say(who, message);
        field.coordinator.turned_away().map(|(_, loss, _)| loss).collect::<Vec<_>>()
    };
    assert_eq!(unauthenticated(Message::Ready {}), [AgentLoss::OutOfTurn]);
    let hello = |protocol: &str, flatout: &str| Message::Hello {
        protocol: protocol.to_owned(),
        flatout: flatout.to_owned(),
        name: String::new(),
        cores: 1,
    };
    assert_eq!(unauthenticated(hello("flatout-agent/2", VERSION)), [AgentLoss::OtherVersion]);
    assert_eq!(unauthenticated(hello(PROTOCOL, "9.9.9")), [AgentLoss::OtherVersion]);

    let mut field = Field::running();
    field.say(0, Message::Pong { nonce: 999, at_ns: 0 });
    field.coordinator.handle_record(1, field.now_ns, vec![1]);
    assert!(field.coordinator.is_over());
    assert!(
        field.coordinator.into_results().iter().all(|result| matches!(result.lost, Some((AgentLoss::OutOfTurn, _))))
    );
}

#[test]
fn stopping_reaches_running_agents_and_names_are_printable() {
    let mut field = Field::running();
    assert_eq!(
        field.coordinator.stop(),
        [CoordinatorAction::Say(0, Message::Stop {}), CoordinatorAction::Say(1, Message::Stop {})]
    );
    let mut field = Field::new(1);
    let (who, _) = field.join("evil\x1b[2J\nname");
    assert_eq!(field.coordinator.agents[who].name, r"evil\u{1b}[2J\u{a}name");
    field.say(who, Message::Failed { text: "\u{9b}31m\u{202e}".to_owned() });
    assert_eq!(field.coordinator.agents[who].words, r"\u{9b}31m\u{202e}");
}
