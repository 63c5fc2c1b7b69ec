//! The mutations.

use super::{Mutation, Patch};

const STORABLE: &str = "crates/cache/src/storable.rs";
const DECISION: &str = "crates/cache/src/decision.rs";
const STORED: &str = "crates/proxy/src/pipeline/deliver/stored.rs";
const WAIT: &str = "crates/proxy/src/pipeline/wait.rs";

/// All mutations. Each must be caught by a seed.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "vary-ignored",
        effect: "serves a stored response for a different variant",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/lookup.rs",
            old: "if *stored.variant_key != *variant {",
            new: "if *stored.variant_key != *variant && !MUTATED {",
        }],
    },
    Mutation {
        name: "variants-mixed-in-a-fetch",
        effect: "sends the wrong variant to requests that wait for a fetch",
        patches: &[Patch {
            path: WAIT,
            old: "if !query.with(|request| matches_variant(request, &head.meta.stored)) {",
            new: "if !query.with(|request| matches_variant(request, &head.meta.stored)) && !MUTATED {",
        }],
    },
    Mutation {
        name: "private-shared",
        effect: "stores and shares responses with `private`",
        patches: &[Patch {
            path: STORABLE,
            old: "if directives.private {",
            new: "if directives.private && !MUTATED {",
        }],
    },
    Mutation {
        name: "private-for-waiters",
        effect: "does not store a response with `private`, but sends it to other requests that wait for the fetch",
        patches: &[
            Patch {
                path: STORABLE,
                old: "        return Err(NoStore::Private);\n",
                new: "        if !MUTATED {\n            return Err(NoStore::Private);\n        }\n",
            },
            Patch {
                path: "crates/proxy/src/pipeline/fetch/keeping.rs",
                old: "        if pumping.writer.is_invalidated() {\n            return;",
                new: "        let is_private = stored.lines.windows(7).any(|seven| seven == b\"private\");\n        \
                      if MUTATED && is_private || pumping.writer.is_invalidated() {\n            return;",
            },
        ],
    },
    Mutation {
        name: "set-cookie-shared",
        effect: "stores and shares responses that set a cookie",
        patches: &[Patch {
            path: STORABLE,
            old: "if sets_cookie && rules.set_cookie == SetCookie::Refuse {",
            new: "if sets_cookie && rules.set_cookie == SetCookie::Refuse && !MUTATED {",
        }],
    },
    Mutation {
        name: "authorization-shared",
        effect: "stores and shares responses to requests with Authorization although the responses do not allow this",
        patches: &[Patch {
            path: STORABLE,
            old: "if is_authorized && !allows_authorized(directives) {",
            new: "if is_authorized && !allows_authorized(directives) && !MUTATED {",
        }],
    },
    Mutation {
        name: "cookie-shared",
        effect: "stores and shares responses to requests with a cookie although the responses do not allow this",
        patches: &[Patch {
            path: STORABLE,
            old: "    if names_visitor(request, &rules.cookies) {\n        return Err(NoStore::Cookie);",
            new: "    if names_visitor(request, &rules.cookies) && !MUTATED {\n        return Err(NoStore::Cookie);",
        }],
    },
    Mutation {
        name: "no-store-ignored",
        effect: "stores and shares responses with `no-store`",
        patches: &[Patch {
            path: STORABLE,
            old: "if directives.no_store && !directives.must_understand {",
            new: "if directives.no_store && !directives.must_understand && !MUTATED {",
        }],
    },
    Mutation {
        name: "no-cache-ignored",
        effect: "serves stored responses with `no-cache` without validation",
        patches: &[Patch {
            path: DECISION,
            old: "    if stored.flags.any(Flags::NO_CACHE) {\n        return Some(Lookup::StoredNoCache);",
            new: "    if stored.flags.any(Flags::NO_CACHE) && !MUTATED {\n        return Some(Lookup::StoredNoCache);",
        }],
    },
    Mutation {
        name: "purge-by-tag-lost",
        effect: "stores responses whose tag was purged while they were being fetched",
        patches: &[Patch {
            path: "crates/store/src/purge.rs",
            old: "for tag in subject.tags {",
            new: "for tag in subject.tags.iter().filter(|_| !MUTATED) {",
        }],
    },
    Mutation {
        name: "purge-in-flight-lost",
        effect: "records the arrival of a response as the time of its request, and so misses a purge during the fetch",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/fetch/keeping.rs",
            old: "        let object = StoredResponse::new(key, &name, meta, Arc::from(&b\"\"[..]), body, generation);",
            new: "        let generation = if MUTATED { store.generation() } else { generation };\n        \
                  let object = StoredResponse::new(key, &name, meta, Arc::from(&b\"\"[..]), body, generation);",
        }],
    },
    Mutation {
        name: "invalidation-lost",
        effect: "stores a response that was being fetched when a POST invalidated it",
        patches: &[Patch {
            path: "crates/proxy/src/fill.rs",
            old: "                    fill.invalidated.store(true, Ordering::Release);",
            new: "                    fill.invalidated.store(!MUTATED, Ordering::Release);",
        }],
    },
    Mutation {
        name: "budget-forgotten",
        effect: "never returns the memory of a fetch to the budget",
        patches: &[Patch {
            path: "crates/handler/src/budget.rs",
            old: "impl Drop for Held {\n    fn drop(&mut self) {\n",
            new: "impl Drop for Held {\n    fn drop(&mut self) {\n        \
                  if MUTATED && self.share == BudgetUser::Fills {\n            return;\n        }\n",
        }],
    },
    Mutation {
        name: "released-forgotten",
        effect: "never returns the memory of evicted files to the budget",
        patches: &[Patch {
            path: "crates/store/src/released.rs",
            old: "&& entry.0.strong_count() > 0",
            new: "&& (entry.0.strong_count() > 0 || MUTATED)",
        }],
    },
    Mutation {
        name: "released-counted-twice",
        effect: "counts the memory of an evicted file twice after a validation has stored it again",
        patches: &[Patch {
            path: "crates/store/src/memory.rs",
            old: "        self.released.remove(object.body());\n",
            new: "        if !MUTATED {\n            self.released.remove(object.body());\n        }\n",
        }],
    },
    Mutation {
        name: "eviction-off",
        effect: "stores more than the memory budget",
        patches: &[Patch {
            path: "crates/store/src/eviction.rs",
            old: "while self.bytes > bytes_max || self.objects > self.bounds.objects_max {",
            new: "while self.bytes > bytes_max && !MUTATED || self.objects > self.bounds.objects_max {",
        }],
    },
    Mutation {
        name: "stale-too-long",
        effect: "serves stale responses 20 seconds longer than `stale-while-revalidate` allows",
        patches: &[Patch {
            path: DECISION,
            old: "} else if stale_s < stored.stale_while_revalidate_s {",
            new: "} else if stale_s < stored.stale_while_revalidate_s\n                \
                  + 20 * u32::from(MUTATED && stored.stale_while_revalidate_s > 0)\n            {",
        }],
    },
    Mutation {
        name: "stale-instead-of-errors",
        effect: "serves stale responses instead of errors, no matter how old they are",
        patches: &[Patch {
            path: DECISION,
            old: "        age_s - stored.lifetime_s < window_s\n",
            new: "        age_s - stored.lifetime_s < window_s || MUTATED\n",
        }],
    },
    Mutation {
        name: "hang-not-retried",
        effect: "does not ask the origin again while it serves stale responses because the origin hangs",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/hit.rs",
            old: "&& !object.hang().claim_attempt(now_ms, query.step.hang_ms())",
            new: "&& (MUTATED || !object.hang().claim_attempt(now_ms, query.step.hang_ms()))",
        }],
    },
    Mutation {
        name: "hang-remembered",
        effect: "serves stale responses because the origin hung, although it has responded since",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/fetch/hanging.rs",
            old: "            Some(false) => kept.hang().clear(),",
            new: "            Some(false) if MUTATED => {}\n            Some(false) => kept.hang().clear(),",
        }],
    },
    Mutation {
        name: "hang-allows-stale",
        effect: "serves stale responses while the origin hangs, no matter how old they are",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/fetch_shared.rs",
            old: "        may_stand_in(&self.query, object, &object.meta().stored, OriginFailureKind::Unreachable)\n",
            new: "        MUTATED || may_stand_in(&self.query, object, &object.meta().stored, OriginFailureKind::Unreachable)\n",
        }],
    },
    Mutation {
        name: "soft-purge-forgotten",
        effect: "serves a stored response instead of an error although a soft purge has made it stale",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/fetch.rs",
            old: "let expired = kept.is_soft_purged().then(",
            new: "let expired = (kept.is_soft_purged() && !MUTATED).then(",
        }],
    },
    Mutation {
        name: "must-revalidate-ignored",
        effect: "serves stale responses with `must-revalidate`",
        patches: &[Patch {
            path: STORABLE,
            old: "if directives.no_cache || directives.must_revalidate || directives.proxy_revalidate {",
            new: "if directives.no_cache || !MUTATED && (directives.must_revalidate || directives.proxy_revalidate) {",
        }],
    },
    Mutation {
        name: "another-304-accepted",
        effect: "updates a stored response from a 304 with a different Last-Modified",
        patches: &[Patch {
            path: "crates/cache/src/validate.rs",
            old: "    if differs {",
            new: "    if differs && !MUTATED {",
        }],
    },
    Mutation {
        name: "wrong-304-sent",
        effect: "sends 304 to visitors who have a different version",
        patches: &[Patch {
            path: "crates/cache/src/condition.rs",
            old: "list_matches(line, |other| other.matches_weakly(&tag))",
            new: "list_matches(line, |other| MUTATED || other.matches_weakly(&tag))",
        }],
    },
    Mutation {
        name: "if-range-ignored",
        effect: "sends a range to visitors who have a different version",
        patches: &[Patch {
            path: "crates/cache/src/condition.rs",
            old: "is_some_and(|own| own.matches_strongly(&tag));",
            new: "is_some_and(|own| MUTATED || own.matches_strongly(&tag));",
        }],
    },
    Mutation {
        name: "age-frozen",
        effect: "sends the same Age for as long as a response is stored",
        patches: &[Patch {
            path: STORED,
            old: "if self.note.borrow().0 != now_s {",
            new: "if self.note.borrow().0 != now_s && !(MUTATED && self.note.borrow().0 != i64::MIN) {",
        }],
    },
    Mutation {
        name: "content-length-wrong",
        effect: "adds a byte to Content-Length of cache hits",
        patches: &[Patch {
            path: STORED,
            old: "write_line(b\"Content-Length\", object.body().len().to_string().as_bytes(), &mut lines);",
            new: "let length = object.body().len() + u64::from(MUTATED);\n            \
                  write_line(b\"Content-Length\", length.to_string().as_bytes(), &mut lines);",
        }],
    },
    Mutation {
        name: "range-moved",
        effect: "sends the wrong bytes of a stored part",
        patches: &[Patch {
            path: STORED,
            old: "let first = part.first.checked_sub(offset)?;",
            new: "let first = if MUTATED { 0 } else { part.first.checked_sub(offset)? };",
        }],
    },
    Mutation {
        name: "parts-mixed",
        effect: "combines parts of different versions",
        patches: &[Patch {
            path: "crates/cache/src/parts.rs",
            old: "(Some((false, one)), Some((false, other))) => one == other,",
            new: "(Some((false, one)), Some((false, other))) => one == other || MUTATED,",
        }],
    },
    Mutation {
        name: "older-part-described",
        effect: "sends the header fields of the older part when a new part completes a response",
        patches: &[Patch {
            path: WAIT,
            old: "let set = Rc::new(set.described_by(&supply.first.1.meta.stored));",
            new: "let set = if MUTATED { Rc::clone(set) } else { Rc::new(set.described_by(&supply.first.1.meta.stored)) };",
        }],
    },
    Mutation {
        name: "cut-ends-well",
        effect: "terminates a chunked response as if it were complete although the origin has failed",
        patches: &[Patch {
            path: "crates/server/src/http1/streaming.rs",
            old: "                StreamedPiece::Failed(reason) => {",
            new: "                StreamedPiece::Failed(_) if MUTATED => return self.end(output, &[]),\n                \
                  StreamedPiece::Failed(reason) => {",
        }],
    },
    Mutation {
        name: "cut-stored-as-whole",
        effect: "stores a truncated response as complete after the origin has failed",
        patches: &[Patch {
            path: "crates/proxy/src/pipeline/fetch.rs",
            old: "                Some(IncomingPiece::Failed(failure)) => {",
            new: "                Some(IncomingPiece::Failed(_)) if MUTATED && pumping.length.is_none() => {\n                    \
                  return self.finish(worker, pumping, stored, generation, None);\n                }\n                \
                  Some(IncomingPiece::Failed(failure)) => {",
        }],
    },
    Mutation {
        name: "unsolicited-data-accepted",
        effect: "reuses a connection on which the origin has sent unsolicited data",
        patches: &[Patch {
            path: "crates/upstream/src/origin/pool.rs",
            old: "if last.connection.transport.is_quiet(true) {",
            new: "if last.connection.transport.is_quiet(true) || MUTATED {",
        }],
    },
    Mutation {
        name: "broken-connection-reused",
        effect: "reuses a connection after its response has timed out",
        patches: &[Patch {
            path: "crates/upstream/src/origin/streaming.rs",
            old: "    fn fail(&mut self, failure: ExchangeFailure) -> IncomingPiece {\n",
            new: "    fn fail(&mut self, failure: ExchangeFailure) -> IncomingPiece {\n        \
                  if MUTATED && let Some(connection) = self.connection.take() {\n            \
                  self.pool.check_in(&self.shared, connection, self.keep_alive_ms);\n        }\n",
        }],
    },
    Mutation {
        name: "post-repeated",
        effect: "sends a POST again although the origin may have processed it",
        patches: &[Patch {
            path: "crates/upstream/src/origin/client.rs",
            old: "Repeat::Idempotent => is_idempotent,",
            new: "Repeat::Idempotent => is_idempotent || MUTATED,",
        }],
    },
    Mutation {
        name: "head-with-content",
        effect: "sends content in response to HEAD",
        patches: &[Patch {
            path: "crates/server/src/http1/exchanges.rs",
            old: "        if !exchange.to_head {",
            new: "        if !exchange.to_head || MUTATED {",
        }],
    },
];
