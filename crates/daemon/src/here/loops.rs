//! Detection of proxy loops: whether a request to an origin in this process would return to the same proxy endlessly.
//!
//! A site may forward requests to another site of the same process, for example a cache to active pages. So requests
//! for each configured host and path are followed through the actual routes, and only a request that returns to the
//! same proxy is reported as a loop.

use super::at;
use flatout_config::model::{
    Config, Handler, HostField, ListenAddress, Matcher, Origin, Place, Protocol, Proxy, Respond, Step, StepKind,
};
use flatout_engine::explain::Question;
use flatout_engine::{Sources, Spec};
use flatout_http::lines::apply_operations;
use flatout_os::socket::is_local;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Maximum number of requests followed for one configuration.
const REQUESTS_MAX: usize = 10_000;

/// Maximum number of hops followed for one request. A longer path without repetition is not reported.
const HOPS_MAX: usize = 32;

/// A request that arrives at one of this process's listeners.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LoopRequest {
    listener: usize,
    host: String,
    target: String,
    fields: Vec<(String, String)>,
}

/// Appends an error for each proxy loop in `config`. `spec` is the compiled configuration, or `None` if it could not be
/// compiled.
pub(super) fn check_loops(config: &Config, spec: Option<Arc<Spec>>, faults: &mut Vec<String>) {
    let proxies: Vec<(&Place, &Proxy)> = config
        .steps()
        .filter_map(|step| match &step.kind {
            StepKind::Handler(Handler::Proxy(proxy)) => Some((&step.place, &**proxy)),
            _ => None,
        })
        .collect();
    let leads_here = |proxy: &Proxy| {
        proxy.origins.iter().any(|origin| config.listeners.iter().any(|on| leads_to(origin, &on.address)))
    };
    if !proxies.iter().any(|(_, proxy)| leads_here(proxy)) {
        return;
    }
    // Proxies are checked even if the configuration cannot be compiled, for example because a folder is missing.
    let compiled = || Spec::compile(&without_other_handlers(config), &Sources::default()).ok().map(Arc::new);
    let Some(spec) = spec.or_else(compiled) else { return };
    let mut search = LoopSearch { config, spec, proxies, seen: HashSet::new(), reported: HashSet::new(), faults };
    let paths = sample_paths(config);
    for site in &config.sites {
        for (&listener, host) in
            site.listeners.iter().flat_map(|listener| site.hosts.iter().map(move |host| (listener, host)))
        {
            let host = host.replace('*', "any");
            for target in &paths {
                let arrival = LoopRequest { listener, host: host.clone(), target: target.clone(), fields: Vec::new() };
                search.follow(&arrival, &mut Vec::new());
            }
        }
    }
}

struct LoopSearch<'a> {
    config: &'a Config,
    spec: Arc<Spec>,
    proxies: Vec<(&'a Place, &'a Proxy)>,
    seen: HashSet<LoopRequest>,
    /// The configuration places of each reported loop.
    reported: HashSet<Vec<(String, u32, u32)>>,
    faults: &'a mut Vec<String>,
}

