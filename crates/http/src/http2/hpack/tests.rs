use super::{Decoder, DecoderError, encode_field, encode_status, encode_table_size};
use proptest::prelude::{any, proptest};

/// The fields of a block, as `name: value`.
fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, DecoderError> {
    let (mut scratch, mut lines) = (Vec::new(), Vec::new());
    decoder.decode(block, &mut scratch, |scratch, name, value| {
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&scratch[range]).into_owned();
        lines.push(format!("{}: {}", text(name), text(value)));
    })?;
    Ok(lines)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// RFC 7541 Appendix C.2: each form of a field.
#[test]
fn single_fields_of_appendix_c() {
    for (hex, line) in [
        ("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "custom-key: custom-header"),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path"),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret"),
        ("82", ":method: GET"),
    ] {
        assert_eq!(decoded(&mut Decoder::new(), &bytes(hex)).unwrap(), [line]);
    }
}

/// RFC 7541 Appendix C.3 and C.4: the same three requests of one connection, plain and Huffman-coded.
#[test]
fn requests_of_appendix_c() {
    let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::new();
        assert_eq!(decoded(&mut decoder, &bytes(blocks[0])).unwrap(), first);
        let second = decoded(&mut decoder, &bytes(blocks[1])).unwrap();
        assert_eq!((&second[..4], &second[4][..]), (&first.map(str::to_owned)[..], "cache-control: no-cache"));
        assert_eq!(
            decoded(&mut decoder, &bytes(blocks[2])).unwrap(),
            [
                ":method: GET",
                ":scheme: https",
                ":path: /index.html",
                ":authority: www.example.com",
                "custom-key: custom-value"
            ]
        );
    }
}

/// RFC 7541 Appendix C.6: three responses of one connection, with a table of 256 bytes and evictions.
#[test]
fn responses_of_appendix_c() {
    let mut decoder = Decoder::new();
    let mut first = Vec::new();
    encode_table_size(256, &mut first);
    assert_eq!(first, [0x3f, 0xe1, 0x01]);
    first.extend(bytes(
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b \
         97c8 e9ae 82ae 43d3",
    ));
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    let location = "location: https://www.example.com";
    assert_eq!(decoded(&mut decoder, &first).unwrap(), [":status: 302", "cache-control: private", date, location]);
    assert_eq!(
        decoded(&mut decoder, &bytes("4883 640e ffc1 c0bf")).unwrap(),
        [":status: 307", "cache-control: private", date, location]
    );
    let third = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
                 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
    assert_eq!(
        decoded(&mut decoder, &bytes(third)).unwrap(),
        [
            ":status: 200",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
            location,
            "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
        ]
    );
}

#[test]
fn malformed_blocks_have_their_error() {
    for (hex, error) in [
        ("80", DecoderError::Index),
        ("be", DecoderError::Index),
        ("7f00", DecoderError::Index),
        ("ff", DecoderError::Truncated),
        ("ffffffffffff7f", DecoderError::Integer),
        ("ff8080808000", DecoderError::Integer),
        ("40", DecoderError::Truncated),
        ("4001", DecoderError::Truncated),
        ("400161", DecoderError::Truncated),
        ("40016181", DecoderError::Truncated),
        ("40016184ffffffff", DecoderError::Huffman),
        ("3fe21f", DecoderError::Resize),
        ("8220", DecoderError::Resize),
        ("20202082", DecoderError::ResizesTooMany),
    ] {
        assert_eq!(decoded(&mut Decoder::new(), &bytes(hex)), Err(error), "{hex}");
    }
    assert_eq!(decoded(&mut Decoder::new(), &bytes("203fe11f82")), Ok(vec![":method: GET".to_owned()]));
}

#[test]
fn encoded_fields_use_the_static_table_alone() {
    let mut block = Vec::new();
    encode_status(200, &mut block);
    encode_status(413, &mut block);
    encode_field(b"content-length", b"1024", &mut block);
    encode_field(b"x-a", b"", &mut block);
    assert_eq!(block, bytes("88 08 03 34 31 33 0f0d 83 0804 d7 00 03 782d61 00").as_slice());
    assert_eq!(
        decoded(&mut Decoder::new(), &block).unwrap(),
        [":status: 200", ":status: 413", "content-length: 1024", "x-a: "]
    );
}

proptest! {
    #[test]
    fn any_field_returns_unchanged(fields in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20)) {
        let mut block = Vec::new();
        for (name, value) in &fields {
            encode_field(name, value, &mut block);
        }
        let (mut scratch, mut found) = (Vec::new(), Vec::new());
        Decoder::new()
            .decode(&block, &mut scratch, |scratch, name, value| {
                found.push((scratch[name].to_vec(), scratch[value].to_vec()));
            })
            .unwrap();
        assert_eq!(found, fields);
    }

    #[test]
    fn any_block_ends_and_grows_no_buffer_without_a_bound(blocks in proptest::collection::vec(any::<Vec<u8>>(), 1..8)) {
        let mut decoder = Decoder::new();
        for block in blocks {
            let mut scratch = Vec::new();
            let decoded = decoder.decode(&block, &mut scratch, |_, _, _| {});
            assert!(scratch.len() <= block.len() * super::TABLE_BYTES);
            if decoded.is_err() {
                break;
            }
        }
    }
}
