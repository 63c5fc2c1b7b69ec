//! Connection IDs that contain the numbers of their worker and process, encrypted.
//!
//! The kernel steers each packet to the socket of the worker that owns the connection, and after an upgrade, the new
//! process forwards packets of its predecessor's connections. Both read the owner from the connection ID. Observers
//! must not be able to link the IDs of a connection (RFC 9000 §5.1), so the whole ID is one encrypted block. The cipher
//! is Speck64/128, because it needs only additions, rotations and exclusive ors of 32 bits, which a classic BPF program
//! can compute.

use aws_lc_rs::{hkdf, hmac};
use flatout_os::random;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use std::sync::Arc;
use std::time::Duration;

/// Length of every connection ID, in bytes: one block of the cipher.
pub const ID_BYTES: usize = 8;

/// Number of workers that an ID can distinguish.
pub const WORKERS_MAX: usize = 1 << WORKER_BITS;

/// Number of bits of a worker number, and of a process generation.
const WORKER_BITS: u32 = 10;
const GENERATION_BITS: u32 = 6;

/// Number of bits of the mark, which is in the first word, below the worker and the generation.
const MARK_BITS: u32 = 16;

/// The bit position of the worker number in the first word.
pub(super) const WORKER_SHIFT: u32 = MARK_BITS;

/// Marks the IDs of this server. A client chooses the ID of its first packets at random. Such an ID contains the mark
/// with a probability of 2^-16, and its packets are then only forwarded unnecessarily.
const MARK: u32 = 0x5a3c;

const ROUNDS: usize = 27;

/// The owner of a connection: a process and a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Number of the process, which each upgrade increments modulo 64.
    pub generation: u8,
    /// Number of the worker, less than [`WORKERS_MAX`].
    pub worker: u16,
}

impl Owner {
    /// Returns the generation after `generation`.
    pub const fn next_generation(generation: u8) -> u8 {
        (generation + 1) % (1 << GENERATION_BITS)
    }
}

/// The cipher of connection IDs: Speck64/128 (Beaulieu et al., ePrint 2013/404).
#[derive(Clone, Copy)]
pub struct IdCipher {
    round_keys: [u32; ROUNDS],
}

impl IdCipher {
    /// Creates the cipher with `key`, which is shared by the workers of a process and by its successors.
    pub fn new(key: &[u8; 16]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        }
        let [mut key, mut lines @ ..] = words;
        let mut round_keys = [0; ROUNDS];
        for (round, round_key) in (0_u32..).zip(&mut round_keys) {
            *round_key = key;
            let line = &mut lines[round as usize % 3];
            *line = key.wrapping_add(line.rotate_right(8)) ^ round;
            key = key.rotate_left(3) ^ *line;
        }
        Self { round_keys }
    }

    /// Returns the round keys, for the program that decrypts in the kernel.
    pub const fn round_keys(&self) -> &[u32; ROUNDS] {
        &self.round_keys
    }

    fn encrypt(&self, [mut first, mut second]: [u32; 2]) -> [u32; 2] {
        for key in self.round_keys {
            first = first.rotate_right(8).wrapping_add(second) ^ key;
            second = second.rotate_left(3) ^ first;
        }
        [first, second]
    }

    fn decrypt(&self, [mut first, mut second]: [u32; 2]) -> [u32; 2] {
        for key in self.round_keys.iter().rev() {
            second = (second ^ first).rotate_right(3);
            first = (first ^ key).wrapping_sub(second).rotate_left(8);
        }
        [first, second]
    }

    /// Returns the ID number `count` of `owner`. Different counts yield different IDs.
    pub fn seal(&self, owner: Owner, count: u32) -> [u8; ID_BYTES] {
        let Owner { generation, worker } = owner;
        let head = u32::from(generation) << (WORKER_BITS + MARK_BITS) | u32::from(worker) << MARK_BITS | MARK;
        let [first, second] = self.encrypt([head, count]);
        (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
    }

    /// Returns the owner of the ID at the beginning of `id`, or `None` if the ID does not have the mark of this server.
    pub fn open(&self, id: &[u8]) -> Option<Owner> {
        let block = u64::from_be_bytes(*id.first_chunk()?);
        let [head, _] = self.decrypt([(block >> 32) as u32, block as u32]);
        let worker = head >> MARK_BITS & ((1 << WORKER_BITS) - 1);
        let generation = head >> (WORKER_BITS + MARK_BITS);
        (head & ((1 << MARK_BITS) - 1) == MARK).then_some(Owner { generation: generation as u8, worker: worker as u16 })
    }
}

impl std::fmt::Debug for IdCipher {
    /// Omits the keys.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("IdCipher").finish_non_exhaustive()
    }
}

