//! Checks that span several settings: listeners, hosts, certificates, handlers, caches.

use super::reader::Reader;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{ListenAddress, Listener, Protocol, Site, StepKind};
use crate::syntax::Node;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address of a site without `listen`.
pub(super) const ADDRESS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// All listeners, one per address.
#[derive(Clone, Default)]
pub(super) struct Listeners {
    list: Vec<(Listener, Span)>,
    known: HashMap<ListenAddress, usize>,
}

impl Listeners {
    pub(super) fn into_list(self) -> Vec<Listener> {
        self.list.into_iter().map(|(listener, _)| listener).collect()
    }

    /// Adds a listener and returns its index. Sites that specify the same address with the same options share a
    /// listener.
    pub(super) fn insert(&mut self, reader: &mut Reader<'_>, listener: Listener, span: Span) -> Option<usize> {
        let Some(index) = self.known.get(&listener.address).copied() else {
            if let Some((known, first)) = self.list.iter().find(|(known, _)| overlap(&known.address, &listener.address))
            {
                let message = format!("{} and {} overlap", known.address, listener.address);
                let draft = reader.report.add(Code::ListenerConflict, span, message);
                draft.label("one of them includes the other").related(*first, "the other definition");
                draft.note("use the same address for both sites; the host of a request determines its site");
                return None;
            }
            self.known.insert(listener.address.clone(), self.list.len());
            self.list.push((listener, span));
            return Some(self.list.len() - 1);
        };
        let (known, first) = &self.list[index];
        let what = if known.protocol != listener.protocol {
            "only one of the two uses TLS"
        } else if known.http2_cleartext != listener.http2_cleartext {
            "only one of the two has `h2c`"
        } else if known.redirect_https_port != listener.redirect_https_port {
            "`redirect-https` differs"
        } else if known.access != listener.access {
            "`mode` or `group` differs"
        } else if known.http3 != listener.http3 {
            "`http3` differs"
        } else if known.proxy_protocol != listener.proxy_protocol {
            "`proxy-protocol` differs"
        } else {
            return Some(index);
        };
        let message = format!("conflicting options for {}", listener.address);
        let draft = reader.report.add(Code::ListenerConflict, span, message);
        draft.label(what).related(*first, "the other definition");
        if listener.address == ADDRESS_DEFAULT.into() {
            draft.note(format!("a site without `listen` is served on {ADDRESS_DEFAULT}"));
        }
        None
    }
}

/// Returns whether one of two different addresses includes the other, so that they cannot both be opened.
fn overlap(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (Some(one), Some(other)) = (one.ip(), other.ip()) else { return false };
    let is_same = one.port() == other.port() && one.port() != 0 && one.is_ipv4() == other.is_ipv4();
    is_same && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

/// Checks the hosts and certificates of all sites together with their listeners.
pub(super) fn sites(reader: &mut Reader<'_>, nodes: &[&Node], sites: &[Site], listeners: &Listeners) {
    let mut hosts: HashMap<(usize, &str), Span> = HashMap::new();
    for (node, site) in nodes.iter().zip(sites) {
        let host_span = |host: &str| {
            let is_it = |value: &&crate::syntax::Value| match &value.scalar {
                crate::syntax::Scalar::Text(text) => text.trim_end_matches('.').eq_ignore_ascii_case(host),
                _ => false,
            };
            node.arguments.iter().find(is_it).map_or(node.span, |value| value.span)
        };
        'hosts: for host in &site.hosts {
            for listener in &site.listeners {
                let span = host_span(host);
                if let Some(first) = hosts.get(&(*listener, host.as_str())) {
                    let address = &listeners.list[*listener].0.address;
                    let message = format!("another site already has `{host}` on {address}");
                    reader.report.add(Code::HostTwice, span, message).related(*first, "the other site");
                    continue 'hosts;
                }
                hosts.insert((*listener, host), span);
            }
        }
        certificate(reader, node, site, listeners);
    }
}

fn certificate(reader: &mut Reader<'_>, node: &Node, site: &Site, listeners: &Listeners) {
    let child = |name: &str| node.children.iter().flatten().find(|child| child.name == name);
    let speaks_tls = |listener: &&usize| listeners.list[**listener].0.protocol == Protocol::Tls;
    let tls = child("tls");
    match (site.listeners.iter().find(speaks_tls), tls) {
        (Some(listener), None) => {
            let (listener, first) = &listeners.list[*listener];
            let message = format!("no certificate for TLS on {}", listener.address);
            let draft = reader.report.add(Code::CertificateMissing, node.span, message);
            draft.related(*first, "this address uses TLS");
            draft.note("add tls cert=\"chain.pem\" key=\"key.pem\", or tls \"internal\" for a local certificate");
        }
        // A listener with an error is not in the list, so the listener with TLS may be missing.
        (None, Some(tls)) if !has_tls_property(node) => {
            let draft = reader.report.add(Code::CertificateUnused, tls.span, "none of this site's addresses uses TLS");
            draft.note("as in: listen \"0.0.0.0:443\" tls=#true");
        }
        _ => {}
    }
}

fn has_tls_property(node: &Node) -> bool {
    let listens = node.children.iter().flatten().filter(|child| child.name == "listen");
    listens.flat_map(|listen| &listen.properties).any(|property| property.name == "tls")
}

/// Checks that a site has a handler, unless it only redirects to https.
pub(super) fn answers(reader: &mut Reader<'_>, node: &Node, site: &Site, listeners: &Listeners) {
    let redirects = |listener: &usize| listeners.list[*listener].0.redirect_https_port.is_some();
    let only_redirects = site.listeners.iter().all(redirects);
    if only_redirects || site.steps().any(|step| matches!(step.kind, StepKind::Handler(_))) {
        return;
    }
    let draft = reader.report.add(Code::NoAnswer, node.span, "this site has no handler, so it cannot respond");
    draft.note("add a handler: files, pages, php, proxy, respond, redirect or metrics");
}

/// Reports each `cache` step that no `proxy` follows.
pub(super) fn caches(reader: &mut Reader<'_>, node: &Node) {
    let mut unused = Vec::new();
    follow_caches(node, &mut unused);
    for Unused { span, behind } in unused {
        let draft = reader.report.add(Code::CacheUnused, span, "no `proxy` follows this `cache`");
        match behind {
            None => draft.note("as in: cache ttl=\"60s\"; proxy \"http://127.0.0.1:3000\""),
            Some(name) => draft.note(format!(
                "to cache the responses of `{name}`, put a site in front of it: site \"www.example.com\" {{ cache; proxy \"http://127.0.0.1:8081\" }} and site {{ listen \"127.0.0.1:8081\"; {name} … {{ trusted-proxies \"127.0.0.1\" }} }}"
            )),
        };
    }
}

/// A `cache` step that no `proxy` follows.
struct Unused<'n> {
    span: Span,
    /// The handler that responds instead, and whose responses the author may have wanted to cache.
    behind: Option<&'n str>,
}

/// Visits steps in written order. Recursion is as deep as blocks are nested, which the grammar limits.
fn follow_caches<'n>(node: &'n Node, unused: &mut Vec<Unused<'n>>) {
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "cache" => unused.push(Unused { span: child.span, behind: None }),
            name @ ("pages" | "page" | "php") => {
                for cache in unused.iter_mut() {
                    cache.behind = cache.behind.or(Some(name));
                }
            }
            "proxy" => unused.clear(),
            "route" => follow_caches(child, unused),
            _ => {}
        }
    }
}
