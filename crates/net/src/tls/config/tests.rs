use super::{SiteCertificate, Table, TlsServer};
use std::sync::Arc;

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

fn table(server: &TlsServer) -> Arc<Table> {
    server.certificates.0.load_full().unwrap()
}

/// Returns the index of the site whose certificate is used for `name`.
fn shown(server: &TlsServer, sites: &[SiteCertificate], name: Option<&str>) -> usize {
    let found = table(server).find(name).unwrap();
    let pem_of = |site: &SiteCertificate| {
        let one = TlsServer::new().unwrap();
        one.replace(std::slice::from_ref(site), 1_800_000_000).unwrap();
        table(&one).find(None).unwrap().cert.clone()
    };
    sites.iter().position(|site| pem_of(site) == found.cert).unwrap()
}

#[test]
fn certificates_are_found_by_name() {
    let server = TlsServer::new().unwrap();
    let sites = [site(&["first.example"]), site(&["a.example", "*.a.example"]), site(&["*.b.a.example"]), site(&["*"])];
    server.replace(&sites, 1_800_000_000).unwrap();
    for (name, expected) in [
        (Some("first.example"), 0),
        (Some("A.Example"), 1),
        (Some("x.a.example"), 1),
        (Some("y.x.a.example"), 1),
        (Some("b.a.example"), 1),
        (Some("x.b.a.example"), 2),
        (Some("y.x.b.a.example."), 2),
        (Some("elsewhere"), 3),
        (None, 3),
    ] {
        assert_eq!(shown(&server, &sites, name), expected, "{name:?}");
    }
    // Without a certificate for all names, the first certificate is used.
    server.replace(&sites[..2], 1_800_000_000).unwrap();
    assert_eq!(shown(&server, &sites, Some("elsewhere")), 0);
    // A set with an unusable certificate changes nothing.
    let bad = SiteCertificate { key_pem: sites[1].key_pem.clone(), ..sites[0].clone() };
    assert!(server.replace(&[bad], 1_800_000_000).is_err());
    assert_eq!(shown(&server, &sites, Some("a.example")), 1);
}
