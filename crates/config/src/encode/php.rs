//! `php` steps as KDL.

use super::proxy::{timeouts, trust};
use super::site::list;
use super::{Writer, path};
use crate::model::{OriginTimeouts, Php, PhpAddress};
use crate::read::show_size;
use std::net::Ipv6Addr;

pub(super) fn php(writer: &mut Writer, php: &Php) {
    let defaults = Php::default();
    writer.begin("php").text(&show_address(&php.address)).open();
    writer.begin("root").text(&path(&php.root)).end();
    if let Some(root) = &php.script_root {
        writer.begin("script-root").text(&path(root)).end();
    }
    if php.index.is_empty() {
        writer.begin("index").raw_property("off", "#true").end();
    } else if php.index != defaults.index {
        list(writer, "index", &php.index);
    }
    if php.split != defaults.split {
        list(writer, "split", &php.split);
    }
    if let Some(controller) = &php.front_controller {
        writer.begin("front-controller").text(&format!("/{controller}")).end();
    }
    for (name, value) in &php.env {
        writer.begin("env").text(name).text(value).end();
    }
    trust(writer, &php.trusted);
    if php.timeouts != OriginTimeouts::default() {
        timeouts(writer, &php.timeouts);
    }
    if php.idle_connections_max != defaults.idle_connections_max {
        writer.begin("idle-connections").raw(&php.idle_connections_max.to_string()).end();
    }
    if php.connections_max != defaults.connections_max {
        writer.begin("connections").raw(&php.connections_max.to_string()).end();
    }
    if php.content_bytes_max != defaults.content_bytes_max {
        writer.begin("content-limit").text(&show_size(php.content_bytes_max)).end();
    }
    if php.spool_bytes_max != defaults.spool_bytes_max {
        writer.begin("spool-limit").text(&show_size(php.spool_bytes_max)).end();
    }
    let folders: Vec<String> = php.sendfile.iter().map(|folder| path(folder)).collect();
    list(writer, "sendfile", &folders);
    for (prefix, folder) in &php.accel {
        writer.begin("accel").text(prefix).text(&path(folder)).end();
    }
    writer.close();
}

fn show_address(address: &PhpAddress) -> String {
    match address {
        PhpAddress::Unix(socket) => format!("unix:{}", path(socket)),
        PhpAddress::Tcp(host, port) if host.parse::<Ipv6Addr>().is_ok() => format!("tcp:[{host}]:{port}"),
        PhpAddress::Tcp(host, port) => format!("tcp:{host}:{port}"),
    }
}