impl<'a> LoopSearch<'a> {
    /// Follows one request. `way` is the path so far: each request, with the proxy that handled it and the origin to
    /// which it was forwarded.
    fn follow(&mut self, arrival: &LoopRequest, way: &mut Vec<(LoopRequest, &'a Place, &'a Origin)>) {
        if let Some(from) = way.iter().position(|(earlier, ..)| earlier == arrival) {
            self.report(&way[from..]);
            return;
        }
        if way.len() == HOPS_MAX || self.seen.len() == REQUESTS_MAX || !self.seen.insert(arrival.clone()) {
            return;
        }
        let Some(listener) = self.config.listeners.get(arrival.listener) else { return };
        let question = Question {
            method: "GET".to_owned(),
            secure: listener.protocol == Protocol::Tls,
            host: arrival.host.clone(),
            port: listener.address.port().unwrap_or(if listener.protocol == Protocol::Tls { 443 } else { 80 }),
            target: arrival.target.clone(),
            fields: arrival.fields.clone(),
            client: None,
        };
        let told = self.spec.explain_at(&question, arrival.listener as u32, None);
        let Some(forwarded) = told.proxy else { return };
        let Some(&(place, proxy)) = self.proxies.iter().find(|(place, _)| **place == forwarded.place) else { return };
        let received: Vec<_> = arrival.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut fields: Vec<(String, String)> = Vec::new();
        for (name, value) in apply_operations(200, &received, &proxy.request_fields) {
            let field = (name.to_owned(), value.to_owned());
            // If a field is added again at each hop, the repetition has no effect on routing.
            if !fields.contains(&field) {
                fields.push(field);
            }
        }
        for origin in &proxy.origins {
            let reached = self
                .config
                .listeners
                .iter()
                .position(|on| leads_to(origin, &on.address) && origin.secure == (on.protocol == Protocol::Tls));
            let Some(reached) = reached else { continue };
            let host = match &proxy.host {
                HostField::Client => arrival.host.clone(),
                HostField::Origin => origin.host.clone(),
                HostField::Fixed(host) => host.clone(),
            };
            let next =
                LoopRequest { listener: reached, host, target: forwarded.target.clone(), fields: fields.clone() };
            way.push((arrival.clone(), place, origin));
            self.follow(&next, way);
            way.pop();
        }
    }

    fn report(&mut self, way: &[(LoopRequest, &Place, &Origin)]) {
        let Some((arrival, place, origin)) = way.first() else { return };
        let mut places: Vec<_> =
            way.iter().map(|(_, place, _)| (place.file.clone(), place.line, place.column)).collect();
        places.sort_unstable();
        if !self.reported.insert(places) {
            return;
        }
        let by: Vec<_> = way[1..].iter().map(|(_, place, _)| at(place).trim_end_matches(": ").to_owned()).collect();
        let by = if by.is_empty() { String::new() } else { format!(" via {}", by.join(" and ")) };
        let shown = if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
        self.faults.push(format!(
            "{}the origin {shown}:{} is this server itself, and a request for {} of {} returns to this proxy{by} in a loop\n  try: the address on which the application listens",
            at(place),
            origin.port,
            arrival.target,
            arrival.host,
        ));
    }
}

