//! Listener numbers that remain stable across configurations.
//!
//! A connection refers to its listener by a number, an index into the configuration's listeners. Connections outlive
//! reloads, so a listener keeps its number as long as the process runs, and numbers are never reused. A removed
//! listener stays in the list, without sites and sockets.

use flatout_config::model::{Config, Listener};

/// Returns whether two configurations describe the same listener. The protocol of a listener cannot change, because it
/// determines how the first byte of a connection is interpreted.
pub(crate) fn same(one: &Listener, other: &Listener) -> bool {
    one.address == other.address
        && one.protocol == other.protocol
        && one.http2_cleartext == other.http2_cleartext
        && one.proxy_protocol.is_some() == other.proxy_protocol.is_some()
}

/// Sorts the listeners of `config` into the order of `known`, the previous listeners, and appends new listeners.
/// Returns for each listener whether it is in use.
pub(crate) fn arrange(config: &mut Config, known: &[Listener]) -> Vec<bool> {
    let mut listeners = known.to_vec();
    let mut live = vec![false; known.len()];
    let places: Vec<usize> = config
        .listeners
        .drain(..)
        .map(|listener| {
            let place = listeners.iter().position(|known| same(known, &listener));
            if let Some(place) = place {
                listeners[place] = listener;
                live[place] = true;
                return place;
            }
            listeners.push(listener);
            live.push(true);
            listeners.len() - 1
        })
        .collect();
    for site in &mut config.sites {
        for listener in &mut site.listeners {
            // Indices were resolved when the configuration was created, so an index out of range would be a bug there.
            *listener = places.get(*listener).copied().unwrap_or(usize::MAX);
        }
        site.listeners.retain(|&listener| listener != usize::MAX);
    }
    config.listeners = listeners;
    live
}

#[cfg(test)]
mod tests {
    use super::arrange;
    use flatout_config::model::{Config, Listener, Place, Protocol, ProxySenders, Site, SocketAccess};

    fn listener(port: u16, protocol: Protocol) -> Listener {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        Listener {
            place: Place::default(),
            address,
            access: SocketAccess::default(),
            protocol,
            http2_cleartext: false,
            redirect_https_port: None,
            http3: None,
            proxy_protocol: None,
        }
    }

    fn config(listeners: &[Listener]) -> Config {
        let site = |index| Site { listeners: vec![index], ..Site::default() };
        let sites = (0..listeners.len()).map(site).collect();
        Config { listeners: listeners.to_vec(), sites, ..Config::default() }
    }

    #[test]
    fn a_listener_keeps_its_number() {
        let (a, b, c) = (listener(1, Protocol::Plain), listener(2, Protocol::Plain), listener(1, Protocol::Tls));
        let mut first = config(&[a.clone(), b.clone()]);
        assert_eq!(arrange(&mut first, &[]), [true, true]);
        // The first listener is removed, another protocol replaces it at its address, and the order changes.
        let mut second = config(&[c.clone(), b.clone()]);
        assert_eq!(arrange(&mut second, &first.listeners), [false, true, true]);
        assert_eq!(second.listeners, [a.clone(), b.clone(), c.clone()]);
        assert_eq!(second.sites.iter().map(|site| site.listeners[0]).collect::<Vec<_>>(), [2, 1]);
        // The first listener returns.
        let mut third = config(&[b.clone(), a.clone()]);
        assert_eq!(arrange(&mut third, &second.listeners), [true, true, false]);
        assert_eq!(third.sites.iter().map(|site| site.listeners[0]).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn the_senders_of_proxy_headers_can_change_but_not_whether_there_are_headers() {
        let from = |senders| Listener { proxy_protocol: senders, ..listener(1, Protocol::Plain) };
        let mut first = config(&[from(Some(ProxySenders::All))]);
        arrange(&mut first, &[]);
        let listed = from(Some(ProxySenders::Networks(Vec::new())));
        let mut second = config(std::slice::from_ref(&listed));
        assert_eq!(arrange(&mut second, &first.listeners), [true]);
        assert_eq!(second.listeners, std::slice::from_ref(&listed));
        let mut third = config(&[from(None)]);
        assert_eq!(arrange(&mut third, &second.listeners), [false, true]);
        assert_eq!(third.listeners, [listed, from(None)]);
    }
}
