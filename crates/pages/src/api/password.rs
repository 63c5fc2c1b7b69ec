//! `password`: hashing and verifying passwords with argon2id. This happens on a separate thread because a single
//! operation takes as long as hundreds of requests.

use super::Api;
use super::digest::fill;
use super::refusal::{PageRefusal, RefusalCell};
use crate::sandbox::Sandbox;
use crate::sandbox::wait::{NativeError, wanted};
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params};
use mlua::LuaString;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::oneshot;

/// Maximum number of queued operations. At 20 ms each, the last one waits for more than a second.
const QUEUE_MAX: usize = 64;
/// Maximum length of a password, in bytes.
const PASSWORD_BYTES_MAX: usize = 1024;
/// Maximum length of a stored hash, in bytes.
const STORED_BYTES_MAX: usize = 512;
/// Maximum memory parameter of a stored hash, in KiB. Another program may have created the hash with larger parameters.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
/// Length of a salt in bytes: 128 bits, as RFC 9106 §3.1 recommends for passwords.
const SALT_BYTES: usize = 16;

/// An operation on a password.
enum PasswordOperation {
    /// Hash the password with this salt.
    Hash([u8; SALT_BYTES]),
    /// Verify the password against this stored hash.
    Verify(String),
    /// Spend the same time as a verification although there is no stored hash.
    Pretend,
}

/// The result of an operation on a password.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Hash(String),
    IsRight(bool),
}

struct PasswordJob {
    password: Vec<u8>,
    work: PasswordOperation,
    answer: oneshot::Sender<Option<Done>>,
}

/// The thread for hashing and verification, which is started on first use.
#[derive(Debug, Default)]
pub struct Passwords {
    jobs: OnceLock<Option<SyncSender<PasswordJob>>>,
}

impl Passwords {
    /// Queues `work` on `password`. Returns `None` if the queue is full or the thread could not be started.
    fn ask(&self, password: Vec<u8>, work: PasswordOperation) -> Option<oneshot::Receiver<Option<Done>>> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.get_or_init(start).as_ref()?;
        jobs.try_send(PasswordJob { password, work, answer }).ok().map(|()| answered)
    }
}

fn start() -> Option<SyncSender<PasswordJob>> {
    let (sender, jobs) = sync_channel(QUEUE_MAX);
    thread::Builder::new().name("page-passwords".to_owned()).spawn(move || work(&jobs)).ok().map(|_| sender)
}

fn work(jobs: &Receiver<PasswordJob>) {
    while let Ok(mut job) = jobs.recv() {
        if !job.answer.is_closed() {
            let done = job.work.on(&job.password);
            // If the client has disconnected, nothing receives the result.
            let _ = job.answer.send(done);
        }
        job.password.fill(0);
        std::hint::black_box(&job.password);
    }
}

impl PasswordOperation {
    /// Performs the operation. Returns `None` if argon2 rejects the input.
    fn on(&self, password: &[u8]) -> Option<Done> {
        let argon2 = Argon2::default();
        let hash = |salt: &[u8]| -> Option<PasswordHash> { argon2.hash_password_with_salt(password, salt).ok() };
        match self {
            Self::Hash(salt) => hash(salt).map(|hash| Done::Hash(hash.to_string())),
            Self::Verify(stored) => Some(Done::IsRight(argon2.verify_password(password, stored.as_str()).is_ok())),
            Self::Pretend => hash(&[0; SALT_BYTES]).map(|_| Done::IsRight(false)),
        }
    }
}

