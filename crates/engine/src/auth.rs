//! Basic authentication. Password hashes are validated when the configuration is compiled. Passwords are verified on a
//! separate thread, because a verification takes as long as thousands of requests.

use crate::credentials::{BELIEVED_MS, Proof, ProofKey};
use argon2::password_hash::PasswordVerifier as _;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params};
use bcrypt::HashParts;
use flatout_os::clock;
use flatout_os::random::HashState;
use flatout_overload::QueueReading;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum number of passwords queued for verification. At 50 ms each, the last one waits for three seconds.
const QUEUE_MAX: usize = 64;

/// Maximum number of requests that wait for the verification of equal credentials.
const WAITING_MAX: usize = 1024;

/// Maximum number of verified credentials that the thread caches, for other workers and concurrent requests.
const REMEMBERED_MAX: usize = 256;

/// Maximum amount of memory for Argon2, in KiB. More would take seconds and delay all sign-ins.
const ARGON2_MEMORY_KIB_MAX: u32 = 1024 * 1024;
const ARGON2_PASSES_MAX: u32 = 64;
const BCRYPT_COST_MAX: u32 = 16;

/// A `basic-auth` step.
#[derive(Debug)]
pub(crate) struct Auth {
    /// The value of WWW-Authenticate.
    pub(crate) challenge: String,
    users: HashMap<Vec<u8>, usize, HashState>,
    hashes: Vec<Hash>,
}

#[derive(Clone, Debug)]
struct Hash {
    name: String,
    text: String,
    scheme: Scheme,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Argon2,
    Bcrypt,
}

/// Validates a configured password hash. The error describes the problem.
fn check_hash(text: &str) -> Result<Scheme, String> {
    if text.starts_with("$argon2") {
        let hash =
            PasswordHash::new(text).map_err(|error| format!("it is not an argon2 hash in PHC form ({error})"))?;
        let params = Params::try_from(&hash).map_err(|error| format!("its argon2 parameters are invalid ({error})"))?;
        let slow = params.m_cost() > ARGON2_MEMORY_KIB_MAX || params.t_cost() > ARGON2_PASSES_MAX;
        let algorithm = argon2::Algorithm::try_from(hash.algorithm.as_str()).is_ok();
        return match (hash.hash.is_some() && hash.salt.is_some() && algorithm, slow) {
            (false, _) => Err("its salt or hash is missing, or its argon2 variant is unknown".to_owned()),
            (true, true) => Err("verification would need more than 1 GiB of memory or more than 64 passes".to_owned()),
            (true, false) => Ok(Scheme::Argon2),
        };
    }
    if text.starts_with("$2") {
        let parts = text.parse::<HashParts>().map_err(|error| format!("it is not a bcrypt hash ({error})"))?;
        if parts.get_cost() > BCRYPT_COST_MAX {
            return Err(format!("verification would take seconds: its cost is above {BCRYPT_COST_MAX}"));
        }
        return Ok(Scheme::Bcrypt);
    }
    Err("it is neither an argon2 hash (`$argon2id$...`) nor a bcrypt hash (`$2b$...`)".to_owned())
}

impl Auth {
    /// Creates the step for `realm` and `users`, which are names with password hashes. Returns a description of each
    /// problem as an error.
    pub(crate) fn new(realm: &str, users: &[(String, String)]) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        if realm.chars().any(|character| !(' '..='~').contains(&character)) {
            faults.push("the realm has a character that is not allowed in a header".to_owned());
        }
        if users.is_empty() {
            faults.push("no user is listed, so every sign-in would fail".to_owned());
        }
        let (mut names, mut hashes) = (HashMap::default(), Vec::new());
        for (name, text) in users {
            match check_hash(text) {
                _ if name.contains(':') => {
                    faults.push(format!("the user name `{name}` contains a colon, which would end the name"));
                }
                Ok(scheme) => {
                    if names.insert(name.clone().into_bytes(), hashes.len()).is_some() {
                        faults.push(format!("the user name `{name}` occurs twice"));
                    }
                    hashes.push(Hash { name: name.clone(), text: text.clone(), scheme });
                }
                Err(fault) => faults.push(format!("the hash for `{name}` cannot be used: {fault}")),
            }
        }
        let quoted = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{quoted}\", charset=\"UTF-8\"");
        if faults.is_empty() { Ok(Self { challenge, users: names, hashes }) } else { Err(faults) }
    }

    /// Returns the index of the user called `name`, and true. For an unknown name, returns a different user, whose hash
    /// is verified so that the response takes the same time, and false.
    pub(crate) fn user(&self, name: &[u8]) -> (usize, bool) {
        self.users.get(name).map_or((0, false), |&user| (user, true))
    }

    /// Returns the name of the user with the index `user`.
    pub(crate) fn name(&self, user: usize) -> &str {
        self.hashes.get(user).map_or("", |hash| &hash.name)
    }

    /// Returns the configured password hash of the user with the index `user`.
    pub(crate) fn hash(&self, user: usize) -> &str {
        self.hashes.get(user).map_or("", |hash| &hash.text)
    }

    fn verify(&self, user: usize, password: &[u8]) -> bool {
        let Some(hash) = self.hashes.get(user) else { return false };
        match hash.scheme {
            Scheme::Argon2 => Argon2::default().verify_password(password, hash.text.as_str()).is_ok(),
            // As usual with bcrypt, only the first 72 bytes of a password are significant.
            Scheme::Bcrypt => bcrypt::verify(password, &hash.text).unwrap_or(false),
        }
    }
}

