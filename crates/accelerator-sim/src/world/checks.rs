//! The invariants.

use super::{PurgeScope, World};
use crate::oracle::{Circumstances, check_reuse, check_shown_age};
use crate::origin::Sent;
use crate::reader::Head;
use crate::scenario::Method;
use flatout_handler::budget::BudgetUser;
use flatout_server::counters::Counters;

impl World {
    /// Applies the effects of a complete response on a visitor.
    pub(super) fn learn(&mut self, serial: u32, head: &Head, order: u64) {
        let Some(request) = self.scenario.request(serial).cloned() else { return };
        if let Some(tag) = head.field("etag") {
            self.tags.insert((request.visitor, request.resource), tag.to_owned());
        }
        // RFC 9111 §4.4: the response invalidates what was stored before.
        if request.method == Method::Post
            && head.status < 400
            && let Some(sent) = self.sent_of(head)
        {
            let scope = PurgeScope::Resource(request.resource);
            self.purges.push((scope, order, sent.asked_order));
        }
    }

    pub(super) fn sent_of(&self, head: &Head) -> Option<Sent> {
        let id: usize = head.field("x-id")?.parse().ok()?;
        self.origin.sent.get(id).cloned()
    }

    pub(super) fn check_head(&mut self, index: usize, serial: u32) {
        let Some(head) = self.clients[index].reader.head.clone() else { return };
        let Some(asked) = self.asked.get(&serial).cloned() else { return };
        let Some(id) = head.field("x-id") else {
            let is_ours = matches!(head.status, 304 | 400 | 408 | 412 | 416 | 500..=504);
            if !is_ours {
                self.fail(serial, format!("no origin sent this response with status {}", head.status));
            }
            return;
        };
        let Some(sent) = self.sent_of(&head) else {
            return self.fail(serial, format!("the origin never sent this response: {id}"));
        };
        if sent.content.resource != asked.request.resource {
            return self.fail(serial, format!("the response belongs to resource {}", sent.content.resource));
        }
        let shown_s = head.field("age").map_or(0, |age| age.parse().unwrap_or(-1));
        if self.stepped_order < sent.first_asked.1
            && let Err(rule) = check_shown_age(shown_s, &asked, &sent, self.now_ms)
        {
            return self.fail(serial, format!("{rule} (response {id} to request {})", sent.serial));
        }
        let tag = self.clients[index].waiting.front().map_or("", |waiting| waiting.tag.as_str());
        let is_required = head.status == 304 || head.status == 206 && !tag.is_empty();
        if is_required && tag != sent.content.tag() {
            let rule = format!("status {} for `{}`, but the visitor has `{tag}`", head.status, sent.content.tag());
            return self.fail(serial, rule);
        }
        if sent.serial == serial {
            return;
        }
        self.figures.shared += 1;
        let covers = |scope: &PurgeScope| match scope {
            PurgeScope::Resource(resource) => *resource == sent.content.resource,
            PurgeScope::Group(group) => *group == sent.group,
            PurgeScope::All => true,
        };
        let covering = |purges: &[(PurgeScope, u64, u64)]| {
            let covering = purges.iter().filter(|(scope, _, _)| covers(scope));
            covering.map(|(_, done, before)| (*done, *before)).collect::<Vec<_>>()
        };
        let purges = covering(&self.purges);
        let is_before = |(done, before): &(u64, u64)| asked.begun_order > *done && sent.born_order < *before;
        let circumstances = Circumstances {
            settings: &self.scenario.settings,
            purges: &purges,
            is_expired: covering(&self.expiries).iter().any(is_before),
            has_failed: self.origin.has_failed_since(sent.content.resource, asked.begun_order),
            is_hanging: false,
            was_set_back: self.set_back_order > sent.asked_order,
            is_confirmed: self.origin.sent.iter().any(|other| {
                (other.serial == serial || other.born_order >= asked.begun_order)
                    && other.status == 304
                    && other.content == sent.content
            }),
        };
        let mut checked = check_reuse(&asked, &sent, circumstances);
        let resource = sent.content.resource;
        if checked.is_err() && (self.origin.has_hung(resource, asked.begun_ms) || self.is_hanging(resource)) {
            self.owed.push((serial, resource, self.now_ms));
            checked = check_reuse(&asked, &sent, Circumstances { is_hanging: true, ..circumstances });
        }
        if let Err(rule) = checked {
            let rule = format!("{rule} (response {id} to request {}, control {:?})", sent.serial, sent.control);
            self.fail(serial, rule);
        }
    }

