use super::{Decoder, DecoderError, SECTION_PREFIX, TABLE_BYTES_MAX, encode_field, encode_status};
use crate::compression::{encode_integer, encode_string};
use crate::http3::error::ConnectionError;
use proptest::prelude::{any, prop_oneof, proptest};
use proptest::strategy::Strategy;
use std::collections::VecDeque;

type Field = (Vec<u8>, Vec<u8>);

fn decoded(decoder: &Decoder, section: &[u8]) -> Result<Vec<Field>, DecoderError> {
    let (mut scratch, mut fields) = (Vec::new(), Vec::new());
    decoder.decode(section, &mut scratch, |scratch, name, value| {
        fields.push((scratch[name].to_vec(), scratch[value].to_vec()));
    })?;
    Ok(fields)
}

/// The fields of a section, as `name: value`.
fn lines(decoder: &Decoder, section: &[u8]) -> Result<Vec<String>, DecoderError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = decoded(decoder, section)?;
    Ok(fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect())
}

/// Passes complete instructions. Returns the bytes that the decoder sends.
fn instruct(decoder: &mut Decoder, instructions: &[u8]) -> Result<Vec<u8>, ConnectionError> {
    let mut output = Vec::new();
    decoder.handle_instructions(instructions, || true, &mut output)?;
    Ok(output)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// RFC 9204 Appendix B: one connection.
#[test]
fn examples_of_appendix_b() {
    let mut decoder = Decoder::new();
    let authority = ":authority: www.example.com";
    // B.1: a literal with a static name.
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(lines(&decoder, &section).unwrap(), [":path: /index.html"]);
    // B.2: two insertions, and a section that refers to them after its base.
    let section = bytes("0381 10 11");
    assert_eq!(decoder.required_insert_count(&section), Ok(2));
    assert_eq!(lines(&decoder, &section), Err(DecoderError::InsertCount), "before the insertions");
    let instructions = bytes("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468");
    assert_eq!(instruct(&mut decoder, &instructions), Ok(vec![2]));
    assert_eq!(lines(&decoder, &section).unwrap(), [authority, ":path: /sample/path"]);
    // B.3: a literal insertion.
    let instructions = bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565");
    assert_eq!(instruct(&mut decoder, &instructions), Ok(vec![1]));
    // B.4: a duplicate, and a section with relative indexes.
    assert_eq!(instruct(&mut decoder, &bytes("02")), Ok(vec![1]));
    let section = bytes("0500 80 c1 81");
    let expected = [authority, ":path: /", "custom-key: custom-value"];
    assert_eq!(lines(&decoder, &section).unwrap(), expected);
    // B.5: an insertion with a dynamic name, which evicts the first entry.
    assert_eq!(instruct(&mut decoder, &bytes("810d 6375 7374 6f6d 2d76 616c 7565 32")), Ok(vec![1]));
    assert_eq!(decoder.insert_count(), 5);
    assert_eq!(lines(&decoder, &bytes("0600 80")).unwrap(), ["custom-key: custom-value2"]);
    assert_eq!(lines(&decoder, &section).unwrap(), expected, "the duplicate is still there");
    assert_eq!(lines(&decoder, &bytes("0600 84")), Err(DecoderError::Index), "evicted");
}

#[test]
fn malformed_sections_have_their_error() {
    let mut decoder = Decoder::new();
    instruct(&mut decoder, &bytes("3fe11f 4161 0162 4163 0164")).unwrap();
    for (hex, error) in [
        ("", DecoderError::Truncated),
        ("00", DecoderError::Truncated),
        ("ff", DecoderError::Truncated),
        ("ffffffffffffffffffffff00", DecoderError::Integer),
        // Required insert counts that exceed twice the table, that are 0, and that exceed the number of insertions.
        ("ff0200", DecoderError::InsertCount),
        ("0100", DecoderError::InsertCount),
        ("0400", DecoderError::InsertCount),
        // A negative base.
        ("0382", DecoderError::Base),
        // Static index 99; then dynamic indexes beyond the required insert count, beyond the base, and without a
        // required insert count.
        ("0000 ff24", DecoderError::Index),
        ("0000 5f54 00", DecoderError::Index),
        ("0000 80", DecoderError::Index),
        ("0000 10", DecoderError::Index),
        ("0000 00 00", DecoderError::Index),
        ("0000 40 00", DecoderError::Index),
        ("0300 82", DecoderError::Index),
        ("0200 10", DecoderError::Index),
        ("0280 11", DecoderError::Index),
        // Strings that end too early.
        ("0000 21", DecoderError::Truncated),
        ("0000 2161", DecoderError::Truncated),
        ("0000 216101", DecoderError::Truncated),
        ("0000 51", DecoderError::Truncated),
        ("0000 2161 84ffffffff", DecoderError::Huffman),
    ] {
        assert_eq!(lines(&decoder, &bytes(hex)), Err(error), "{hex}");
    }
    assert_eq!(lines(&decoder, &bytes("0280 10")).unwrap(), ["a: b"]);
    assert_eq!(lines(&decoder, &bytes("0280 00 01 7a")).unwrap(), ["a: z"]);
    assert_eq!(lines(&decoder, &bytes("0300 41 01 7a")).unwrap(), ["a: z"]);
    assert_eq!(lines(&decoder, &bytes("0000")).unwrap(), [""; 0]);
}

#[test]
fn invalid_instructions_end_the_connection() {
    for hex in [
        // A capacity beyond the announced maximum; insertions into a table of 0 bytes; references to entries that do
        // not exist.
        "3fe21f",
        "4161 0162",
        "3fe11f 00",
        "3fe11f 80 00",
        "3fe11f ff24 00",
        // An entry larger than the table: 33 bytes with a capacity of 32.
        "3f01 4161 00",
        // A name longer than the largest table, and an integer that does not end.
        "3fe11f 5fffff7f",
        "3fffffffffffffffffffff",
        // Huffman coding of EOS.
        "3fe11f 64ffffffff 00",
    ] {
        let handled = instruct(&mut Decoder::new(), &bytes(hex));
        assert_eq!(handled, Err(ConnectionError::EncoderInstruction), "{hex}");
    }
    let mut decoder = Decoder::new();
    let mut left = 3;
    let handled = decoder.handle_instructions(
        &bytes("3fe11f 4161 0162 00 00"),
        || {
            left -= 1;
            left > 0
        },
        &mut Vec::new(),
    );
    assert_eq!(handled, Err(ConnectionError::InstructionFlood));
}

#[test]
fn encoded_fields_use_the_static_table_alone() {
    let mut section = SECTION_PREFIX.to_vec();
    encode_status(200, &mut section);
    encode_status(413, &mut section);
    encode_field(b"content-length", b"1024", &mut section);
    encode_field(b"x-a", b"", &mut section);
    assert_eq!(section, bytes("0000 d9 5f09 03343133 54 830804d7 23 782d61 00"));
    assert_eq!(
        lines(&Decoder::new(), &section).unwrap(),
        [":status: 200", ":status: 413", "content-length: 1024", "x-a: "]
    );
}

/// A peer's encoder with a dynamic table, which inserts entries and refers to all that remain.
struct PeerEncoder {
    entries: VecDeque<Field>,
    inserted: u64,
    size_bytes: usize,
    instructions: Vec<u8>,
}

/// One step of the encoder.
#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    InsertNamed(usize, Vec<u8>),
    Duplicate(usize),
    /// A section whose base is this many insertions before its required insert count.
    Section(u64),
}