/// Returns the destination connection ID of a datagram's first packet (RFC 8999 §5). The ID in a short header is
/// assumed to have the length of this server's IDs.
pub fn destination_id(datagram: &[u8]) -> Option<&[u8]> {
    let (&flags, rest) = datagram.split_first()?;
    if flags & 0x80 == 0 {
        return rest.get(..ID_BYTES);
    }
    let (&length, rest) = rest.get(4..)?.split_first()?;
    rest.get(..usize::from(length))
}

/// Generator of the connection IDs of one worker.
struct OwnedIds {
    cipher: Arc<IdCipher>,
    owner: Owner,
    count: u32,
}

impl ConnectionIdGenerator for OwnedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        self.count = self.count.wrapping_add(1);
        ConnectionId::new(&self.cipher.seal(self.owner, self.count))
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        self.cipher.open(id).map(|_| ()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Length of [`QuicSecrets`], in bytes.
pub const SECRET_BYTES: usize = 16 + 32 + 32;

/// The keys that a server's workers share and pass to the next process in an upgrade. They keep connection IDs and
/// address validation tokens valid, and allow clients to recognise stateless resets for connections of an earlier
/// process (RFC 9000 §10.3.2).
#[derive(Clone)]
pub struct QuicSecrets([u8; SECRET_BYTES]);

impl QuicSecrets {
    /// Creates random keys. Returns `None` if the system cannot provide random bytes.
    pub fn generate() -> Option<Self> {
        random::bytes().ok().map(Self)
    }

    /// Creates the keys from those of another process.
    pub const fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the keys, to be passed to another process.
    pub const fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Returns the cipher of connection IDs.
    pub fn id_cipher(&self) -> IdCipher {
        let mut key = [0; 16];
        key.copy_from_slice(&self.0[..16]);
        IdCipher::new(&key)
    }

    /// Returns the key of stateless resets.
    pub(crate) fn reset_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0[16..48])
    }

    /// Returns the key of address validation tokens.
    pub(crate) fn token_key(&self) -> hkdf::Prk {
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&self.0[48..])
    }
}

impl std::fmt::Debug for QuicSecrets {
    /// Omits the keys.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("QuicSecrets").finish_non_exhaustive()
    }
}

/// Creates a generator of `owner`'s connection IDs that starts at a random count.
pub(crate) fn generator(cipher: &Arc<IdCipher>, owner: Owner) -> Box<dyn ConnectionIdGenerator> {
    // Without random bytes, the count starts at 0. IDs remain unlinkable as long as the key is secret.
    let count = random::bytes().unwrap_or_default();
    Box::new(OwnedIds { cipher: Arc::clone(cipher), owner, count: u32::from_ne_bytes(count) })
}

#[cfg(test)]
mod tests {
    use super::{IdCipher, Owner, destination_id};
    use std::collections::HashSet;

    #[test]
    fn the_cipher_matches_the_published_test_vector() {
        let key: Vec<u8> = [0x0302_0100_u32, 0x0b0a_0908, 0x1312_1110, 0x1b1a_1918]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let cipher = IdCipher::new(key.as_slice().try_into().unwrap());
        let (plain, encrypted) = ([0x3b72_6574, 0x7475_432d], [0x8c6f_a548, 0x454e_028b]);
        assert_eq!(cipher.encrypt(plain), encrypted);
        assert_eq!(cipher.decrypt(encrypted), plain);
    }

    #[test]
    fn an_id_reveals_its_owner_to_this_server_only() {
        let (cipher, other) = (IdCipher::new(&[7; 16]), IdCipher::new(&[8; 16]));
        let mut ids = HashSet::new();
        for generation in [0, 1, 63] {
            for worker in [0, 1, 1023] {
                let owner = Owner { generation, worker };
                for count in 0..100 {
                    let id = cipher.seal(owner, count);
                    assert_eq!(cipher.open(&id), Some(owner));
                    assert_eq!(other.open(&id), None);
                    assert!(ids.insert(id));
                }
            }
        }
        // No single byte reveals the worker: each position takes many values.
        for position in 0..8 {
            assert!(ids.iter().map(|id| id[position]).collect::<HashSet<_>>().len() > 128);
        }
        assert_eq!(cipher.open(b"short"), None);
        assert_eq!(Owner::next_generation(63), 0);
    }

    #[test]
    fn the_id_is_found_in_both_forms_of_headers() {
        let short = [0x41, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(destination_id(&short), Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        let long = [0xc1, 0, 0, 0, 1, 3, 7, 8, 9, 0];
        assert_eq!(destination_id(&long), Some(&[7, 8, 9][..]));
        for broken in [&[][..], &[0x41, 1, 2], &[0xc1, 0, 0, 0, 1], &[0xc1, 0, 0, 0, 1, 9, 1]] {
            assert_eq!(destination_id(broken), None);
        }
    }
}