    /// Returns true if the origin has a request for `resource` that hangs.
    fn is_hanging(&self, resource: usize) -> bool {
        self.origins.iter().any(|origin| {
            let is_waiting = origin.is_busy && origin.end.stream.is_some() && origin.received.resource() == resource;
            is_waiting && self.origin.hangs(origin.received.serial(), self.now_ms)
        })
    }

    /// Checks content, complete or as far as it has arrived.
    pub(super) fn check_content(&mut self, index: usize, serial: u32, is_complete: bool) {
        let reader = &self.clients[index].reader;
        let Some(head) = reader.head.clone() else { return };
        let body = reader.arrived();
        let Some(sent) = self.sent_of(&head) else {
            if String::from_utf8_lossy(&body).contains("<resource") {
                self.fail(serial, "content of the origin without its header fields");
            }
            return;
        };
        let is_to_head = self.scenario.request(serial).is_some_and(|request| request.method == Method::Head);
        if is_to_head || head.status == 304 {
            return;
        }
        let all = sent.content.bytes();
        let range = head.field("content-range").filter(|_| head.status == 206);
        let expected = match range.map(|range| parse_range(range, all.len())) {
            None => &all[..],
            Some(Some((first, last))) => &all[first..=last],
            Some(None) => return self.fail(serial, format!("Content-Range: {range:?} of {} bytes", all.len())),
        };
        let is_right = if is_complete { body == expected } else { expected.starts_with(&body) };
        if !is_right {
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            let rule = format!("wrong content: {} bytes, {} expected, {shown:?}, {head:?}", body.len(), expected.len());
            self.fail(serial, rule);
        }
    }

    /// The invariants that hold whenever the worker rests.
    pub(super) fn check_budgets(&mut self) {
        let budget = self.accelerator.budget();
        let (stored, bound) = (budget.held(BudgetUser::Stored), budget.bytes_max());
        if stored > bound {
            return self.fail(0, format!("{stored} bytes are stored, but only {bound} are allowed"));
        }
        let Some(stats) = self.accelerator.store().map(|store| store.stats()) else { return };
        let most = self.scenario.settings.objects_max;
        if stats.memory_objects > most {
            self.fail(0, format!("{} responses are stored, but only {most} are allowed", stats.memory_objects));
        }
        self.figures.evicted = stats.evicted;
    }

    /// The invariants that hold at the end.
    pub(super) fn check_end(&mut self, counters: &Counters) {
        let owed = self.owed.iter().find(|(_, resource, at_ms)| !self.origin.was_asked(*resource, *at_ms));
        if let Some((serial, ..)) = owed.copied() {
            return self.fail(serial, "the response is stale, but no attempt was made within 30 seconds to replace it");
        }
        let budget = self.accelerator.budget();
        // This counts what clients have read since as given back.
        let _ = self.accelerator.store().map(|store| store.stats());
        for user in BudgetUser::ALL.iter().filter(|user| **user != BudgetUser::Stored) {
            let held = budget.held(*user);
            if held > 0 {
                return self
                    .fail(0, format!("{held} bytes reserved for `{}` were never returned to the budget", user.name()));
            }
        }
        let counted = counters.requests.get();
        let outcomes: u64 = counters.outcomes.iter().map(flatout_os::counter::Counter::get).sum();
        let classes: u64 = counters.status_classes.iter().map(flatout_os::counter::Counter::get).sum();
        if self.irregular == 0 && counted != self.figures.requests {
            return self.fail(0, format!("{} requests were sent, but {counted} were counted", self.figures.requests));
        }
        if counted < self.heads || counted > self.figures.requests {
            return self.fail(0, format!("{counted} requests were counted, but {} responses arrived", self.heads));
        }
        if classes != counted || outcomes > counted {
            self.fail(0, format!("{counted} requests, but {outcomes} outcomes and {classes} statuses"));
        }
        let received: u64 = self.accelerator.origin_counts().iter().map(|counts| counts.responses.get()).sum();
        if received > self.figures.origin_responses {
            let sent = self.figures.origin_responses;
            self.fail(0, format!("{received} responses of origins were counted, and {sent} sent"));
        }
    }
}

fn parse_range(range: &str, bytes: usize) -> Option<(usize, usize)> {
    let (part, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = part.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (whole.parse() == Ok(bytes) && first <= last && last < bytes).then_some((first, last))
}
