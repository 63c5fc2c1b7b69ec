//! From root to somebody who may do less, once everything that needs root is open.

use crate::failure::Failure;
use flatout_config::model::Config;
use flatout_net::process::{Identity, become_user, find_group, find_user};
use rustix::process::{getegid, geteuid};

/// Whom the configuration wants us to become; `None` when that is who we are.
///
/// # Errors
/// When there is no such user or group, or we may not become it.
pub(crate) fn decide_identity(config: &Config) -> Result<Option<Identity>, Failure> {
    if config.user.is_none() && config.group.is_none() {
        return Ok(None);
    }
    let failed = |what: &str, error: std::io::Error| Failure::runtime(format!("cannot look up the {what}: {error}"));
    let now = Identity { uid: geteuid().as_raw(), gid: getegid().as_raw() };
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

/// Becomes `identity` for good.
///
/// # Errors
/// When the kernel refuses. The process must end then.
pub(crate) fn drop_privileges(identity: Identity) -> Result<(), Failure> {
    become_user(identity).map_err(|error| {
        Failure::runtime(format!("cannot become user {} and group {}: {error}", identity.uid, identity.gid))
    })
}