/// Returns the root path, an arbitrary path, and one path for each route pattern.
fn sample_paths(config: &Config) -> Vec<String> {
    let mut paths = vec!["/".to_owned(), "/any".to_owned()];
    for step in config.steps() {
        let StepKind::Route(route) = &step.kind else { continue };
        for matcher in &route.matchers {
            let Matcher::Path(patterns) = matcher else { continue };
            paths.extend(patterns.iter().map(|pattern| {
                let path = pattern.replace('*', "any");
                if path.starts_with('/') { path } else { format!("/{path}") }
            }));
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns the configuration with a fixed response in place of each handler that is not a proxy.
fn without_other_handlers(config: &Config) -> Config {
    fn replace(block: &mut Vec<Step>) {
        block.retain(|step| !matches!(step.kind, StepKind::ErrorPage(_)));
        for step in block {
            match &mut step.kind {
                StepKind::Route(route) => replace(&mut route.block),
                StepKind::Handler(Handler::Proxy(_)) => {}
                StepKind::Handler(handler) => {
                    *handler = Handler::Respond(Respond {
                        status: 200,
                        body: String::new(),
                        content_type: "text/plain".to_owned(),
                    });
                }
                _ => {}
            }
        }
    }
    let mut config = config.clone();
    for site in &mut config.sites {
        replace(&mut site.block);
    }
    config
}

/// Returns whether a connection to `origin` would reach a listener at `own`. Names other than `localhost` are not
/// resolved.
pub fn leads_to(origin: &Origin, own: &ListenAddress) -> bool {
    let Some(own) = own.ip().filter(|own| own.port() == origin.port) else { return false };
    let covers = |address: IpAddr| {
        own.ip() == address || own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4()) && is_local(address)
    };
    match origin.host.as_str() {
        "localhost" => covers(IpAddr::V4(Ipv4Addr::LOCALHOST)) || covers(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        host => host.trim_matches(['[', ']']).parse().is_ok_and(covers),
    }
}

#[cfg(test)]
mod tests {
    use super::check_loops;
    use flatout_engine::{Sources, Spec};
    use std::sync::Arc;

    /// The loops in a configuration, whatever its ports are used for on this machine.
    fn loops(text: &str) -> Vec<String> {
        let config = flatout_config::load_text(text).unwrap();
        let spec = Spec::compile(&config, &Sources::default()).unwrap();
        let mut faults = Vec::new();
        check_loops(&config, Some(Arc::new(spec)), &mut faults);
        faults
    }

    #[test]
    fn a_site_may_lead_to_another_of_the_same_process() {
        let pages = std::env::temp_dir();
        let pages = pages.display();
        let behind = format!(
            "site \"www.example.com\" {{
    listen \"127.0.0.1:18080\"
    cache
    proxy \"http://127.0.0.1:18081\"
}}
site {{
    listen \"127.0.0.1:18081\"
    pages \"{pages}\" {{ trusted-proxies \"127.0.0.1\" }}
}}"
        );
        let by_host = "site \"a.example\" {
    listen \"127.0.0.1:18080\"
    proxy \"http://127.0.0.1:18080\" { host \"b.example\" }
}
site \"b.example\" {
    listen \"127.0.0.1:18080\"
    respond 200 \"b\"
}";
        let by_path = "site {
    listen \"127.0.0.1:18080\"
    route \"/new/*\" { respond 200 \"new\" }
    route \"/old/*\" {
        rewrite to=\"/new/{rest}\"
        proxy \"http://127.0.0.1:18080\"
    }
}";
        let by_scheme = "site {
    listen \"127.0.0.1:18080\"
    proxy \"https://127.0.0.1:18080\"
}";
        let elsewhere = "site {
    listen \"127.0.0.1:18080\"
    proxy \"http://127.0.0.1:18081\"
}";
        for text in [&behind, by_host, by_path, by_scheme, elsewhere] {
            assert_eq!(loops(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_request_that_comes_back_is_a_loop() {
        let one = loops("site {\n    listen \"0.0.0.0:18080\"\n    cache\n    proxy \"http://localhost:18080\"\n}");
        assert_eq!(one.len(), 1, "{one:?}");
        let text = "flatout.kdl:4:5: the origin localhost:18080 is this server itself, and a request for / of any returns to \
                    this proxy in a loop";
        assert!(one[0].starts_with(text), "{}", one[0]);

        let site = |port: u16, next: u16| {
            format!("site {{\n    listen \"127.0.0.1:{port}\"\n    proxy \"http://127.0.0.1:{next}\"\n}}\n")
        };
        let two = loops(&(site(18080, 18081) + &site(18081, 18080)));
        assert_eq!(two.len(), 1, "{two:?}");
        assert!(two[0].contains("returns to this proxy via flatout.kdl:7:5 in a loop"), "{}", two[0]);

        let three = loops(&(site(18080, 18081) + &site(18081, 18082) + &site(18082, 18080)));
        assert_eq!(three.len(), 1, "{three:?}");
        assert!(three[0].contains("via flatout.kdl:7:5 and flatout.kdl:11:5 in a loop"), "{}", three[0]);

        let of_a_route = loops(
            "site \"a.example\" {
    listen \"127.0.0.1:18080\"
    route \"/api/*\" { proxy \"http://127.0.0.1:18080\" \"http://127.0.0.1:18081\"; }
    respond 200 \"a\"
}",
        );
        assert_eq!(of_a_route.len(), 1, "{of_a_route:?}");
        assert!(of_a_route[0].contains("a request for /api/any of a.example"), "{}", of_a_route[0]);
    }
}