struct Job {
    auth: Arc<Auth>,
    user: usize,
    known: bool,
    password: Vec<u8>,
    credentials: Credentials,
}

/// A proof, and the address of the step, which a job keeps. An unknown user's proof may equal that of a user whom another
/// step knows.
type Credentials = (Proof, usize);

/// The requests that wait for the verification of each of the queued credentials. A browser that signs in to a page
/// sends equal ones with all requests for its parts.
type Waiting = HashMap<Credentials, Vec<oneshot::Sender<bool>>, HashState>;

/// The verification thread, and the key of the proofs. There is one per process, which is retained across reloads.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) key: ProofKey,
    jobs: SyncSender<Job>,
    waiting: Arc<Mutex<Waiting>>,
}

impl Verifier {
    /// Starts the thread, which stops when the verifier is dropped.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        let key = ProofKey::new()?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let of_thread = Arc::clone(&waiting);
        thread::Builder::new().name("passwords".to_owned()).spawn(move || verify_all(&receiver, &of_thread))?;
        Ok(Arc::new(Self { key, jobs: sender, waiting }))
    }

    /// Queues `password` for verification, unless equal credentials are queued already, whose result then counts for
    /// this request too. Returns `None` if the queue is full.
    pub(crate) fn verify(
        &self,
        auth: &Arc<Auth>,
        (user, known): (usize, bool),
        password: Vec<u8>,
        proof: Proof,
    ) -> Option<oneshot::Receiver<bool>> {
        let (answer, answered) = oneshot::channel();
        let credentials = (proof, Arc::as_ptr(auth).addr());
        match lock(&self.waiting).entry(credentials) {
            Entry::Occupied(mut entry) if entry.get().len() < WAITING_MAX => entry.get_mut().push(answer),
            Entry::Occupied(_) => return None,
            Entry::Vacant(entry) => {
                self.jobs.try_send(Job { auth: Arc::clone(auth), user, known, password, credentials }).ok()?;
                entry.insert(vec![answer]);
            }
        }
        Some(answered)
    }

    /// The queue of passwords that wait for their verification, including the one being verified.
    pub(crate) fn queue(&self) -> QueueReading {
        let waiting = lock(&self.waiting).len() as u64;
        QueueReading { waiting, waiting_max: QUEUE_MAX as u64 + 1 }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn verify_all(jobs: &Receiver<Job>, waiting: &Mutex<Waiting>) {
    let mut remembered: HashMap<Proof, Instant, HashState> = HashMap::default();
    while let Ok(mut job) = jobs.recv() {
        let ((proof, _), known) = (job.credentials, job.known);
        if let Entry::Occupied(entry) = lock(waiting).entry(job.credentials)
            && entry.get().iter().all(oneshot::Sender::is_closed)
        {
            entry.remove();
            continue;
        }
        let fresh = |since: &Instant| clock::since(*since) < Duration::from_millis(BELIEVED_MS);
        let believed = known && remembered.get(&proof).is_some_and(fresh);
        // An unknown name takes as long as a known name (if all hashes are of the same kind), and is always rejected.
        let right = believed || (job.auth.verify(job.user, &job.password) && known);
        job.password.fill(0);
        std::hint::black_box(&job.password);
        // A cached result does not extend its own lifetime.
        if right && !believed {
            if remembered.len() >= REMEMBERED_MAX {
                remembered.retain(|_, since| fresh(since));
            }
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
            remembered.insert(proof, clock::now());
        }
        let answers = lock(waiting).remove(&job.credentials);
        for answer in answers.into_iter().flatten() {
            // The receiver has been dropped if the connection was closed.
            let _ = answer.send(right);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Auth, QUEUE_MAX, Verifier, check_hash};
    use argon2::password_hash::PasswordHasher as _;
    use argon2::{Algorithm, Argon2, Params, Version};
    use std::collections::HashMap;
    use std::sync::Arc;

    pub(crate) fn argon2_hash(password: &str) -> String {
        let params = Params::new(64, 1, 1, None).unwrap();
        let hash: argon2::password_hash::phc::PasswordHash = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_with_salt(password.as_bytes(), b"salt of this test")
            .unwrap();
        hash.to_string()
    }

    pub(crate) fn bcrypt_hash(password: &str) -> String {
        bcrypt::hash(password, 4).unwrap()
    }

    fn ask(verifier: &Verifier, auth: &Arc<Auth>, name: &str, password: &str) -> Option<bool> {
        let (user, known) = auth.user(name.as_bytes());
        let proof = verifier.key.prove(name.as_bytes(), auth.hash(user).as_bytes(), password.as_bytes());
        let answer = verifier.verify(auth, (user, known), password.into(), proof)?;
        Some(answer.blocking_recv().unwrap())
    }

    #[test]
    fn both_kinds_of_hash_are_verified() {
        let users = [("ada".to_owned(), argon2_hash("lovelace")), ("bob".to_owned(), bcrypt_hash("b\u{fc}b"))];
        let auth = Arc::new(Auth::new("a \"realm\"", &users).unwrap());
        assert_eq!(auth.challenge, r#"Basic realm="a \"realm\"", charset="UTF-8""#);
        let verifier = Verifier::start().unwrap();
        for (name, password, right) in [
            ("ada", "lovelace", true),
            ("ada", "lovelace", true),
            ("ada", "Lovelace", false),
            ("bob", "b\u{fc}b", true),
            ("bob", "lovelace", false),
            ("bob", "", false),
            ("bob", "a\0b", false),
            ("eve", "lovelace", false),
            ("", "lovelace", false),
        ] {
            assert_eq!(ask(&verifier, &auth, name, password), Some(right), "{name} {password}");
        }
    }

    #[test]
    fn the_queue_is_bounded() {
        let slow = bcrypt::hash("x", 9).unwrap();
        let auth = Arc::new(Auth::new("r", &[("a".to_owned(), slow)]).unwrap());
        let verifier = Verifier::start().unwrap();
        let ask = |count: usize| verifier.verify(&auth, (0, true), b"wrong".to_vec(), [count as u8; 32]);
        let answers: Vec<_> = (0..2 * QUEUE_MAX + 2).map(ask).collect();
        assert!(answers.iter().filter(|answer| answer.is_none()).count() >= QUEUE_MAX / 2);
        assert!(answers[0].is_some());
    }

    #[test]
    fn equal_credentials_wait_for_one_verification() {
        let slow = bcrypt::hash("x", 9).unwrap();
        let auth = Arc::new(Auth::new("r", &[("a".to_owned(), slow)]).unwrap());
        let verifier = Verifier::start().unwrap();
        // Another step, which does not know the user.
        let other = Arc::new(Auth { challenge: String::new(), users: HashMap::default(), hashes: auth.hashes.clone() });
        // More than the queue has room for.
        let ask = |auth, known| verifier.verify(auth, (0, known), b"x".to_vec(), [1; 32]).unwrap();
        let answers: Vec<_> = (0..4 * QUEUE_MAX)
            .map(|index| if index % 2 == 0 { (ask(&auth, true), true) } else { (ask(&other, false), false) })
            .collect();
        for (answer, right) in answers {
            assert_eq!(answer.blocking_recv(), Ok(right));
        }
        assert!(super::lock(&verifier.waiting).is_empty());
    }

    #[test]
    fn hashes_are_checked_beforehand() {
        assert!(check_hash(&argon2_hash("x")).is_ok() && check_hash(&bcrypt_hash("x")).is_ok());
        for (hash, part) in [
            ("secret", "neither"),
            ("", "neither"),
            ("$argon2id$v=19$m=64,t=1,p=1", "salt"),
            ("$argon2id$v=19$m=1,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", "parameters"),
            ("$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", "1 GiB"),
            ("$argon2id$", "argon2"),
            ("$2b$12$short", "bcrypt"),
            ("$2b$31$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u", "seconds"),
        ] {
            let fault = check_hash(hash).unwrap_err();
            assert!(fault.contains(part), "{hash}: {fault}");
        }
        let faults = Auth::new("\u{fc}", &[("a:b".to_owned(), bcrypt_hash("x")), ("c".to_owned(), "x".to_owned())]);
        assert_eq!(faults.unwrap_err().len(), 3);
        assert!(Auth::new("r", &[]).is_err());
    }
}