/// Returns whether a stored hash is valid and can be verified within the limits of memory and passes.
fn is_usable(stored: &str) -> bool {
    let Ok(hash) = PasswordHash::new(stored) else { return false };
    let Ok(params) = Params::try_from(&hash) else { return false };
    hash.hash.is_some()
        && hash.salt.is_some()
        && Algorithm::try_from(hash.algorithm.as_str()).is_ok()
        && params.m_cost() <= MEMORY_KIB_MAX
        && params.t_cost() <= PASSES_MAX
}

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let password = sandbox.lua().create_table()?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, text: LuaString| {
        let mut salt = [0; SALT_BYTES];
        fill(&mut salt)?;
        let text = text.as_bytes();
        if text.len() > PASSWORD_BYTES_MAX {
            return Err("a password must not be longer than 1,024 bytes".into());
        }
        let answered = ask(&using, &RefusalCell::of(exchange), &text, PasswordOperation::Hash(salt))?;
        Ok(wanted(async move {
            match answered.await {
                Ok(Some(Done::Hash(hash))) => Ok(hash),
                _ => Err(NativeError::from("the password could not be hashed")),
            }
        }))
    })?;
    password.raw_set("hash", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, (text, stored): (LuaString, Option<LuaString>)| {
        let work = match stored {
            None => PasswordOperation::Pretend,
            Some(stored) => PasswordOperation::Verify(checked(&stored)?),
        };
        let text = text.as_bytes();
        // No stored hash is of such a long password. The response takes the same time as any other.
        let (text, work) =
            if text.len() > PASSWORD_BYTES_MAX { (&b""[..], PasswordOperation::Pretend) } else { (&text[..], work) };
        let answered = ask(&using, &RefusalCell::of(exchange), text, work)?;
        Ok(wanted(async move {
            match answered.await {
                Ok(Some(Done::IsRight(is_right))) => Ok(is_right),
                _ => Err(NativeError::from("the password could not be verified")),
            }
        }))
    })?;
    password.raw_set("verify", made)?;
    sandbox.global("password", password)
}

fn checked(stored: &LuaString) -> Result<String, NativeError> {
    let text = stored.to_str().ok().filter(|text| text.len() <= STORED_BYTES_MAX && is_usable(text));
    text.map(|text| text.to_owned()).ok_or_else(|| {
        "the stored value is not an argon2 hash, or needs more than 256 MiB or 16 passes: store the result of password.hash"
            .into()
    })
}

fn ask(
    api: &Api,
    refused: &RefusalCell,
    text: &[u8],
    work: PasswordOperation,
) -> Result<oneshot::Receiver<Option<Done>>, NativeError> {
    api.settings.passwords.ask(text.to_vec(), work).ok_or_else(|| refused.refuse(PageRefusal::PasswordsBusy))
}

#[cfg(test)]
mod tests {
    use super::{Done, PasswordOperation, Passwords, QUEUE_MAX, is_usable};

    #[test]
    fn a_hash_is_of_its_password() {
        let passwords = Passwords::default();
        let ask =
            |password: &str, work| passwords.ask(password.into(), work).unwrap().blocking_recv().unwrap().unwrap();
        let Done::Hash(hash) = ask("secret", PasswordOperation::Hash([7; 16])) else { panic!("no hash") };
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && is_usable(&hash), "{hash}");
        assert_eq!(ask("secret", PasswordOperation::Verify(hash.clone())), Done::IsRight(true));
        assert_eq!(ask("Secret", PasswordOperation::Verify(hash.clone())), Done::IsRight(false));
        assert_eq!(ask("", PasswordOperation::Verify(hash)), Done::IsRight(false));
        assert_eq!(ask("secret", PasswordOperation::Pretend), Done::IsRight(false));
    }

    #[test]
    fn few_wait() {
        let passwords = Passwords::default();
        let answers: Vec<_> =
            (0..4 * QUEUE_MAX).map(|_| passwords.ask(Vec::new(), PasswordOperation::Pretend)).collect();
        assert!(answers[0].is_some());
        assert!(answers.iter().filter(|answer| answer.is_none()).count() >= QUEUE_MAX);
        // Nobody waits for these any more, and none of them is worked on.
        drop(answers);
    }

    #[test]
    fn what_is_stored_is_checked() {
        let tail = "$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g";
        assert!(is_usable(&format!("$argon2id$v=19$m=65536,t=3,p=4{tail}")));
        for wrong in [
            "",
            "secret",
            "$2b$10$abcdefghijklmnopqrstuv",
            "$argon2id$v=19$m=65536,t=3,p=4",
            &format!("$argon2id$v=19$m=1048576,t=3,p=4{tail}"),
            &format!("$argon2id$v=19$m=65536,t=17,p=4{tail}"),
            &format!("$scrypt$ln=15,r=8,p=1{tail}"),
        ] {
            assert!(!is_usable(wrong), "{wrong}");
        }
    }
}
