//! Header compression compared with PyPI's hpack: random field lists, and corrupted blocks.

use crate::e2e::tool::test_tool;
use flatout_http::http2::hpack::{Decoder, DecoderError, encode_field, encode_table_size};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The seed for all random input. FLATOUT_SEED overrides it.
const SEED: u64 = 9113;

/// Number of connections, each with up to seven blocks.
const CONNECTIONS: usize = 1000;

type FieldList = Vec<(Vec<u8>, Vec<u8>)>;

/// Errors of our decoder for blocks that hpack accepts, with the reason.
const STRICTER: [(DecoderError, &str); 2] = [
    (DecoderError::Integer, "integers have no bound in hpack, and may have more bytes than they need"),
    (DecoderError::ResizesTooMany, "hpack accepts any number of size updates before a section"),
];

fn python() -> Command {
    let mut command = test_tool("python", "http2/bin");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/http2/oracle.py"));
    command
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn field_list(fields: &Value) -> FieldList {
    fields.as_array().unwrap().iter().map(|field| (bytes(&field[0]), bytes(&field[1]))).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<FieldList, DecoderError> {
    let (mut scratch, mut fields) = (Vec::new(), Vec::new());
    decoder.decode(block, &mut scratch, |scratch, name, value| {
        fields.push((scratch[name].to_vec(), scratch[value].to_vec()));
    })?;
    Ok(fields)
}

fn seed() -> u64 {
    std::env::var("FLATOUT_SEED").map_or(SEED, |seed| seed.parse().unwrap())
}

/// Blocks that hpack has encoded and that may have been corrupted, with hpack's results.
fn connections() -> Vec<Vec<(Vec<u8>, Value)>> {
    let output = python().arg(seed().to_string()).arg(CONNECTIONS.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let connections = text.lines().map(|line| {
        let blocks: Vec<Value> = serde_json::from_str(line).unwrap();
        blocks.into_iter().map(|block| (bytes(&block[0]), block[1].clone())).collect()
    });
    connections.collect()
}

#[test]
fn field_blocks_decode_as_hpack_decodes_them() {
    let connections = connections();
    assert_eq!(connections.len(), CONNECTIONS);
    let (mut accepted, mut refused, mut stricter, mut wrong) = (0, 0, Vec::new(), Vec::new());
    for (number, blocks) in connections.iter().enumerate() {
        let mut decoder = Decoder::new();
        for (block, theirs) in blocks {
            let ours = decode(&mut decoder, block);
            match (&ours, theirs.as_array()) {
                (Ok(fields), Some(_)) if *fields == field_list(theirs) => accepted += 1,
                (Err(_), None) => refused += 1,
                // The dynamic tables differ from here on.
                (Err(error), Some(_)) if STRICTER.iter().any(|(known, _)| known == error) => {
                    if !stricter.contains(error) {
                        stricter.push(*error);
                    }
                }
                _ => wrong.push(format!("{number}: {}\n  ours:   {ours:?}\n  theirs: {theirs}", hex(block))),
            }
            if ours.is_err() {
                break;
            }
        }
    }
    println!("seed {}: {accepted} accepted, {refused} refused, {stricter:?} by us alone", seed());
    assert!(wrong.is_empty(), "seed {}: {} blocks:\n{}", seed(), wrong.len(), wrong.join("\n"));
    // Neither kind is rare, and each row of the table is needed.
    assert!(accepted > CONNECTIONS && refused > CONNECTIONS / 10, "{accepted} {refused}");
    assert_eq!(stricter.len(), STRICTER.len(), "{stricter:?}");
}

/// hpack decodes its own valid blocks to field lists, and must decode our blocks for these lists to the same.
#[test]
fn hpack_decodes_our_field_blocks() {
    let (mut lines, mut expected) = (String::new(), Vec::new());
    for (number, blocks) in connections().iter().enumerate() {
        let lists: Vec<FieldList> =
            blocks.iter().filter(|(_, theirs)| theirs.is_array()).map(|(_, theirs)| field_list(theirs)).collect();
        for (index, list) in lists.iter().enumerate() {
            let mut block = Vec::new();
            if index == 0 && number % 3 == 0 {
                encode_table_size(0, &mut block);
            }
            for (name, value) in list {
                encode_field(name, value, &mut block);
            }
            lines.push_str(&hex(&block));
            lines.push(' ');
        }
        lines.push('\n');
        expected.push(lists);
    }
    let mut child = python().arg("decode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Vec<Value>> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    for (lists, found) in expected.iter().zip(&found) {
        // An empty block is not a word in its line.
        let lists: Vec<&FieldList> = lists.iter().filter(|list| !list.is_empty()).collect();
        let found: Vec<FieldList> = found.iter().map(field_list).filter(|list| !list.is_empty()).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), lists, "seed {}", seed());
    }
}
