//! Steps whose scripts an application server runs, and files that scripts have sent.

use super::pages::Pages;
use super::readings::Reading;
use super::{Effect, Trace, Walk};
use crate::answer::redirect;
use crate::engine::Live;
use crate::neighbour::believe;
use crate::outcome::PHP_BASE;
use crate::spec::PhpSpec;
use crate::step::Step;
use flatout_fastcgi::{Asking, FileName, FileWanted, Handled, Made, Meaning, Outcome, Refused};
use flatout_http::framing::Framing;
use flatout_http::head::Fields;
use flatout_http::path::{SLASH_IN_SEGMENT, append_local, encode_location, normalize_path};
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_net::clock::Now;
use flatout_net::content::Offers;
use flatout_net::handler::{Reply, Request};
use flatout_net::response::Response;
use flatout_serve::files::{FileLookup, HeaderPolicy, Location};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

impl<T: Trace> Walk<'_, T> {
    pub(super) fn answer_php(&mut self, step: &Step, index: u32) -> Option<Reply> {
        let live = self.live;
        let php = live.spec.php.get(index as usize)?;
        if self.is_ambiguous_for(php) {
            return Some(self.refuse_ambiguous(step).into());
        }
        if T::TOLD {
            return self.tell_php(step, php);
        }
        let policy = self.policy();
        let listener = live.spec.listeners.get(self.request.listener as usize);
        let told = believe(self.request, &php.step.settings().trusted);
        let asking = Asking {
            request: &told.request,
            decoded: &self.decoded,
            query: self.query.as_deref(),
            changes: &policy.fields,
            user: self.user.as_deref(),
            server: listener.and_then(|listener| listener.address),
            port: told.port,
            site: self.site.name.as_deref(),
        };
        match live.php.handle(&php.step, &asking) {
            Handled::Pass(_) => None,
            Handled::Slash => Some(self.redirect_to_slash().into()),
            Handled::Refused(refused) => Some(self.fail(&refused.into()).into()),
            Handled::Later(making) => {
                let pages = Pages { live: Rc::clone(live), numbers: self.pages.clone(), policy, now: self.now };
                Some(Reply::later(async move {
                    let made = match making.await {
                        Ok(Made::Response(response)) => return response,
                        Ok(Made::File(wanted)) => send_file(&pages.live, index, &wanted).await,
                        Err(refused) => Err(refused),
                    };
                    made.unwrap_or_else(|refused| pages.fail(&refused.into()))
                }))
            }
        }
    }

    /// Returns true if another reading of the path would run another script, or tell it of a path with dot segments.
    fn is_ambiguous_for(&self, php: &PhpSpec) -> bool {
        if !self.readings.iter().any(Reading::is_of_servers) {
            return false;
        }
        let meaning = php.step.find(&self.decoded);
        let others = self.readings.iter().filter(|reading| reading.is_of_servers());
        let is_same = |reading: &Reading| match (&meaning, php.step.find(&reading.decoded)) {
            (Meaning::Script(script, _), Meaning::Script(other, _)) => *script == other,
            (Meaning::Script(..), _) | (_, Meaning::Script(..)) => false,
            _ => true,
        };
        let climbs = |rest: &[u8]| {
            rest.split(|&byte| matches!(byte, b'/' | SLASH_IN_SEGMENT)).any(|segment| matches!(segment, b"." | b".."))
        };
        let rest = match &meaning {
            Meaning::Script(_, rest) => self.decoded.get(rest.clone()).unwrap_or_default(),
            _ => b"",
        };
        climbs(rest) || !others.into_iter().all(is_same)
    }

    /// Says what would be run, and runs nothing.
    fn tell_php(&mut self, step: &Step, php: &PhpSpec) -> Option<Reply> {
        match php.step.find(&self.decoded) {
            Meaning::Pass(reason) => {
                self.trace.step(step, || Effect::said(format!("{}: goes on", reason.text())));
                None
            }
            Meaning::Slash => {
                self.trace.step(step, || Effect::said("leads to the folder's address with its slash"));
                Some(self.redirect_to_slash().into())
            }
            Meaning::Script(script, rest) => {
                let path_info = self.decoded.get(rest).unwrap_or_default();
                let path_info = String::from_utf8_lossy(path_info).replace(char::from(SLASH_IN_SEGMENT), "/");
                self.trace.step(step, || {
                    let (server, file) = (php.step.describe(), php.step.show_file(&script));
                    let behind = if path_info.is_empty() { String::new() } else { format!(", PATH_INFO {path_info}") };
                    Effect::Said(format!("has {server} run {file}{behind}"))
                });
                self.trace.run(("php", "A script answers, and its code decides with what."));
                // Nobody is asked.
                Some(Reply::later(std::future::pending()))
            }
        }
    }

    /// To the same path with a slash behind it, and the same query.
    fn redirect_to_slash(&self) -> Response {
        let mut location = Vec::new();
        append_local(&normalize_path(&self.path), &mut location);
        location.push(b'/');
        if let Some(query) = &self.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let reads = matches!(self.request.head.method, Method::Get | Method::Head);
        let outcome = PHP_BASE as u8 + Outcome::FolderSlash.index();
        redirect(if reads { 301 } else { 308 }, &encode_location(&location), &self.policy(), outcome)
    }
}

