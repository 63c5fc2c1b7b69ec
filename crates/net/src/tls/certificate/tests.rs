use super::{CertificateError, CertificateWarning, SiteCertificate, Validity, read_validity};
use crate::tls::TlsServer;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd};

fn site(names: &[&str]) -> SiteCertificate {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    SiteCertificate {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        chain_pem: cert.pem().into_bytes(),
        key_pem: signing_key.serialize_pem().into_bytes(),
        label: "here.pem".to_owned(),
    }
}

fn between(before: (i32, u8, u8), after: (i32, u8, u8)) -> SiteCertificate {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(before.0, before.1, before.2);
    params.not_after = date_time_ymd(after.0, after.1, after.2);
    let chain_pem = params.self_signed(&key).unwrap().pem().into_bytes();
    SiteCertificate { chain_pem, key_pem: key.serialize_pem().into_bytes(), ..site(&["*"]) }
}

fn error_of(site: SiteCertificate) -> CertificateError {
    TlsServer::new().unwrap().replace(&[site], 0).unwrap_err()
}

#[test]
fn what_cannot_be_used_is_named() {
    let (good, other) = (site(&["a"]), site(&["b"]));
    let label = || "here.pem".to_owned();
    assert_eq!(TlsServer::new().unwrap().replace(&[], 0), Err(CertificateError::None));
    assert_eq!(
        error_of(SiteCertificate { key_pem: other.key_pem, ..good.clone() }),
        CertificateError::KeyMismatch(label())
    );
    assert_eq!(error_of(SiteCertificate { key_pem: Vec::new(), ..good.clone() }), CertificateError::NoKey(label()));
    let no_chain = SiteCertificate { chain_pem: good.key_pem.clone(), ..good.clone() };
    assert_eq!(error_of(no_chain), CertificateError::NoCertificate(label()));
    let cut = SiteCertificate { chain_pem: good.chain_pem[..good.chain_pem.len() - 30].to_vec(), ..good.clone() };
    assert_eq!(error_of(cut), CertificateError::CertificateMalformed(label()));
    let bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    assert_eq!(
        error_of(SiteCertificate { chain_pem: bad, ..good.clone() }),
        CertificateError::CertificateMalformed(label())
    );
    let bad = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec();
    assert_eq!(error_of(SiteCertificate { key_pem: bad, ..good }), CertificateError::KeyUnsupported(label()));
}

#[test]
fn other_kinds_of_keys_will_do() {
    for algorithm in [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let chain_pem =
            CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap().pem().into_bytes();
        let other = SiteCertificate { chain_pem, key_pem: key.serialize_pem().into_bytes(), ..site(&["a"]) };
        assert_eq!(TlsServer::new().unwrap().replace(&[other], 1_800_000_000), Ok(Vec::new()));
    }
}

#[test]
fn times_are_read_and_warned_of() {
    // 2001-09-09 and 2055-03-01, which needs the longer form.
    let spanning = between((2001, 9, 9), (2055, 3, 1));
    let validity = read_validity(&spanning.chain_pem).unwrap();
    assert_eq!(validity, Validity { not_before_s: 999_993_600, not_after_s: 2_687_472_000 });
    let server = TlsServer::new().unwrap();
    let label = || "here.pem".to_owned();
    for (unix_s, expected) in [
        (999_993_599, vec![CertificateWarning::NotYetValid(label())]),
        (999_993_600, vec![]),
        (2_687_472_000, vec![]),
        (2_687_472_001, vec![CertificateWarning::Expired(label())]),
    ] {
        assert_eq!(server.replace(std::slice::from_ref(&spanning), unix_s), Ok(expected));
    }
    // The day after a leap day, and a date in the previous century.
    let validity = read_validity(&between((1996, 2, 29), (2000, 3, 1)).chain_pem).unwrap();
    assert_eq!(validity, Validity { not_before_s: 825_552_000, not_after_s: 951_868_800 });
    assert_eq!(read_validity(b"nothing"), None);
    for cut in 0..200 {
        assert_eq!(super::parse_validity(&vec![0x30; cut]), None);
    }
}

#[test]
fn the_key_is_not_shown() {
    let site = site(&["a"]);
    assert!(!format!("{site:?}").contains("key"), "{site:?}");
}
