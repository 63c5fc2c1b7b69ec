//! `php` steps, and files that scripts delegate to this server (X-Sendfile and X-Accel-Redirect).

use super::Walk;
use super::error_pages::read_file;
use super::readings::Reading;
use crate::engine::Live;
use crate::spec::PhpSpec;
use flatout_fastcgi::{FileName, FileWanted, Meaning, PhpOutcome};
use flatout_handler::content::Offers;
use flatout_handler::response::Response;
use flatout_handler::routed::{Handling, Refusal};
use flatout_handler::{Reply, Request};
use flatout_http::framing::Framing;
use flatout_http::head::Fields;
use flatout_http::path::SLASH_IN_SEGMENT;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_os::clock::Now;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

impl Walk<'_> {
    pub(super) fn answer_php(&mut self, index: u32, php: &PhpSpec) -> Option<Reply> {
        let live = self.live;
        let files_of = Rc::clone(live);
        let send = move |wanted: Box<FileWanted>| async move { send_file(&files_of, index, &wanted).await };
        self.run_admitted(&php.step.settings().trusted, |routed| live.php.handle(&php.step, routed, send))
    }

    /// Returns whether another interpretation of the path would run a different script, or whether the script would
    /// receive a path with dot segments.
    pub(super) fn is_ambiguous_for(&self, php: &PhpSpec) -> bool {
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
}

/// Builds the response with the file named by a script, if it is below one of the step's folders.
async fn send_file(live: &Rc<Live>, index: u32, wanted: &FileWanted) -> Result<Response, Refusal> {
    let missing = || Refusal::from(PhpOutcome::FileMissing);
    let php = live.spec.php.get(index as usize).ok_or_else(missing)?;
    let (files, path) = locate(php, &wanted.name).ok_or(PhpOutcome::FileOutside)?;
    let files = live.files.get(files as usize).ok_or_else(missing)?;
    let found = wanted.request.with(|asked| {
        // The file is sent whatever the method of the request. The request's ranges and conditions apply only to GET
        // and HEAD.
        let reads = matches!(asked.head.method, Method::Get | Method::Head);
        let head = RequestHead {
            method: if reads { asked.head.method } else { Method::Get },
            target: Target::Resource { path: &path, query: None },
            fields: if reads { asked.head.fields } else { Fields::EMPTY },
            asked: if reads { asked.head.asked } else { Asked::default() },
            framing: Framing::None,
            ..*asked.head
        };
        read_file(files, &Request { head: &head, offers: &Offers::new(), ..*asked }, &path, Now::read())
    });
    let file = match found {
        Handling::Now(found) => found,
        Handling::Later(found) => found.await,
        Handling::Pass => return Err(missing()),
    };
    let file =
        file.map_err(|refusal| if refusal.status == 503 { PhpOutcome::NoDescriptor.into() } else { missing() })?;
    if !matches!(file.status, 200 | 206 | 304 | 412 | 416) {
        return Err(missing());
    }
    Ok(wanted.respond(file))
}

/// Returns the index of the folder that contains `name`, and the path below it, percent-encoded and with a leading
/// slash.
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
            // A path in the file system is not percent-encoded, so percent signs are literal.
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