/// The answer with the file that a script has named, when it lies below one of the folders of the step.
async fn send_file(live: &Rc<Live>, index: u32, wanted: &FileWanted) -> Result<Response, Refused> {
    let missing = || Refused::from(Outcome::FileMissing);
    let php = live.spec.php.get(index as usize).ok_or_else(missing)?;
    let (files, path) = locate(php, &wanted.name).ok_or_else(missing)?;
    let files = live.files.get(files as usize).ok_or_else(missing)?;
    let policy = Rc::new(HeaderPolicy::default());
    let location = Location { path: &path, query: None, decoded: None };
    let found = wanted.request.with(|asked| {
        // The file is read, whatever the script was asked for; ranges and conditions are those of who reads.
        let reads = matches!(asked.head.method, Method::Get | Method::Head);
        let head = RequestHead {
            method: if reads { asked.head.method } else { Method::Get },
            target: Target::Resource { path: &path, query: None, authority: None },
            fields: if reads { asked.head.fields } else { Fields::EMPTY },
            asked: if reads { asked.head.asked } else { Asked::default() },
            framing: Framing::None,
            ..*asked.head
        };
        files.handle(&Request { head: &head, offers: &Offers::new(), ..*asked }, location, &policy, Now::read())
    });
    let file = match found {
        FileLookup::Reply(Reply::Now(response)) => response,
        FileLookup::Reply(Reply::Later(response)) => response.await,
        FileLookup::Error(error) if error.status == 503 => return Err(Outcome::NoDescriptor.into()),
        FileLookup::Error(_) => return Err(missing()),
    };
    if !matches!(file.status, 200 | 206 | 304 | 412 | 416) {
        return Err(missing());
    }
    let mut response = wanted.respond(file);
    response.outcome += PHP_BASE as u8;
    Ok(response)
}

/// The files that `name` is looked for among, and its path below their root, percent-encoded and with its first slash.
fn locate(php: &PhpSpec, name: &FileName) -> Option<(u32, Vec<u8>)> {
    match name {
        FileName::Address(address) => {
            let path = address.split(|&byte| byte == b'?').next().unwrap_or_default();
            php.accel.iter().find_map(|(prefix, files)| {
                let rest = path.strip_prefix(prefix.as_bytes())?;
                Some((*files, [b"/", rest].concat()))
            })
        }
        FileName::Path(path) => php.sendfile.iter().find_map(|(folder, files)| {
            let folder = folder.as_os_str().as_bytes();
            let folder = folder.strip_suffix(b"/").unwrap_or(folder);
            let rest = path.strip_prefix(folder).filter(|rest| rest.starts_with(b"/"))?;
            // A path in the file system is no address: its percent signs mean themselves.
            let mut encoded = Vec::with_capacity(rest.len());
            for &byte in rest {
                match byte {
                    b'%' => encoded.extend_from_slice(b"%25"),
                    _ => encoded.push(byte),
                }
            }
            Some((*files, encoded))
        }),
    }
}
