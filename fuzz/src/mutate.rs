//! Mutations of seeds, the same for the same seed number.

/// Bytes that mean something in HTTP.
const DICTIONARY: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b"=",
    b",",
    b"\"",
    b"\\",
    b"%2e",
    b"%00",
    b"/",
    b"..",
    b"*",
    b"chunked",
    b"Transfer-Encoding: ",
    b"Content-Length: ",
    b"Host: ",
    b"Connection: close\r\n",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"ffffffffffffffff",
    b"18446744073709551616",
    b"\x80",
    b"\xff",
    b"@",
    b"[",
    b"]",
    b"#",
    b"<esi:",
    b"</esi:",
    b"/>",
    b"-->",
    b"&#",
    b"<?= v ?>",
    b"<?lua if v then ?>",
    b"<?lua else ?>",
    b"<?lua end ?>",
    b"<script>",
    b"</script>",
    b"<svg>",
    b" onclick=\"",
    b" href='",
    b"`",
];

/// A xorshift generator: small, fast, and good enough to cut and splice.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; `seed` 0 counts as 1.
    pub const fn new(seed: u64) -> Self {
        Self(if seed == 0 { 1 } else { seed })
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// One of `seeds`, changed in one to eight places.
pub fn mutate(random: &mut Random, seeds: &[&[u8]]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => {
                let word = DICTIONARY[random.below(DICTIONARY.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let other = seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let end = (at + random.below(24)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
        bytes.truncate(1024);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Random, mutate};

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let run = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| mutate(&mut random, &[b"GET / HTTP/1.1\r\n\r\n", b"x"])).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
