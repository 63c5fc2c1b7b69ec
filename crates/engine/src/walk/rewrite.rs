//! Steps that change the path for those that follow, and what texts may take from a request.

use super::{Rest, Trace, Walk, host_needed};
use crate::answer::Failure;
use crate::step::{Rewrite, Step};
use crate::text::{Variables, raw_offset};
use flatout_http::path::decode_path;
use flatout_http::refusal::Refusal;
use flatout_http::target::Target;
use flatout_net::response::Response;
use flatout_serve::outcome::Outcome as Served;

impl<T: Trace> Walk<'_, T> {
    pub(super) fn variables(&self) -> Variables<'_> {
        let (path, query) = match self.request.head.target {
            Target::Resource { path, query, .. } => (path, query),
            _ => (&b"/"[..], None),
        };
        let rest = self.rest.as_ref().map_or(&b""[..], |Rest { rewrites, part }| {
            let path = self.before.get(*rewrites as usize).unwrap_or(&self.path);
            &path[raw_offset(path, part.start)..raw_offset(path, part.end)]
        });
        let host_port = self.host.or(self.site.name.as_deref().map(str::as_bytes));
        Variables { host_port, path, query, secure: self.request.secure, rest }
    }

    /// Changes the path, or answers when what comes of it is none.
    pub(super) fn rewrite(&mut self, step: &Step, rewrite: &Rewrite) -> Option<Response> {
        let changed = match rewrite {
            Rewrite::StripPrefix(prefix) => {
                let prefix = prefix.strip_prefix('/').unwrap_or(prefix).as_bytes();
                match self.decoded.strip_prefix(prefix) {
                    Some(rest) if prefix.is_empty() || rest.is_empty() || rest.starts_with(b"/") => {
                        let from = raw_offset(&self.path, prefix.len());
                        let stripped = self.path[from..].to_vec();
                        if stripped.is_empty() { Some(b"/".to_vec()) } else { Some(stripped) }
                    }
                    _ => None,
                }
                .filter(|_| !prefix.is_empty())
            }
            Rewrite::To(template) => match template.render(&self.variables()) {
                Ok(text) => Some(text.into_bytes()),
                Err(_) => return Some(self.fail(&host_needed())),
            },
        };
        let Some(mut path) = changed else {
            self.trace.step(step, || "does not apply: the path has no such beginning".to_owned());
            return None;
        };
        if let Some(fragment) = path.iter().position(|&byte| byte == b'#') {
            path.truncate(fragment);
        }
        if let Some(mark) = path.iter().position(|&byte| byte == b'?') {
            let query = path.split_off(mark + 1);
            path.pop();
            self.query = Some(query.into());
        }
        if !path.starts_with(b"/") {
            path.insert(0, b'/');
        }
        path.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
        self.rewrites = self.rewrites.wrapping_add(1);
        let decoded = decode_path(&path, &mut self.decoded);
        self.trace.step(step, || format!("the path is now {}", String::from_utf8_lossy(&path)));
        self.before.push(std::mem::replace(&mut self.path, path.into()));
        match decoded {
            Ok(facts) if !facts.encoded_slash => {
                self.facts = Some(facts);
                None
            }
            Ok(_) => Some(self.fail(&Failure::served(404, "Nothing here has this name.", Served::NotFound))),
            Err(refusal) => {
                let outcome = if refusal == Refusal::TargetNul { Served::TargetNul } else { Served::DotSegment };
                Some(self.fail(&Failure::served(refusal.status(), refusal.text(), outcome)))
            }
        }
    }
}
