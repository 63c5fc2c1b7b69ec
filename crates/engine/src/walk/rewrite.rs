//! Steps that change the path for those that follow, and what texts may take from a request.

use super::{Effect, Rest, Trace, Walk, host_needed, path_refused};
use crate::step::{Rewrite, Step};
use crate::text::Variables;
use flatout_http::path::{normalize_path, raw_offset};
use flatout_http::target::Target;
use flatout_net::response::Response;
use std::borrow::Cow;

impl<T: Trace> Walk<'_, T> {
    pub(super) fn variables(&self) -> Variables<'_> {
        let (path, query) = match self.request.head.target {
            Target::Resource { path, query, .. } => (path, query),
            _ => (&b"/"[..], None),
        };
        let rest = self.rest.as_ref().map_or(Cow::Borrowed(&b""[..]), |Rest { rewrites, part }| {
            let part_of = |path: &[u8]| raw_offset(path, part.start)..raw_offset(path, part.end);
            match normalize_path(self.before.get(*rewrites as usize).unwrap_or(&self.path)) {
                Cow::Borrowed(path) => Cow::Borrowed(&path[part_of(path)]),
                Cow::Owned(path) => Cow::Owned(path[part_of(&path)].to_vec()),
            }
        });
        let host_port = self.host.or(self.site.name.as_deref().map(str::as_bytes));
        let client = self.request.client.map(|client| client.ip());
        Variables { client, host_port, path, query, secure: self.request.secure, rest }
    }

    /// Changes the path, or answers when what comes of it is none.
    pub(super) fn rewrite(&mut self, step: &Step, rewrite: &Rewrite) -> Option<Response> {
        let changed = match rewrite {
            Rewrite::StripPrefix(prefix) => {
                let prefix = prefix.strip_prefix('/').unwrap_or(prefix).as_bytes();
                let begins = |path: &[u8]| {
                    let rest = path.strip_prefix(prefix);
                    !prefix.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
                };
                let applies = begins(&self.decoded);
                if self.readings.iter().any(|other| other.is_of_servers() && begins(&other.decoded) != applies) {
                    return Some(self.refuse_ambiguous(step));
                }
                applies.then(|| {
                    let path = normalize_path(&self.path);
                    let stripped = path[raw_offset(&path, prefix.len())..].to_vec();
                    if stripped.is_empty() { b"/".to_vec() } else { stripped }
                })
            }
            Rewrite::To(template) => match template.render(&self.variables()) {
                Ok(text) => Some(text),
                Err(_) => return Some(self.fail(&host_needed())),
            },
        };
        let Some(mut path) = changed else {
            self.trace.step(step, || Effect::said("does not apply: the path has no such beginning"));
            return None;
        };
        if let Some(fragment) = path.iter().position(|&byte| byte == b'#') {
            path.truncate(fragment);
        }
        if let Some(mark) = path.iter().position(|&byte| byte == b'?') {
            let mut query = path.split_off(mark + 1);
            path.pop();
            let is_said = matches!(rewrite, Rewrite::To(template) if template.has_query());
            if let Some(visitors) = self.query.as_deref().filter(|own| !is_said && !own.is_empty() && !query.is_empty())
            {
                query.push(b'&');
                query.extend_from_slice(visitors);
            }
            // An empty query after `?` means no query, not the request's either.
            self.query = (!query.is_empty()).then(|| query.into());
        }
        if !path.starts_with(b"/") {
            path.insert(0, b'/');
        }
        path.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
        self.rewrites = self.rewrites.wrapping_add(1);
        let read = self.read_path(&path);
        self.trace.step(step, || Effect::said(format!("the path is now {}", String::from_utf8_lossy(&path))));
        self.before.push(std::mem::replace(&mut self.path, path.into()));
        let refusal = read.err()?;
        Some(self.fail(&path_refused(refusal)))
    }
}