impl PeerEncoder {
    fn new() -> Self {
        let mut instructions = Vec::new();
        encode_integer(TABLE_BYTES_MAX as u64, 5, 0x20, &mut instructions);
        Self { entries: VecDeque::new(), inserted: 0, size_bytes: 0, instructions }
    }

    fn insert(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.size_bytes += name.len() + value.len() + 32;
        self.entries.push_back((name, value));
        self.inserted += 1;
        while self.size_bytes > TABLE_BYTES_MAX {
            let (name, value) = self.entries.pop_front().unwrap();
            self.size_bytes -= name.len() + value.len() + 32;
        }
    }

    /// Returns an entry and its relative index.
    fn pick(&self, at: usize) -> Option<(u64, Field)> {
        let index = at.checked_rem(self.entries.len())?;
        Some((index as u64, self.entries[self.entries.len() - 1 - index].clone()))
    }

    fn run(&mut self, step: &Step) -> Option<(Vec<u8>, Vec<Field>)> {
        match step {
            Step::Insert(name, value) => {
                encode_string(name, 5, 0x40, &mut self.instructions);
                encode_string(value, 7, 0, &mut self.instructions);
                self.insert(name.clone(), value.clone());
            }
            Step::InsertNamed(at, value) => {
                if let Some((index, (name, _))) = self.pick(*at) {
                    encode_integer(index, 6, 0x80, &mut self.instructions);
                    encode_string(value, 7, 0, &mut self.instructions);
                    self.insert(name, value.clone());
                }
            }
            Step::Duplicate(at) => {
                if let Some((index, (name, value))) = self.pick(*at) {
                    encode_integer(index, 5, 0, &mut self.instructions);
                    self.insert(name, value);
                }
            }
            Step::Section(behind) => return Some(self.section(*behind)),
        }
        None
    }

