//! Checks of a configuration against this machine: users, folders, certificates, free ports, logs, and proxy loops. They
//! are for `flatout validate`, so they start no processes and write no files.

mod loops;

pub use loops::leads_to;

use crate::certificates::Certificates;
use crate::failure::Failure;
use crate::listeners::access::find_gid;
use crate::listeners::{bindable, is_without_ipv6};
use crate::privileges::{decide_identity, drop_capabilities, drop_privileges, find_identity};
use crate::start::CompiledConfig;
use flatout_config::model::{Certificate, Config, ListenAddress, Listener, Place};
use flatout_engine::{Sources, Spec};
use flatout_os::process::Identity;
use flatout_os::socket::{check_free, find_path_owners, find_port_owner};
use rustix::process::geteuid;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// Returns all problems that running `config` on this machine would have, as messages for display.
pub fn check_here(config: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    let spec = match Spec::compile(config, &Sources::default()) {
        Ok(spec) => {
            faults.extend(spec.check_migrations().iter().map(ToString::to_string));
            Some(Arc::new(spec))
        }
        Err(errors) => {
            faults.extend(errors.iter().map(ToString::to_string));
            None
        }
    };
    let root = Identity { uid: 0, gid: 0 };
    faults.extend(find_identity(config, root).err().map(|failure| failure.to_string()));
    check_certificates(config, &mut faults);
    for id in bindable(config, &vec![true; config.listeners.len()]) {
        faults.extend(check_port(&config.listeners[id]));
    }
    for error in flatout_access_log::find_unusable(&config.log_settings()) {
        if config.user.is_some() && error.error.kind() == ErrorKind::PermissionDenied {
            // Another user may open it.
            continue;
        }
        let log = config.logs.iter().find(|log| log.settings.target == error.target);
        faults.push(format!("{}{error}", log.map(|log| at(&log.place)).unwrap_or_default()));
    }
    loops::check_loops(config, spec, &mut faults);
    faults
}

/// Drops the privileges of this process permanently, as a worker process does, so call it last. Returns the error that
/// `flatout run` would report if its worker process could not open a part of `config` that root can open.
pub fn check_rights(config: &Config) -> Option<String> {
    if !config.worker_process || !geteuid().is_root() {
        return None;
    }
    let failure = compile_as_worker(config).err()?;
    Some(failure.text.strip_prefix("error: ").unwrap_or(&failure.text).to_owned())
}

fn compile_as_worker(config: &Config) -> Result<CompiledConfig, Failure> {
    let identity = decide_identity(config)?;
    drop_privileges(identity)?;
    drop_capabilities()?;
    CompiledConfig::compile_for_worker(config, identity)
}

/// Returns warnings about Unix sockets of `config` whose clients are trusted, although every user of this machine may be
/// one of them.
pub fn find_exposed(config: &Config) -> Vec<String> {
    // A folder that others cannot search protects the socket.
    let is_reachable = |path: &Path| {
        let folder = path.parent().and_then(|folder| std::fs::metadata(folder).ok());
        folder.is_none_or(|folder| folder.permissions().mode() & 0o001 != 0)
    };
    let exposed = config.exposed_sockets().filter(|on| on.address.path().is_some_and(is_reachable));
    let describe = |on: &Listener| {
        let cause = if on.proxy_protocol.is_some() { "`proxy-protocol`" } else { "`trusted-proxies \"unix\"`" };
        format!(
            "warning: {}every user of this machine can connect to {} and claim any client address, because of \
             {cause}\n  try: mode=\"0660\" and group= for the socket (SocketMode= and SocketGroup= in a socket unit), or a folder \
             that only the proxy can enter",
            at(&on.place),
            on.address
        )
    };
    exposed.map(describe).collect()
}

/// Checks the certificates of each site separately, so that one invalid certificate does not hide another. Certificates
/// of the local authority are not checked, because they are issued when the server starts.
fn check_certificates(config: &Config, faults: &mut Vec<String>) {
    for site in &config.sites {
        if !matches!(site.certificate, Some(Certificate::Files { .. })) {
            continue;
        }
        let alone = Config { sites: vec![site.clone()], ..config.clone() };
        if let Err(failure) = Certificates::new().and_then(|mut certificates| certificates.load(&alone)) {
            faults.push(failure.to_string());
        }
    }
}

