//! `password`: hashing passwords with argon2id, and verifying them against hashes of argon2 and bcrypt. This happens on
//! a separate thread because a single operation takes as long as hundreds of requests.

use super::Api;
use super::digest::fill;
use super::refusal::{PageRefusal, RefusalCell};
use crate::sandbox::Sandbox;
use crate::sandbox::wait::{NativeError, wanted};
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params};
use bcrypt::HashParts;
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
/// Maximum memory parameter of a stored argon2 hash, in KiB. Another program may have created the hash with larger
/// parameters.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
const PASSES_MAX: u32 = 16;
/// Maximum cost of a stored bcrypt hash, with which a verification takes about a second. PHP's default is 10 to 12.
const BCRYPT_COST_MAX: u32 = 14;
/// The versions of bcrypt that current programs create; `$2x$` is a different algorithm.
const BCRYPT_PREFIXES: [&str; 3] = ["$2a$", "$2b$", "$2y$"];
/// Length of a salt in bytes: 128 bits, as RFC 9106 §3.1 recommends for passwords.
const SALT_BYTES: usize = 16;

/// An operation on a password.
enum PasswordOperation {
    /// Hash the password with this salt.
    Hash([u8; SALT_BYTES]),
    /// Verify the password against this stored hash.
    Verify(String, Scheme),
    /// Spend the same time as a verification although there is no stored hash.
    Pretend,
}

/// The algorithm of a stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Argon2,
    Bcrypt,
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
            Self::Verify(stored, Scheme::Argon2) => {
                Some(Done::IsRight(argon2.verify_password(password, stored.as_str()).is_ok()))
            }
            // As usual with bcrypt, only the first 72 bytes of a password are significant.
            Self::Verify(stored, Scheme::Bcrypt) => {
                Some(Done::IsRight(bcrypt::verify(password, stored).unwrap_or(false)))
            }
            Self::Pretend => hash(&[0; SALT_BYTES]).map(|_| Done::IsRight(false)),
        }
    }
}

/// Returns the algorithm of a stored hash, or `None` if the hash is invalid, or cannot be verified within the limits of
/// memory, passes and cost.
fn scheme_of(stored: &str) -> Option<Scheme> {
    if BCRYPT_PREFIXES.iter().any(|prefix| stored.starts_with(prefix)) {
        let cost = stored.parse::<HashParts>().ok()?.get_cost();
        return (cost <= BCRYPT_COST_MAX).then_some(Scheme::Bcrypt);
    }
    let hash = PasswordHash::new(stored).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let is_usable = hash.hash.is_some()
        && hash.salt.is_some()
        && Algorithm::try_from(hash.algorithm.as_str()).is_ok()
        && params.m_cost() <= MEMORY_KIB_MAX
        && params.t_cost() <= PASSES_MAX;
    is_usable.then_some(Scheme::Argon2)
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
            Some(stored) => checked(&stored)?,
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

fn checked(stored: &LuaString) -> Result<PasswordOperation, NativeError> {
    let text = stored.to_str().ok().filter(|text| text.len() <= STORED_BYTES_MAX);
    text.and_then(|text| scheme_of(&text).map(|scheme| PasswordOperation::Verify(text.to_owned(), scheme))).ok_or_else(
        || {
            "the stored value is neither an argon2 hash (at most 256 MiB and 16 passes) nor a bcrypt hash ($2a$, $2b$ \
             or $2y$, with a cost of at most 14): store the result of password.hash"
                .into()
        },
    )
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
    use super::{Done, PasswordOperation, Passwords, QUEUE_MAX, Scheme, scheme_of};

    #[test]
    fn a_hash_is_of_its_password() {
        let passwords = Passwords::default();
        let ask =
            |password: &str, work| passwords.ask(password.into(), work).unwrap().blocking_recv().unwrap().unwrap();
        let Done::Hash(hash) = ask("secret", PasswordOperation::Hash([7; 16])) else { panic!("no hash") };
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let verify = |password: &str| {
            ask(password, PasswordOperation::Verify(hash.clone(), scheme_of(&hash).unwrap())) == Done::IsRight(true)
        };
        assert!(verify("secret") && !verify("Secret") && !verify(""));
        assert_eq!(ask("secret", PasswordOperation::Pretend), Done::IsRight(false));
    }

    /// PHP 8.2 has created these hashes with `password_hash` and `crypt`.
    #[test]
    fn hashes_of_other_programs_are_verified() {
        let long = "x".repeat(80);
        for (stored, password, scheme) in [
            (
                "$argon2i$v=19$m=1024,t=2,p=2$UXRIakpMNmxoUTBtZU9CeQ$KYCMC5/45O1rm7zObwcQOO4eFkNrWFAbYnpmLlPnn2c",
                "s3cret",
                Scheme::Argon2,
            ),
            (
                "$argon2id$v=19$m=1024,t=2,p=1$dnZ3OTNaSXBsamx4WWhKeg$abzByAmo0B7WFh1MzQlSadUFhKVg84jXeO9mENGEcOE",
                "s3cret",
                Scheme::Argon2,
            ),
            ("$2a$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK", "s3cret", Scheme::Bcrypt),
            ("$2b$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK", "s3cret", Scheme::Bcrypt),
            ("$2y$05$bD4bU1yu1yTxNe4iKT9tieWUbrE..h7P65DM.1M2mv09ikY6UXRFi", "s3cret", Scheme::Bcrypt),
            ("$2y$04$EX6tc0LnEhYdLEmC.nOp.u6GHdBOLc6mTTqpvBNkHFwkVh5zUcNoe", &long, Scheme::Bcrypt),
        ] {
            assert_eq!(scheme_of(stored), Some(scheme), "{stored}");
            let verify =
                |password: &str| PasswordOperation::Verify(stored.to_owned(), scheme).on(password.as_bytes()).unwrap();
            assert_eq!(verify(password), Done::IsRight(true), "{stored}");
            assert_eq!(verify("S3cret"), Done::IsRight(false), "{stored}");
            assert_eq!(verify(""), Done::IsRight(false), "{stored}");
        }
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
        assert_eq!(scheme_of(&format!("$argon2id$v=19$m=65536,t=3,p=4{tail}")), Some(Scheme::Argon2));
        let bcrypt = "abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK";
        assert_eq!(scheme_of(&format!("$2y$14${bcrypt}")), Some(Scheme::Bcrypt));
        for wrong in [
            "",
            "secret",
            "$2b$10$abcdefghijklmnopqrstuv",
            &format!("$2y$15${bcrypt}"),
            &format!("$2y$31${bcrypt}"),
            &format!("$2x$05${bcrypt}"),
            &format!("$2$05${bcrypt}"),
            &format!("$1$05${bcrypt}"),
            "$argon2id$v=19$m=65536,t=3,p=4",
            &format!("$argon2id$v=19$m=1048576,t=3,p=4{tail}"),
            &format!("$argon2id$v=19$m=65536,t=17,p=4{tail}"),
            &format!("$scrypt$ln=15,r=8,p=1{tail}"),
        ] {
            assert_eq!(scheme_of(wrong), None, "{wrong}");
        }
    }
}