    fn section(&self, behind: u64) -> (Vec<u8>, Vec<Field>) {
        if self.entries.is_empty() {
            return (SECTION_PREFIX.to_vec(), Vec::new());
        }
        let base = self.inserted - behind.min(self.inserted);
        let mut section = Vec::new();
        encode_integer(self.inserted % 256 + 1, 8, 0, &mut section);
        match self.inserted - base {
            0 => encode_integer(0, 7, 0, &mut section),
            after => encode_integer(after - 1, 7, 0x80, &mut section),
        }
        let first = self.inserted - self.entries.len() as u64;
        let mut fields = Vec::new();
        for (index, (name, value)) in (first..).zip(&self.entries) {
            fields.push((name.clone(), value.clone()));
            fields.push((name.clone(), b"other".to_vec()));
            if index < base {
                encode_integer(base - 1 - index, 6, 0x80, &mut section);
                encode_integer(base - 1 - index, 4, 0x40, &mut section);
            } else {
                encode_integer(index - base, 4, 0x10, &mut section);
                encode_integer(index - base, 3, 0, &mut section);
            }
            encode_string(b"other", 7, 0, &mut section);
        }
        (section, fields)
    }
}

fn step() -> impl Strategy<Value = Step> {
    let text = |size| proptest::collection::vec(any::<u8>(), 0..size);
    prop_oneof![
        (text(20), text(300)).prop_map(|(name, value)| Step::Insert(name, value)),
        (any::<usize>(), text(20)).prop_map(|(at, value)| Step::InsertNamed(at, value)),
        any::<usize>().prop_map(Step::Duplicate),
        (0..5_u64).prop_map(Step::Section),
    ]
}

proptest! {
    #[test]
    fn any_field_returns_unchanged(fields in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20)) {
        let mut section = SECTION_PREFIX.to_vec();
        for (name, value) in &fields {
            encode_field(name, value, &mut section);
        }
        assert_eq!(decoded(&Decoder::new(), &section).unwrap(), fields);
    }

    /// Instructions and references are decoded correctly, however the instructions are split.
    #[test]
    fn a_dynamic_table_has_its_meaning(
        steps in proptest::collection::vec(step(), 0..400),
        piece_bytes in 1..2000_usize,
    ) {
        let (mut encoder, mut decoder) = (PeerEncoder::new(), Decoder::new());
        let (mut given, mut increments) = (0, 0);
        for step in steps {
            let Some((section, fields)) = encoder.run(&step) else { continue };
            for piece in encoder.instructions[given..].chunks(piece_bytes) {
                let output = instruct(&mut decoder, piece).unwrap();
                increments += output.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            given = encoder.instructions.len();
            assert_eq!(decoder.insert_count(), encoder.inserted);
            assert_eq!(decoded(&decoder, &section).unwrap(), fields);
        }
        if piece_bytes == 1 {
            assert_eq!(increments, decoder.insert_count());
        }
        assert!(decoder.stash.is_empty());
    }

    #[test]
    fn any_input_ends_and_grows_no_buffer_without_a_bound(
        instructions: Vec<Vec<u8>>,
        sections in proptest::collection::vec(any::<Vec<u8>>(), 1..8),
    ) {
        let mut decoder = Decoder::new();
        instruct(&mut decoder, &bytes("3fe11f")).unwrap();
        for piece in instructions {
            if instruct(&mut decoder, &piece).is_err() {
                break;
            }
            assert!(decoder.stash.len() <= 5 * TABLE_BYTES_MAX);
        }
        for section in sections {
            let mut scratch = Vec::new();
            let _ = decoder.decode(&section, &mut scratch, |_, _, _| {});
            assert!(scratch.len() <= section.len() * TABLE_BYTES_MAX);
        }
    }

    /// A valid section with one byte changed is refused or yields other fields, but never causes a panic.
    #[test]
    fn corrupted_sections_never_panic(at: usize, byte: u8, count in 0..5_u64) {
        let mut encoder = PeerEncoder::new();
        for step in [
            Step::Insert(b"x-first".to_vec(), b"one".to_vec()),
            Step::Insert(b"x-second".to_vec(), b"two".to_vec()),
            Step::Duplicate(1),
        ] {
            encoder.run(&step);
        }
        let mut decoder = Decoder::new();
        instruct(&mut decoder, &encoder.instructions).unwrap();
        let (mut section, _) = encoder.section(count);
        encode_field(b"x-third", b"a value that is long enough for Huffman coding", &mut section);
        let at = at % section.len();
        section[at] = byte;
        let _ = decoded(&decoder, &section);
        let mut instructions = encoder.instructions;
        let at = at % instructions.len();
        instructions[at] = byte;
        let _ = instruct(&mut Decoder::new(), &instructions);
    }
}