/// Checks whether an address is free. A port held by flatout itself is considered free, because a reload or an upgrade
/// takes it over. A port that only root may bind is not checked.
fn check_port(listener: &Listener) -> Option<String> {
    let what = match &listener.address {
        ListenAddress::Ip(address) => find_port_fault(*address)?,
        ListenAddress::Unix(path) => match find_gid(listener) {
            Ok(_) => find_path_fault(path)?,
            Err(failure) => return Some(format!("{}{}", at(&listener.place), failure.text)),
        },
    };
    Some(format!(
        "{}{what}\n  try: another address, or --no-machine-checks to check only the configuration itself",
        at(&listener.place)
    ))
}

/// Returns why a socket cannot be bound at `path`. A path at which flatout itself listens is considered free, and one at
/// which systemd listens, which passes the socket on. No connection is made: it would activate a service of systemd.
fn find_path_fault(path: &Path) -> Option<String> {
    let shown = path.display();
    let owners = find_path_owners(path);
    if owners.iter().any(|(pid, name)| *pid == 1 || name == "flatout") {
        return None;
    }
    if let Some((pid, name)) = owners.first() {
        return Some(format!("{shown} is already in use by {name} (pid {pid})"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => Some(format!("{shown} exists and is not a socket")),
        // Processes of other users may be invisible, so its owner may be the running server.
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound && !path.parent().is_some_and(Path::is_dir) => {
            Some(format!("the folder of {shown} does not exist"))
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => None,
        Err(error) => Some(format!("cannot listen on {shown}: {error}")),
    }
}

fn find_port_fault(address: SocketAddr) -> Option<String> {
    let error = check_free(&address).err()?;
    let what = match error.kind() {
        ErrorKind::PermissionDenied => return None,
        ErrorKind::AddrInUse => match find_port_owner(address.port()) {
            Some((_, name)) if name == "flatout" => return None,
            Some((pid, name)) => format!("port {} is already in use by {name} (pid {pid})", address.port()),
            // Processes of other users may be invisible, so the owner may be the running server.
            None => return None,
        },
        _ if is_without_ipv6(&address, &error) => format!("cannot listen on {address}: this machine has no IPv6"),
        ErrorKind::AddrNotAvailable => format!("this machine does not have the address {}", address.ip()),
        _ => format!("cannot listen on {address}: {error}"),
    };
    Some(what)
}

fn at(place: &Place) -> String {
    if place.line == 0 { String::new() } else { format!("{}:{}:{}: ", place.file, place.line, place.column) }
}

#[cfg(test)]
mod tests {
    use super::check_here;
    use std::net::TcpListener;

    #[test]
    fn all_problems_of_this_machine_are_reported_at_once() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let text = format!(
            "user \"no-such-user\"
log \"syslog\" path=\"/no/such/socket\"
site \"a.example\" {{
    listen \"127.0.0.1:{port}\"
    listen \"192.0.2.1:1\"
    files \"/no/such/folder\"
}}
site \"b.example\" {{
    listen \"127.0.0.1:1\" tls=#true
    tls cert=\"/no/such.crt\" key=\"/no/such.key\"
    proxy \"https://localhost:1\"
}}
"
        );
        let faults = check_here(&flatout_config::load_text(&text).unwrap());
        let all = faults.join("\n");
        for part in [
            "/no/such/folder",
            &format!("port {port} is already in use by"),
            "does not have the address 192.0.2.1",
            "/no/such.crt",
            "itself",
            "there is no user named no-such-user",
            ":2:1: cannot write the access log /no/such/socket: No such file",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert!(all.contains("flatout.kdl:11:5: the origin localhost:1"), "{all}");
        assert_eq!(faults.len(), 7, "{all}");
        let fine = "site { listen \"127.0.0.1:0\"; respond 200 \"a\"; }";
        assert_eq!(check_here(&flatout_config::load_text(fine).unwrap()), [""; 0]);
    }
}
