//! Dropping of root privileges, after everything that needs them has been opened.

use crate::failure::Failure;
use crate::source::ConfigSource;
use flatout_config::model::Config;
use flatout_os::process::{Identity, become_user, find_group, find_user};
use rustix::process::{DumpableBehavior, getegid, geteuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Returns the configured user and group, or `None` if the process already has them.
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
            "cannot switch to {name}: only root can switch to another user\n  try: start as root, or remove `user` and `group`"
        )));
    }
    Ok(Some(wanted))
}

/// Returns `now`, with the configured user and group in place of the current ones.
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

/// Returns the warning for a process that is started as root and remains root.
pub(crate) fn root_warning(config: &Config, identity: Option<Identity>, source: &ConfigSource) -> Option<String> {
    let stays_root = geteuid().is_root() && identity.is_none_or(|identity| identity.uid == 0);
    stays_root.then(|| {
        let danger =
            "warning: flatout runs as root: an attacker who takes over this process controls the whole machine";
        let remedy = match source {
            // One line is enough for a command typed by hand. For a service, the remedy is shown too.
            ConfigSource::Flags(_) => return danger.to_owned(),
            ConfigSource::File(_) if config.user.is_some() => "choose a `user` other than root",
            ConfigSource::File(_) => "set `user` in the configuration",
        };
        format!("{danger}\n  try: {remedy}, or start flatout as another user")
    })
}

/// The remedy for a worker process of root, which has lost the right to open what belongs to others.
const ROOT_WITHOUT_CAPABILITIES: &str = "flatout does this as root without capabilities, so as any other user: `user` \
                                         chooses the owner of these files; `worker-process #false` keeps root's rights";

impl Failure {
    /// Adds the remedy to the message if a worker process of root may not open a file; otherwise, the user to which the
    /// process has switched, if any.
    pub(crate) fn for_worker_process(mut self, config: &Config, identity: Option<Identity>) -> Self {
        let is_denied = self.text.to_lowercase().contains("permission denied");
        if identity.is_none() && is_denied && geteuid().is_root() {
            self.text = format!("{}\n  {ROOT_WITHOUT_CAPABILITIES}", self.text.trim_end());
            return self;
        }
        self.with_user(config, identity)
    }

    /// Adds the user to which the process has switched, if any, to the message.
    pub(crate) fn with_user(mut self, config: &Config, identity: Option<Identity>) -> Self {
        if let Some(Identity { uid, gid }) = identity {
            let name = config.user.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            self.text = format!(
                "{}\n  flatout does this as user{name} (uid {uid}, gid {gid}); give this user access to the file and its folder",
                self.text.trim_end()
            );
        }
        self
    }
}

/// Proof that this process has its final user and group, and cannot gain privileges.
pub(crate) struct NoPrivileges(());

/// Excludes memory from core dumps, because it contains keys, passwords and content. If possible, the process remains
/// dumpable, so that its user's tools can still inspect it.
fn exclude_memory_from_dumps() -> std::io::Result<()> {
    // With this filter, a core dump includes no memory mappings (core(5)).
    std::fs::write("/proc/self/coredump_filter", "0").or_else(|_| {
        // There is no `/proc`, or the kernel does not support core dumps of ELF programs.
        Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    })
}

/// Protects the process from the start: sets no_new_privs, and excludes memory from core dumps.
///
/// Must be called before the first thread is started, because only later threads inherit no_new_privs. Some threads are
/// started while the configuration is compiled.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn harden() -> Result<(), Failure> {
    forbid_new_privileges()?;
    exclude_memory_from_dumps()
        .map_err(|error| Failure::runtime(format!("cannot exclude memory from core dumps: {error}")))
}

fn forbid_new_privileges() -> Result<(), Failure> {
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| Failure::runtime(format!("cannot set no_new_privs: {error}")))
}

/// Permanently drops all capabilities of this thread and of the threads that it starts. Root keeps its user ID, but
/// then has no more permissions than any other file owner.
///
/// # Errors
/// If the kernel refuses although the thread has capabilities.
pub(crate) fn drop_capabilities() -> Result<(), Failure> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    // A sandbox may forbid the call, which is not needed if the thread has no capabilities.
    let has_none = || capabilities(None).is_ok_and(|sets| sets.permitted.is_empty());
    match set_capabilities(None, sets) {
        Err(error) if !has_none() => Err(Failure::runtime(format!(
            "cannot drop all capabilities: {error}\n  try: a sandbox that permits capset(2)"
        ))),
        _ => Ok(()),
    }
}

/// Sets no_new_privs, so that no program started by this process gains privileges. If there is an identity, first
/// switches to it permanently; if that user is not root, also drops all capabilities.
///
/// # Errors
/// If the kernel refuses. The process must then exit.
pub(crate) fn drop_privileges(identity: Option<Identity>) -> Result<NoPrivileges, Failure> {
    if let Some(identity) = identity {
        let failed = |error: std::io::Error| {
            Failure::runtime(format!("cannot switch to user {} and group {}: {error}", identity.uid, identity.gid))
        };
        become_user(identity).map_err(failed)?;
        if identity.uid != 0 {
            drop_capabilities()?;
        }
    }
    forbid_new_privileges()?;
    Ok(NoPrivileges(()))
}
