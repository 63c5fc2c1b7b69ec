//! Dropping root privileges, after everything that needs them is open.

use crate::failure::Failure;
use crate::source::ConfigSource;
use flatout_config::model::Config;
use flatout_os::process::{Identity, become_user, find_group, find_user};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// The configured identity; `None` if it is the current one.
///
/// # Errors
/// If the user or group does not exist, or the process may not switch to it.
pub(crate) fn decide_identity(config: &Config) -> Result<Option<Identity>, Failure> {
    let now = Identity { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    let wanted = find_identity(config, now)?;
    if wanted == now {
        return Ok(None);
    }
    if now.uid != 0 {
        let name = config.user.as_deref().or(config.group.as_deref()).unwrap_or_default();
        return Err(Failure::usage(format!(
            "cannot become {name}: only root may change its user\n  try: start as root, or leave `user` and `group` out"
        )));
    }
    Ok(Some(wanted))
}

/// `now` with the configured user and group in its place.
///
/// # Errors
/// If the user or group does not exist.
pub(crate) fn find_identity(config: &Config, now: Identity) -> Result<Identity, Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::runtime(format!("cannot look up the {what}: {error}"));
    let mut wanted = now;
    if let Some(name) = &config.user {
        wanted = find_user(name)
            .map_err(|error| failed("user", error))?
            .ok_or_else(|| Failure::usage(format!("there is no user named {name}")))?;
    }
    if let Some(name) = &config.group {
        wanted.gid = find_group(name)
            .map_err(|error| failed("group", error))?
            .ok_or_else(|| Failure::usage(format!("there is no group named {name}")))?;
    }
    Ok(wanted)
}

/// The warning for a process that is started as root and stays root.
pub(crate) fn root_warning(config: &Config, identity: Option<Identity>, source: &ConfigSource) -> Option<String> {
    let stays_root = geteuid().is_root() && identity.is_none_or(|identity| identity.uid == 0);
    stays_root.then(|| {
        let danger =
            "warning: flatout runs as root: an attacker who takes over this process controls the whole machine";
        let remedy = match source {
            // One line is enough for a command typed by hand; a service needs the remedy as well.
            ConfigSource::Flags(_) => return danger.to_owned(),
            ConfigSource::File(_) if config.user.is_some() => "choose a `user` other than root",
            ConfigSource::File(_) => "set `user` in the configuration",
        };
        format!("{danger}\n  try: {remedy}, or start flatout as another user")
    })
}

impl Failure {
    /// Adds the user that the process has switched to, if any.
    pub(crate) fn with_user(mut self, config: &Config, identity: Option<Identity>) -> Self {
        if let Some(Identity { uid, gid }) = identity {
            let name = config.user.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            self.text = format!(
                "{}\n  flatout does this as user{name} (uid {uid}, gid {gid}), who needs permission for the file and its folder",
                self.text.trim_end()
            );
        }
        self
    }
}

/// Switches to `identity` permanently, drops all capabilities and sets no_new_privs, so that no program started from
/// here gains any.
///
/// # Errors
/// If the kernel refuses. The process must then exit.
pub(crate) fn drop_privileges(identity: Identity) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::runtime(format!("cannot become user {} and group {}: {error}", identity.uid, identity.gid))
    };
    become_user(identity).map_err(failed)?;
    // Threads inherit it: this runs before the first worker starts.
    rustix::thread::set_no_new_privs(true).map_err(|error| failed(error.into()))?;
    if identity.uid != 0 {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}
